//! The numbers of a model, a chip's and the built-in runtimes', under dotted keys.
//!
//! `controller.boost_step_pct` is a key of the chip file, `wake.start.3.latency` one of an entry of
//! a list (from 0), `mlx.prefill.buffer_gflop` one of a runtime's file. A changed set of numbers is
//! read by the same readers as the files, so that what they refuse is refused here.

use everwarm_dvfs::{Chip, Traced};
use everwarm_workload::Runtime;
use toml::{Table, Value};

/// Chip and runtimes as files say them.
#[derive(Clone, Debug)]
pub struct Numbers {
    chip: Table,
    /// The chip's keys in the order of its file, as far as [`Traced`] goes into it.
    order: Vec<String>,
    runtimes: Vec<(&'static str, Table)>,
}

/// A chip and the built-in runtimes, as read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variant {
    pub chip: Chip,
    /// In the order of [`Runtime::BUILT_IN`].
    pub runtimes: Vec<Runtime>,
}

/// A key, or a value for it, that can't be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Wrong {
    /// The index of the override that is at fault, if it is one of them.
    pub index: Option<usize>,
    pub why: String,
}

impl Numbers {
    /// The numbers of the simulated device `id`.
    ///
    /// # Errors
    /// If it is not a chip in virtual time.
    pub fn of(id: &str) -> Result<Numbers, everwarm_gpu::Error> {
        Ok(Self::new(&everwarm_gpu::backend::traced_chip(id)?))
    }

    /// The numbers of a chip.
    pub fn new(chip: &Traced) -> Numbers {
        let order = chip.values.iter().map(|value| value.path.join(".")).collect();
        let read = |text: &str| text.parse::<Table>().expect("what was read once is TOML");
        let runtimes = Runtime::BUILT_IN.iter().map(|(name, text)| (*name, read(text))).collect();
        Numbers { chip: read(&chip.to_toml()), order, runtimes }
    }

    /// Every key that has a number, a quantity or a list, the chip's first, in the files' order.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        leaves(&self.chip, "", &mut keys);
        let place = |key: &String| {
            let covers = |known: &String| key == known || key.starts_with(&format!("{known}."));
            self.order.iter().position(covers).unwrap_or(usize::MAX)
        };
        keys.sort_by_cached_key(place);
        for (name, table) in &self.runtimes {
            leaves(table, &format!("{name}."), &mut keys);
        }
        keys
    }

    /// The value under `key`.
    pub(crate) fn value(&self, key: &str) -> Option<&Value> {
        let (table, path) = match self.runtime(key) {
            Some((index, path)) => (&self.runtimes[index].1, path),
            None => (&self.chip, key),
        };
        descend(table, path)
    }

    /// The index of the runtime whose name `key` begins with, and the rest of the key.
    fn runtime<'k>(&self, key: &'k str) -> Option<(usize, &'k str)> {
        let (name, path) = key.split_once('.')?;
        let index = self.runtimes.iter().position(|(known, _)| *known == name)?;
        Some((index, path))
    }

    /// Chip and runtimes with other values under some keys.
    pub(crate) fn with(&self, set: &[(String, Value)]) -> Result<Variant, Wrong> {
        let mut changed = self.clone();
        for (index, (key, value)) in set.iter().enumerate() {
            let Some(place) = changed.place(key) else {
                return Err(Wrong { index: Some(index), why: self.unknown(key) });
            };
            *place = value.clone();
        }
        changed.read().map_err(|(owner, why)| Wrong { index: blamed(set, owner, &why), why })
    }

    /// Where the value under a known key stands, or will stand.
    fn place(&mut self, key: &str) -> Option<&mut Value> {
        let (table, path) = match self.runtime(key) {
            Some((index, path)) => {
                // What one runtime leaves out, another gives.
                let known = |(_, table): &(&str, Table)| descend(table, path).is_some();
                if !self.runtimes.iter().any(known) {
                    return None;
                }
                (&mut self.runtimes[index].1, path)
            }
            None => {
                descend(&self.chip, key)?;
                (&mut self.chip, key)
            }
        };
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let mut value = table.entry(first).or_insert(Value::Boolean(false));
        for step in rest.split('.').filter(|step| !step.is_empty()) {
            value = match value {
                Value::Table(table) => table.entry(step).or_insert(Value::Boolean(false)),
                Value::Array(all) => all.get_mut(step.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(value)
    }

    fn unknown(&self, key: &str) -> String {
        let keys = self.keys();
        let nearest = keys
            .iter()
            .max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
        let nearest = nearest.map(|k| format!("; the nearest is `{k}`")).unwrap_or_default();
        format!("neither chip nor runtimes have a value `{key}`{nearest}")
    }

    /// Reads what stands there; an error says whose: a runtime's name, or nothing for the chip's.
    fn read(&self) -> Result<Variant, (Option<&'static str>, String)> {
        let text = |table: &Table| toml::to_string(table).expect("tables can be written");
        let chip = Chip::from_toml(&text(&self.chip)).map_err(|e| (None, without_place(&e)))?;
        let read = |(name, table): &(&'static str, Table)| {
            Runtime::from_toml(&text(table)).map_err(|error| {
                let error = error.to_string();
                (Some(*name), format!("{name}: {}", error.lines().last().unwrap_or_default()))
            })
        };
        let runtimes = self.runtimes.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Variant { chip, runtimes })
    }
}

/// The override of which an error of a reader speaks: one whose last step it names, else the only
/// one for that file.
fn blamed(set: &[(String, Value)], owner: Option<&str>, why: &str) -> Option<usize> {
    let named = |key: &str| {
        let last = key.rsplit('.').find(|step| step.parse::<usize>().is_err());
        last.is_some_and(|last| why.contains(last))
    };
    let own = |key: &str| match owner {
        Some(owner) => key.starts_with(&format!("{owner}.")),
        None => true,
    };
    let found = set.iter().position(|(key, _)| own(key) && named(key));
    found.or((set.len() == 1).then_some(0))
}

/// The message without a place in a text that no person has seen.
fn without_place(error: &everwarm_dvfs::Error) -> String {
    let text = error.to_string();
    match text.strip_prefix("line ").and_then(|rest| rest.split_once(": ")) {
        Some((_, message)) => message.to_owned(),
        None => text,
    }
}

/// The value at `path`: keys, and places in lists, with dots between.
fn descend<'t>(table: &'t Table, path: &str) -> Option<&'t Value> {
    let mut steps = path.split('.');
    let mut value = table.get(steps.next()?)?;
    for step in steps {
        value = match value {
            Value::Table(table) => table.get(step)?,
            Value::Array(all) => all.get(step.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

fn leaves(table: &Table, prefix: &str, keys: &mut Vec<String>) {
    for (key, value) in table {
        leaf(value, &format!("{prefix}{key}"), keys);
    }
}

fn leaf(value: &Value, key: &str, keys: &mut Vec<String>) {
    match value {
        Value::Table(table) => leaves(table, &format!("{key}."), keys),
        Value::Array(all) => {
            keys.push(key.to_owned());
            for (n, value) in all.iter().enumerate() {
                leaf(value, &format!("{key}.{n}"), keys);
            }
        }
        _ => keys.push(key.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn m2() -> Numbers {
        Numbers::of("sim:m2").unwrap()
    }

    fn with(key: &str, value: impl Into<Value>) -> Result<Variant, Wrong> {
        m2().with(&[(key.to_owned(), value.into())])
    }

    #[test]
    fn keys_lead_to_values_of_chip_lists_and_runtimes() {
        let base = m2().with(&[]).unwrap();
        assert_eq!(base.chip, Chip::built_in("m2").unwrap());
        assert_eq!(with("controller.base_pstate", 3).unwrap().chip.controller.base_pstate, 3);
        let wake = with("wake.start.0.latency", "0.3 ms").unwrap().chip.wake.start;
        assert_eq!(wake[0].latency.as_ms(), 0.3);
        let changed = with("mlx.prefill.in_flight", 4).unwrap();
        assert_eq!(changed.chip, base.chip);
        let differ: Vec<_> =
            changed.runtimes.iter().zip(&base.runtimes).map(|(a, b)| a != b).collect();
        assert_eq!(differ, [true, false]);
        // One runtime may take a key that only another one's file has.
        assert!(m2().value("llamacpp.prefill.buffer_gflop").is_none());
        let cut = with("llamacpp.prefill.buffer_gflop", 2.0).unwrap();
        assert_eq!(cut.runtimes[1].prefill.buffer_gflop, 2.0);
    }

    #[test]
    fn what_can_not_be_is_told_with_the_nearest_or_the_readers_words() {
        let check = |key: &str, value: Value, expected: &str| {
            let wrong = with(key, value).unwrap_err();
            assert!(wrong.why.contains(expected), "{wrong}");
            assert_eq!(wrong.index, Some(0), "{wrong}");
        };
        check("controller.base_pstat", 1.into(), "the nearest is `controller.base_pstate`");
        check("mlx.prefil.encode", "1 ms".into(), "the nearest is `mlx.prefill.encode`");
        check("wake.start.9.latency", "1 ms".into(), "`wake.start.9.latency`");
        check("controller.base_pstate", 99.into(), "`controller.base_pstate` is 99");
        check("controller.sample_period", "8".into(), "has no unit");
        check("llamacpp.prefill.in_flight", 0.into(), "in_flight is 0");
    }
}
