//! How far each value is pinned by the claims: each a little less and a little more.

use super::subject::quantity;
use super::{Change, Outcome, Side, Subject};
use crate::claims::{Claims, Report};
use toml::Value;

/// One value moved by a share, down and up.
#[derive(Clone, Debug, PartialEq)]
pub struct Swing {
    /// Whose value.
    pub side: Side,
    /// Where it stands.
    pub key: String,
    /// As it is.
    pub value: Value,
    /// Less, and more: what it was set to and what that did. `None` where the value can't be that.
    pub ways: [Option<(Value, Outcome)>; 2],
}

impl Swing {
    /// The claims pin it: moved either way, one breaks.
    pub fn is_pinned(&self) -> bool {
        let breaks =
            |way: &Option<(Value, Outcome)>| way.as_ref().is_some_and(|w| !w.1.broken.is_empty());
        self.ways.iter().any(breaks)
    }
}

/// Checks the claims with each value of the chip and the runtimes whose key is `wanted` moved by
/// `share` (0.1: a tenth) both ways; `progress` hears how many of how many are done.
///
/// Operating points stay: they are what is being measured with.
pub fn sensitivity(
    claims: &Claims,
    subject: &Subject,
    share: f64,
    wanted: &dyn Fn(&str) -> bool,
    progress: &mut dyn FnMut(usize, usize),
) -> (Report, Vec<Swing>) {
    let whole = subject.check(claims);
    let values = subject.sides().into_iter().flat_map(|side| {
        let of_side = subject.values(&side);
        of_side.into_iter().map(move |(key, value)| (side.clone(), key, value))
    });
    let values: Vec<_> = values.filter(|(_, key, _)| wanted(key)).collect();
    let mut swings = Vec::new();
    for (done, (side, key, value)) in values.iter().enumerate() {
        progress(done, values.len());
        let ways = [1.0 - share, 1.0 + share].map(|factor| {
            let moved = scaled(value, factor)?;
            let change = Change { side: side.clone(), key: key.clone(), value: moved.clone() };
            let variant = subject.with(&[change]).ok()?;
            let unchanged = variant == *subject;
            let outcome = || Outcome::between(claims, &whole, &variant.check(claims));
            (!unchanged).then(|| (moved, outcome()))
        });
        swings.push(Swing { side: side.clone(), key: key.clone(), value: value.clone(), ways });
    }
    (whole, swings)
}

/// The value times `factor`; a whole number by at least 1. `None` for 0, which has no tenth.
fn scaled(value: &Value, factor: f64) -> Option<Value> {
    match value {
        Value::Integer(0) => None,
        Value::Integer(n) => {
            let moved = (*n as f64 * factor).round() as i64;
            let least = if factor > 1.0 { n + 1 } else { n - 1 };
            Some(Value::Integer(if factor > 1.0 { moved.max(least) } else { moved.min(least) }))
        }
        Value::Float(x) => (*x != 0.0 && x.is_finite()).then(|| Value::Float(x * factor)),
        Value::String(text) => {
            let (number, unit) = quantity(text)?;
            (number != 0.0).then(|| Value::String(format!("{}{unit}", number * factor)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwarm_dvfs::Chip;

    #[test]
    fn values_are_moved_in_their_own_form() {
        let check = |value: Value, factor: f64, expected: Option<Value>| {
            assert_eq!(scaled(&value, factor), expected, "{value}");
        };
        check(Value::Integer(6), 1.1, Some(Value::Integer(7)));
        check(Value::Integer(100), 0.9, Some(Value::Integer(90)));
        check(Value::Float(2.0), 0.5, Some(Value::Float(1.0)));
        check("8 ms".into(), 0.5, Some("4 ms".into()));
        check("0".into(), 0.5, None);
        check("hello".into(), 0.5, None);
    }

    #[test]
    fn what_the_claims_pin_is_found() {
        let claims = Claims::built_in().only("gap.commit_to_start_1ms");
        let subject = Subject::new(&Chip::built_in("m2").unwrap());
        let (_, swings) = sensitivity(&claims, &subject, 0.5, &|_| true, &mut |_, _| {});
        let pinned: Vec<_> =
            swings.iter().filter(|s| s.is_pinned()).map(|s| s.key.as_str()).collect();
        assert!(pinned.contains(&"host.commit_to_start"), "{pinned:?}");
        assert!(!pinned.contains(&"power.full"), "{pinned:?}");
    }
}
