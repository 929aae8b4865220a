//! Sweep variables: their values, their product (the cells), and putting them into a document.
//!
//! A string `"$gap"` anywhere in a scenario stands for the variable's value in that cell,
//! `"$case.gap"` for a key of a value that is a table.

use crate::text::{BadInput, Source};
use everwarm_units::Span;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::{DeArray, DeTable, DeValue};
use toml::{Spanned, Value};

/// A value of a sweep variable, with its place in the text.
type Placed<'a> = Spanned<DeValue<'a>>;

/// The variables of a scenario in the order of the text.
pub struct Sweep<'a> {
    variables: Vec<(String, Vec<Placed<'a>>)>,
    /// Where it stands; empty without one.
    pub span: Range<usize>,
}

/// The text by which selectors know a value: equal durations are equal, a table with a `name` goes
/// by it.
pub fn canonical(value: &Value) -> String {
    match value {
        Value::String(text) => match text.parse::<Span>() {
            Ok(span) => span.to_string(),
            Err(_) => text.clone(),
        },
        Value::Float(number) => number.to_string(),
        Value::Table(table) => match table.get("name") {
            Some(name @ Value::String(_)) => canonical(name),
            _ => {
                let pairs: Vec<String> =
                    table.iter().map(|(key, v)| format!("{key} = {}", canonical(v))).collect();
                format!("{{ {} }}", pairs.join(", "))
            }
        },
        Value::Array(all) => {
            format!("[{}]", all.iter().map(canonical).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

impl<'a> Sweep<'a> {
    /// Takes the `sweep` table out of a scenario's document.
    pub fn take(source: Source<'a>, doc: &mut DeTable<'a>) -> Result<Self, BadInput> {
        let key = doc.keys().find(|key| key.get_ref() == "sweep").cloned();
        let Some(value) = key.and_then(|key| doc.remove(&key)) else {
            return Ok(Sweep { variables: Vec::new(), span: 0..0 });
        };
        let span = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            return Err(source.error(span, "`sweep` must be a table of VARIABLE = [VALUE, …]"));
        };
        let mut named: Vec<_> = table.into_iter().collect();
        named.sort_by_key(|(key, _)| key.span().start);
        let variables =
            named.into_iter().map(|(key, value)| {
                let (name, span) = (key.get_ref().to_string(), value.span());
                match value.into_inner() {
                    DeValue::Array(values) if !values.is_empty() => {
                        Ok((name, values.into_iter().collect()))
                    }
                    _ => Err(source
                        .error(span, format!("`{name}` must be a list of at least one value"))),
                }
            });
        Ok(Sweep { variables: variables.collect::<Result<_, _>>()?, span })
    }

    /// How many cells there are; may be more than memory holds.
    pub fn len(&self) -> u128 {
        self.variables.iter().fold(1, |n, (_, values)| n.saturating_mul(values.len() as u128))
    }

    /// The product of all values; the first variable changes slowest.
    pub fn cells(&self) -> Vec<Assignment<'a>> {
        let mut cells = vec![Assignment { values: Vec::new() }];
        for (name, values) in &self.variables {
            cells = cells
                .iter()
                .flat_map(|cell| {
                    values.iter().map(|value| {
                        let mut values = cell.values.clone();
                        values.push((name.clone(), value.clone()));
                        Assignment { values }
                    })
                })
                .collect();
        }
        cells
    }
}

/// The variables' values in one cell.
#[derive(Clone)]
pub struct Assignment<'a> {
    values: Vec<(String, Placed<'a>)>,
}

/// An assignment that knows its values' names, ready to be put into a document.
pub struct Filler<'s, 'a> {
    source: Source<'a>,
    assignment: &'s Assignment<'a>,
    sweep: &'s Sweep<'a>,
    /// The values as selectors know them.
    pub names: BTreeMap<String, String>,
}

impl<'s, 'a> Filler<'s, 'a> {
    /// For one cell of a sweep.
    pub fn new(
        source: Source<'a>,
        sweep: &'s Sweep<'a>,
        assignment: &'s Assignment<'a>,
    ) -> Result<Self, BadInput> {
        let name = |(variable, value): &(String, Placed<'a>)| {
            Ok((variable.clone(), canonical(&source.decode(value.clone())?)))
        };
        let names = assignment.values.iter().map(name).collect::<Result<_, _>>()?;
        Ok(Filler { source, assignment, sweep, names })
    }

    /// Takes out of lists what has a `when` that does not fit, then replaces every `"$variable"`.
    pub fn fill(&self, value: &mut Placed<'a>) -> Result<(), BadInput> {
        let span = value.span();
        match value.get_mut() {
            DeValue::String(text) => {
                if let Some(path) = text.strip_prefix('$') {
                    let found = self.look_up(path).map_err(|why| self.source.error(span, why))?;
                    *value = found;
                }
                Ok(())
            }
            DeValue::Array(all) => {
                for mut one in std::mem::replace(all, DeArray::new()) {
                    if self.takes_part(&one)? {
                        self.fill(&mut one)?;
                        all.push(one);
                    }
                }
                Ok(())
            }
            DeValue::Table(table) => table.iter_mut().try_for_each(|(_, v)| self.fill(v)),
            _ => Ok(()),
        }
    }

    fn takes_part(&self, value: &Placed<'a>) -> Result<bool, BadInput> {
        let DeValue::Table(table) = value.get_ref() else { return Ok(true) };
        let Some((_, when)) = table.iter().find(|(key, _)| key.get_ref() == "when") else {
            return Ok(true);
        };
        let fail = |why: String| self.source.error(when.span(), why);
        let Value::Table(wanted) = self.source.decode(when.clone())? else {
            return Err(fail("expected when = { VARIABLE = VALUE, … }".into()));
        };
        let mut fits = true;
        for (variable, value) in wanted {
            let Some(is) = self.names.get(&variable) else {
                return Err(fail(format!(
                    "`when` names `{variable}`, which is no sweep variable; {}",
                    self.known()
                )));
            };
            let (negated, value) = match value {
                Value::Table(mut table) if table.len() == 1 && table.contains_key("not") => {
                    (true, table.remove("not").expect("just seen"))
                }
                other => (false, other),
            };
            let any = match value {
                Value::Array(any) => any,
                one => vec![one],
            };
            let any: Vec<String> = any.iter().map(canonical).collect();
            self.values_exist(&variable, &any).map_err(fail)?;
            fits &= any.contains(is) != negated;
        }
        Ok(fits)
    }

    /// A value that the variable never has is a typing error.
    fn values_exist(&self, variable: &str, wanted: &[String]) -> Result<(), String> {
        let mut known = Vec::new();
        for (_, values) in self.sweep.variables.iter().filter(|(name, _)| name == variable) {
            for value in values {
                let value = self.source.decode(value.clone()).map_err(|error| error.message)?;
                known.push(canonical(&value));
            }
        }
        match wanted.iter().find(|one| !known.contains(one)) {
            None => Ok(()),
            Some(odd) => Err(format!(
                "`{odd}` is no value of `{variable}`; its values are {}",
                known.join(", ")
            )),
        }
    }

    /// "there are gap, kernel", for errors.
    fn known(&self) -> String {
        match self.names.is_empty() {
            true => "the scenario has no [sweep]".into(),
            false => {
                let names: Vec<_> = self.names.keys().map(String::as_str).collect();
                format!("there are {}", names.join(", "))
            }
        }
    }

    fn look_up(&self, path: &str) -> Result<Placed<'a>, String> {
        let mut parts = path.split('.');
        let name = parts.next().unwrap_or(path);
        let found = self.assignment.values.iter().find(|(known, _)| known == name);
        let missing = || format!("no sweep variable `{name}`; {}", self.known());
        let (_, mut value) = found.cloned().ok_or_else(missing)?;
        for part in parts {
            let inner = match value.into_inner() {
                DeValue::Table(table) => {
                    table.into_iter().find(|(key, _)| key.get_ref() == part).map(|(_, v)| v)
                }
                _ => None,
            };
            let missing = || format!("`${path}`: the value has no key `{part}` in this cell");
            value = inner.ok_or_else(missing)?;
        }
        Ok(value)
    }
}
