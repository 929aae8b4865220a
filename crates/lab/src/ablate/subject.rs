//! A chip and runtimes as tables of values that can be changed one by one.

use everwarm_dvfs::Chip;
use everwarm_workload::Runtime;
use toml::{Table, Value};

/// Whose value is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// The chip's.
    Chip,
    /// A built-in runtime's, by its name.
    Runtime(String),
}

/// One value set to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Whose.
    pub side: Side,
    /// Where it stands in that file: keys with dots between.
    pub key: String,
    /// As it would stand in the file.
    pub value: Value,
}

/// A chip and the built-in runtimes, any of whose values can be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    chip: Chip,
    chip_table: Table,
    runtimes: Vec<(String, Runtime, Table)>,
}

impl Subject {
    /// `chip` with the built-in runtimes as they are.
    ///
    /// # Panics
    /// If a built-in runtime does not read, which a test holds.
    pub fn new(chip: &Chip) -> Subject {
        let runtime = |(name, text): &(&str, &str)| {
            let runtime = Runtime::from_toml(text).expect("built-in runtimes read");
            (name.to_string(), runtime, toml::from_str(text).expect("built-in runtimes are TOML"))
        };
        Subject {
            chip: chip.clone(),
            chip_table: Table::try_from(chip).expect("a chip is a table"),
            runtimes: Runtime::BUILT_IN.iter().map(runtime).collect(),
        }
    }

    /// The chip.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// The runtimes.
    pub fn runtimes(&self) -> Vec<&Runtime> {
        self.runtimes.iter().map(|(_, runtime, _)| runtime).collect()
    }

    /// The same with `changes`.
    ///
    /// # Errors
    /// Says which key does not exist and what stands there instead, or what the file's reader
    /// expected of the value.
    pub fn with(&self, changes: &[Change]) -> Result<Subject, String> {
        let mut changed = self.clone();
        for change in changes {
            let table = changed.table_mut(&change.side)?;
            set(table, &change.key, change.value.clone())?;
        }
        let text = |table: &Table| toml::to_string(table).map_err(|error| error.to_string());
        // The line in an error would be one of a text that nobody wrote.
        let plain = |error: String| match error.split_once(": ") {
            Some((line, rest)) if line.starts_with("line ") => rest.to_owned(),
            _ => error,
        };
        changed.chip =
            Chip::from_toml(&text(&changed.chip_table)?).map_err(|e| plain(e.to_string()))?;
        for (_, runtime, table) in &mut changed.runtimes {
            *runtime = Runtime::from_toml(&text(table)?).map_err(|e| plain(e.to_string()))?;
        }
        Ok(changed)
    }

    /// Every value of a side that is a number or a quantity, with its key.
    pub(crate) fn values(&self, side: &Side) -> Vec<(String, Value)> {
        let table = match side {
            Side::Chip => Some(&self.chip_table),
            Side::Runtime(name) => self.runtimes.iter().find(|r| r.0 == *name).map(|r| &r.2),
        };
        let mut all = Vec::new();
        table.into_iter().for_each(|table| leaves(table, "", &mut all));
        all
    }

    /// The chip's side and each runtime's.
    pub fn sides(&self) -> Vec<Side> {
        let runtimes = self.runtimes.iter().map(|(name, ..)| Side::Runtime(name.clone()));
        std::iter::once(Side::Chip).chain(runtimes).collect()
    }

    fn table_mut(&mut self, side: &Side) -> Result<&mut Table, String> {
        let Side::Runtime(name) = side else { return Ok(&mut self.chip_table) };
        let known: Vec<_> = self.runtimes.iter().map(|(name, ..)| name.clone()).collect();
        let found = self.runtimes.iter_mut().find(|(known, ..)| known == name);
        let none = || format!("no runtime `{name}`; there are {}", known.join(", "));
        found.map(|(.., table)| table).ok_or_else(none)
    }
}

/// Sets the value at `key`, which must exist: a new one would change nothing. (A runtime's optional
/// key that its file leaves out is one that exists, too; its reader refuses the others.)
fn set(table: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let (folder, last) = key.rsplit_once('.').map_or(("", key), |(folder, last)| (folder, last));
    let mut at = table;
    for step in folder.split('.').filter(|step| !step.is_empty()) {
        let known = at.keys().cloned().collect::<Vec<_>>().join(", ");
        at = at
            .get_mut(step)
            .and_then(Value::as_table_mut)
            .ok_or_else(|| format!("`{key}`: there is no table `{step}`; there are {known}"))?;
    }
    at.insert(last.to_owned(), value);
    Ok(())
}

fn leaves(table: &Table, folder: &str, all: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let path = if folder.is_empty() { key.clone() } else { format!("{folder}.{key}") };
        match value {
            Value::Table(inner) => leaves(inner, &path, all),
            Value::Integer(_) | Value::Float(_) => all.push((path, value.clone())),
            Value::String(text) if quantity(text).is_some() => all.push((path, value.clone())),
            _ => {}
        }
    }
}

/// A quantity's number and what stands behind it.
pub(crate) fn quantity(text: &str) -> Option<(f64, &str)> {
    let end = text.find(' ').unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(side: Side, key: &str, value: impl Into<Value>) -> Change {
        Change { side, key: key.to_owned(), value: value.into() }
    }

    #[test]
    fn a_chip_survives_being_a_table() {
        for name in Chip::names() {
            let subject = Subject::new(&Chip::built_in(name).unwrap());
            assert_eq!(subject.with(&[]).unwrap(), subject, "{name}");
        }
    }

    #[test]
    fn one_value_changes_and_no_other() {
        let subject = Subject::new(&Chip::built_in("m2").unwrap());
        let faster = change(Side::Chip, "controller.filter_periods", 2.0);
        let mut expected = subject.chip().clone();
        expected.controller.filter_periods = 2.0;
        assert_eq!(*subject.with(&[faster]).unwrap().chip(), expected);
        let deep = change(Side::Runtime("mlx".into()), "prefill.in_flight", 8);
        assert_eq!(subject.with(&[deep]).unwrap().runtimes()[0].prefill.in_flight, 8);
    }

    #[test]
    fn what_does_not_exist_is_told() {
        let subject = Subject::new(&Chip::built_in("m2").unwrap());
        let check = |side: Side, key: &str, value: f64, expected: &str| {
            let error = subject.with(&[change(side, key, value)]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check(Side::Chip, "control.filter_periods", 1.0, "no table `control`; there are");
        check(Side::Chip, "controller.filter", 1.0, "unknown field `filter`");
        check(Side::Chip, "controller.filter_periods", -1.0, "is -1; expected 1 to");
        check(
            Side::Runtime("vllm".into()),
            "prefill.tile",
            1.0,
            "no runtime `vllm`; there are mlx",
        );
    }
}
