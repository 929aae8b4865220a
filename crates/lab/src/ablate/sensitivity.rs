//! How much each number of the model may move before a claim breaks.
//!
//! Every number and quantity of the chip and of the built-in runtimes is taken a share lower and a
//! share higher, one at a time (whole numbers by at least one), and all claims are checked. A
//! number is pinned if a claim breaks, free if none does though figures move, and inert if
//! nothing moves at all.

use super::numbers::Variant;
use super::variants::check_variants;
use super::{Error, Numbers};
use crate::claims::{Claims, Plan, Verdict, fits};
use toml::Value;

/// What became of every number and every claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    /// The device.
    pub device: String,
    /// By which share each number moved.
    pub share: f64,
    /// In the order of the files.
    pub parameters: Vec<Parameter>,
    /// One for each claim that holds and has a width, in the file's order.
    pub margins: Vec<Margin>,
}

/// One number of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its dotted key.
    pub key: String,
    /// Its value as it stands in a file.
    pub value: String,
    /// What the claims say of it.
    pub kind: Kind,
    /// Taken lower, and taken higher.
    pub moved: [Moved; 2],
}

/// What claims say of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A claim breaks if it is lower, and one if it is higher.
    Pinned,
    /// A claim breaks on one side only.
    Bounded,
    /// Figures move, but no claim breaks.
    Free,
    /// No figure moves.
    Inert,
}

impl Kind {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Pinned => "pinned",
            Kind::Bounded => "bounded",
            Kind::Free => "free",
            Kind::Inert => "inert",
        }
    }
}

/// A number that was moved.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// To which value.
    pub value: String,
    /// Ids of the claims that broke.
    pub breaks: Vec<String>,
    /// Why there is no chip with that value.
    pub impossible: Option<String>,
}

/// How near a claim is to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Margin {
    /// The claim.
    pub id: String,
    /// Distance to the nearest end of what is right, as a share of half its width: 1 in the middle,
    /// 0 at the end.
    pub now: f64,
    /// The least when any number moved; below 0 it breaks.
    pub least: f64,
    /// The number that did it, and to what it moved.
    pub by: String,
}

/// Moves every number whose key fits `only` (all for `*`) by `share` both ways.
///
/// # Errors
/// If `id` is no chip in virtual time.
pub fn sensitivity(
    claims: &Claims,
    id: &str,
    share: f64,
    only: &str,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Sensitivity, Error> {
    let numbers = Numbers::of(id)?;
    let whole = numbers.with(&[]).expect("a device's own numbers are read again");
    let mut moves = Vec::new();
    for key in numbers.keys().into_iter().filter(|key| fits(only, key)) {
        let Some(value) = numbers.value(&key) else { continue };
        let (Some(low), Some(high)) = (moved(value, -share), moved(value, share)) else { continue };
        let one = |to: Value| (shown(&to), numbers.with(&[(key.clone(), to)]));
        moves.push((key.clone(), shown(value), [one(low), one(high)]));
    }
    let possible = moves.iter().flat_map(|(.., both)| both.iter());
    let variants: Vec<Variant> =
        possible.filter_map(|(_, variant)| variant.as_ref().ok().cloned()).collect();
    let plan = Plan::new(claims);
    let (before, after) = check_variants(&plan, &whole, &variants, progress);
    let mut after = after.into_iter();
    let mut margins = Margins::new(claims, &before);
    let mut parameters = Vec::new();
    for (key, value, both) in moves {
        let mut kinds = Vec::new();
        let moved = both.map(|(to, variant)| {
            let verdicts = match variant {
                Ok(_) => after.next().expect("each variant was checked"),
                Err(wrong) => {
                    let impossible = Some(wrong.why);
                    return Moved { value: to, breaks: Vec::new(), impossible };
                }
            };
            margins.meet(claims, &verdicts, &format!("{key} = {to}"));
            kinds.push(verdicts == before);
            let broken = before.iter().zip(&verdicts).filter(|(b, a)| b.held && !a.held);
            let breaks = broken.map(|(_, after)| after.id.clone()).collect();
            Moved { value: to, breaks, impossible: None }
        });
        let breaks = moved.iter().filter(|one| !one.breaks.is_empty()).count();
        let kind = match breaks {
            2 => Kind::Pinned,
            1 => Kind::Bounded,
            _ if kinds.iter().all(|same| *same) => Kind::Inert,
            _ => Kind::Free,
        };
        parameters.push(Parameter { key, value, kind, moved });
    }
    Ok(Sensitivity { device: id.to_owned(), share, parameters, margins: margins.all })
}

struct Margins {
    all: Vec<Margin>,
    /// The claims' indices.
    claims: Vec<usize>,
}

impl Margins {
    fn new(claims: &Claims, before: &[Verdict]) -> Self {
        let mut new = Margins { all: Vec::new(), claims: Vec::new() };
        for (n, verdict) in before.iter().enumerate().filter(|(_, verdict)| verdict.held) {
            let Some(now) = margin(claims, n, verdict) else { continue };
            let id = verdict.id.clone();
            new.all.push(Margin { id, now, least: now, by: String::new() });
            new.claims.push(n);
        }
        new
    }

    fn meet(&mut self, claims: &Claims, after: &[Verdict], by: &str) {
        for (margin_of, &n) in self.all.iter_mut().zip(&self.claims) {
            let Some(margin) = margin(claims, n, &after[n]) else { continue };
            if margin < margin_of.least {
                (margin_of.least, margin_of.by) = (margin, by.to_owned());
            }
        }
    }
}

/// A claim's margin as a share of half its width; none where it has no width or no value.
fn margin(claims: &Claims, n: usize, verdict: &Verdict) -> Option<f64> {
    let worst = claims.claims[n].worst(verdict)?;
    (worst.half > 0.0).then_some(1.0 - worst.strain)
}

/// The value moved by a share of itself; `None` for what is no number.
fn moved(value: &Value, share: f64) -> Option<Value> {
    match value {
        // A whole number that can't be a fraction moves by at least one.
        Value::Integer(n) => {
            let step = (*n as f64 * share.abs()).round().max(1.0).copysign(share);
            Some(Value::Integer(n + step as i64))
        }
        Value::Float(x) => Some(Value::Float(tidy(x * (1.0 + share)))),
        Value::String(text) => {
            let digits = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-')))?;
            let (number, unit) = text.split_at(digits);
            let number: f64 = number.parse().ok()?;
            Some(Value::String(format!("{}{unit}", tidy(number * (1.0 + share)))))
        }
        _ => None,
    }
}

/// Without what binary arithmetic adds.
fn tidy(x: f64) -> f64 {
    format!("{x:.9e}").parse().unwrap_or(x)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_quantities_move_and_names_do_not() {
        let check = |value: Value, share: f64, expected: Option<Value>| {
            assert_eq!(moved(&value, share), expected);
        };
        check(Value::Integer(1), 0.1, Some(Value::Integer(2)));
        check(Value::Integer(90), -0.1, Some(Value::Integer(81)));
        check(Value::Float(14.85), 0.1, Some(Value::Float(16.335)));
        check("0.15 ms".into(), -0.1, Some("0.135 ms".into()));
        check("m2".into(), 0.1, None);
        check("llama-3.2-3b-4bit".into(), 0.1, None);
        check(Value::Boolean(true), 0.1, None);
    }

    #[test]
    fn a_number_that_a_claim_is_about_is_pinned_and_one_of_another_kind_is_inert() {
        let claims = Claims::built_in().only("power.idle_gpu");
        let kind = |key: &str, share: f64| {
            let found = sensitivity(&claims, "sim:m2", share, key, &|_, _| {}).unwrap();
            found.parameters[0].kind
        };
        assert_eq!(kind("power.off", 0.5), Kind::Pinned);
        assert_eq!(kind("power.off", 0.1), Kind::Free);
        assert_eq!(kind("kernels.matmul_cycles", 0.5), Kind::Inert);
        let found = sensitivity(&claims, "sim:m2", 0.5, "power.off", &|_, _| {}).unwrap();
        assert!(found.margins[0].least < 0.0 && found.margins[0].now > 0.0);
        assert!(found.margins[0].by.starts_with("power.off = "));
    }
}
