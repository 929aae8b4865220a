//! Reading an ablations file.
//!
//! Each `[[ablation]]` has a `name`, a `why`, and other values under dotted keys: `chip` those of a
//! chip file, `runtime.NAME` those of a built-in runtime's. `[[constant]]` lists keys that no
//! ablation touches, with the reason. Whether keys exist depends on the device, so that it is found
//! out later; errors carry the place in the file.

use super::numbers::{Numbers, Variant, Wrong};
use crate::text::{BadInput, Source};
use serde::Deserialize;
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

/// What can be taken out of a model, term by term.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablations {
    /// In the file's order.
    pub ablations: Vec<Ablation>,
    /// Keys that can't be taken out.
    pub constants: Vec<Constant>,
    file: String,
    text: String,
}

/// A term and how it is taken out.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablation {
    /// What the model then lacks.
    pub name: String,
    /// What the term is, and why this takes it out.
    pub why: String,
    /// Dotted keys (see [`Numbers`]) and the values that neutralise the term.
    pub set: Vec<(String, Value)>,
    spans: Vec<Range<usize>>,
    span: Range<usize>,
}

/// Keys that no ablation touches.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Dotted keys.
    pub keys: Vec<String>,
    /// Why there is nothing to take out.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AblationDoc {
    name: String,
    #[serde(default)]
    why: String,
}

const M2: &str = include_str!("../../ablations/m2.toml");

impl Ablations {
    /// Reads an ablations file's text; `file` is named in errors.
    ///
    /// # Errors
    /// [`BadInput`] says where, what stands there and what was expected.
    pub fn from_toml(file: &str, text: &str) -> Result<Ablations, BadInput> {
        let source = Source { file, text };
        let root = source.parse()?;
        let whole = root.span();
        let mut ablations: Vec<Ablation> = Vec::new();
        let mut constants = Vec::new();
        for (key, value) in root.into_inner() {
            match (key.get_ref().as_ref(), value.span(), value.into_inner()) {
                ("ablation", _, DeValue::Array(all)) => {
                    for one in all {
                        let read = ablation(source, one)?;
                        if ablations.iter().any(|before| before.name == read.name) {
                            let why = format!("a second ablation called `{}`", read.name);
                            return Err(source.error(read.span, why));
                        }
                        ablations.push(read);
                    }
                }
                ("constant", span, all @ DeValue::Array(_)) => {
                    constants = source.decode(Spanned::new(span, all))?;
                }
                (other, ..) => {
                    let why = format!(
                        "`{other}` is not known here; expected [[ablation]] and [[constant]] tables"
                    );
                    return Err(source.error(key.span(), why));
                }
            }
        }
        if ablations.is_empty() {
            return Err(source.error(whole, "no [[ablation]] in this file"));
        }
        Ok(Ablations { ablations, constants, file: file.to_owned(), text: text.to_owned() })
    }

    /// The ablations that the lab carries.
    ///
    /// # Panics
    /// If they do not read, which a test holds.
    pub fn built_in() -> Ablations {
        let read = Self::from_toml("built-in ablations m2.toml", M2);
        read.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Only the ablations whose name fits `pattern` (`*` and `?` as in a shell).
    pub fn only(mut self, pattern: &str) -> Ablations {
        self.ablations.retain(|ablation| crate::claims::fits(pattern, &ablation.name));
        self
    }

    /// The model without a term.
    pub(crate) fn variant(
        &self,
        ablation: &Ablation,
        numbers: &Numbers,
    ) -> Result<Variant, BadInput> {
        numbers.with(&ablation.set).map_err(|Wrong { index, why }| {
            let span = index.map_or(&ablation.span, |index| &ablation.spans[index]);
            let source = Source { file: &self.file, text: &self.text };
            source.error(span.clone(), format!("ablation `{}`: {why}", ablation.name))
        })
    }
}

const EXPECTED: &str = "expected chip = { \"KEY\" = VALUE } or runtime.NAME = { \"KEY\" = VALUE }";

fn ablation<'a>(source: Source<'a>, value: Spanned<DeValue<'a>>) -> Result<Ablation, BadInput> {
    let span = value.span();
    let DeValue::Table(mut table) = value.into_inner() else {
        return Err(source.error(span, "expected an [[ablation]] table"));
    };
    let mut flat = Flat { source, set: Vec::new(), spans: Vec::new() };
    for side in ["chip", "runtime"] {
        let key = table.keys().find(|key| key.get_ref() == side).cloned();
        let Some(values) = key.and_then(|key| table.remove(&key)) else { continue };
        match (values.span(), values.into_inner()) {
            (_, DeValue::Table(values)) => flat.add("", values)?,
            (at, _) => return Err(source.error(at, format!("`{side}` is no table; {EXPECTED}"))),
        }
    }
    let doc: AblationDoc = source.decode(Spanned::new(span.clone(), DeValue::Table(table)))?;
    if doc.name.trim().is_empty() {
        return Err(source.error(span, "the ablation's `name` is empty"));
    }
    let Flat { set, spans, .. } = flat;
    if set.is_empty() {
        return Err(source.error(span, format!("`{}` changes nothing; {EXPECTED}", doc.name)));
    }
    Ok(Ablation { name: doc.name, why: doc.why, set, spans, span })
}

/// Tables within tables are one dotted key.
struct Flat<'a> {
    source: Source<'a>,
    set: Vec<(String, Value)>,
    spans: Vec<Range<usize>>,
}

impl<'a> Flat<'a> {
    fn add(&mut self, prefix: &str, table: DeTable<'a>) -> Result<(), BadInput> {
        for (key, value) in table {
            let dotted = format!("{prefix}{}", key.get_ref());
            match (value.span(), value.into_inner()) {
                (_, DeValue::Table(inner)) => self.add(&format!("{dotted}."), inner)?,
                (span, value) => {
                    let value = self.source.decode(Spanned::new(span, value))?;
                    self.set.push((dotted, value));
                    self.spans.push(key.span());
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[[ablation]]\nname = \"a\"\nruntime.mlx = { prefill.in_flight = 8 }\n\
                        chip = { \"controller.boost_step_pct\" = 0, host.buffer_gap = \"0\" }\n";

    #[test]
    fn dotted_keys_may_be_tables_or_quoted() {
        let read = Ablations::from_toml("a.toml", GOOD).unwrap();
        let keys: Vec<_> = read.ablations[0].set.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys.len(), 3);
        for key in ["controller.boost_step_pct", "host.buffer_gap", "mlx.prefill.in_flight"] {
            assert!(keys.contains(&key), "{keys:?}");
        }
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let check = |text: &str, place: &str, expected: &str| {
            let error = Ablations::from_toml("a.toml", text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("a.toml:{place}: ")), "{error}");
            assert!(error.contains(expected), "{error}");
        };
        let head = "[[ablation]]\nname = \"a\"\n";
        check("", "1:1", "no [[ablation]]");
        check("[[ablations]]\n", "1:3", "`ablations` is not known here");
        check(head, "1:1", "`a` changes nothing; expected chip = {");
        check(&format!("{head}chip = 3\n"), "3:8", "`chip` is no table");
        check(&format!("{head}chips = {{ a = 1 }}\n"), "3:1", "unknown field `chips`");
        check(&GOOD.repeat(2), "5:1", "a second ablation called `a`");
    }

    #[test]
    fn an_unknown_key_is_shown_where_it_stands() {
        let text = GOOD.replace("boost_step_pct", "boost_stop_pct");
        let read = Ablations::from_toml("a.toml", &text).unwrap();
        let numbers = Numbers::of("sim:m2").unwrap();
        let error = read.variant(&read.ablations[0], &numbers).unwrap_err().to_string();
        assert!(error.starts_with("a.toml:4:10: ablation `a`: "), "{error}");
        assert!(error.contains("the nearest is `controller.boost_step_pct`"), "{error}");
    }
}
