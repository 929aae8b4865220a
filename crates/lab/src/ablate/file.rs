//! Ablations as data: what each takes away, why, and which values do it.

use super::{Change, Side};
use crate::BadInput;
use crate::text::Source;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Value};

/// A term of the model, and what takes it away.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablation {
    /// The term.
    pub name: String,
    /// What the model is without it.
    pub why: String,
    /// The values that remove it.
    pub changes: Vec<Change>,
    /// Where it stands in its file: the byte at which it begins.
    at: usize,
}

/// A file of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablations {
    /// In the file's order.
    pub ablations: Vec<Ablation>,
    file: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ablation: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    why: String,
    #[serde(default)]
    chip: BTreeMap<String, Value>,
    #[serde(default)]
    runtime: BTreeMap<String, BTreeMap<String, Value>>,
}

const M2: &str = include_str!("../../ablations/m2.toml");

impl Ablations {
    /// The terms of the simulator's model.
    ///
    /// # Panics
    /// If they do not read, which a test holds.
    pub fn built_in() -> Ablations {
        Self::from_toml("built-in ablations m2.toml", M2).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Reads a file of ablations.
    ///
    /// # Errors
    /// [`BadInput`] says where, what stands there and what was expected.
    pub fn from_toml(file: &str, text: &str) -> Result<Ablations, BadInput> {
        let source = Source { file, text };
        let read: File = toml::from_str(text)
            .map_err(|error| source.error(error.span().unwrap_or(0..0), error.message()))?;
        let mut ablations: Vec<Ablation> = Vec::new();
        for entry in read.ablation {
            let span = entry.span();
            let one = Ablation::new(entry.into_inner(), span.start);
            if one.changes.is_empty() {
                let why = format!("`{}` changes nothing; expected `chip` or `runtime`", one.name);
                return Err(source.error(span, why));
            }
            if ablations.iter().any(|other| other.name == one.name) {
                return Err(source.error(span, format!("there is a `{}` already", one.name)));
            }
            ablations.push(one);
        }
        Ok(Ablations { ablations, file: file.to_owned(), text: text.to_owned() })
    }

    /// A mistake in `one` of these.
    pub(super) fn error(&self, one: &Ablation, why: String) -> BadInput {
        let source = Source { file: &self.file, text: &self.text };
        source.error(one.at..one.at, format!("`{}`: {why}", one.name))
    }
}

impl Ablation {
    fn new(entry: Entry, at: usize) -> Ablation {
        let change = |side: Side| move |(key, value)| Change { side: side.clone(), key, value };
        let chip = entry.chip.into_iter().map(change(Side::Chip));
        let runtimes = entry.runtime.into_iter().flat_map(|(name, values)| {
            values.into_iter().map(change(Side::Runtime(name))).collect::<Vec<_>>()
        });
        let changes = chip.chain(runtimes).collect();
        Ablation { name: entry.name, why: entry.why, changes, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Subject;
    use everwarm_dvfs::Chip;

    /// Values whose removal means nothing: there is no machine without them.
    const ESSENTIAL: &[&str] = &[
        "controller.sample_period",
        "controller.idle_off_delay",
        "controller.base_pstate",
        "controller.target_utilization_pct",
        "controller.boost_min_utilization_pct",
        "controller.boost_periods",
        "controller.boost_periods_burst",
        "host.commit_to_start",
        "wake.deep_idle_after",
        "wake.wiring_rate",
    ];

    #[test]
    fn every_value_of_the_controller_has_its_ablation() {
        let all = Ablations::built_in();
        let subject = Subject::new(&Chip::built_in("m2").unwrap());
        let touched: Vec<_> =
            all.ablations.iter().flat_map(|one| &one.changes).map(|c| c.key.as_str()).collect();
        for (key, _) in subject.values(&Side::Chip) {
            let counts = ["controller.", "host.", "wake."].iter().any(|t| key.starts_with(t));
            let known = touched.contains(&key.as_str()) || ESSENTIAL.contains(&key.as_str());
            assert!(!counts || known, "no ablation takes `{key}` away");
        }
        for one in &all.ablations {
            subject.with(&one.changes).unwrap_or_else(|why| panic!("{}: {why}", one.name));
        }
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let check = |text: &str, expected: &str| {
            let error = Ablations::from_toml("mine.toml", text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        let head = "[[ablation]]\nname = \"x\"\n";
        check(head, "mine.toml:1:1: `x` changes nothing; expected `chip` or `runtime`");
        check(&format!("{head}chips = {{}}"), "mine.toml:3:1: unknown field `chips`");
        let good = format!("{head}chip = {{ \"controller.filter_periods\" = 1 }}\n");
        check(&good.repeat(2), "mine.toml:4:1: there is a `x` already");
    }
}
