//! From a claims file's text to claims.

use super::{Claim, Claims, Expect, Origin};
use crate::builtin;
use crate::measure::{Measure, Unit};
use crate::scenario::Scenario;
use crate::text::{BadInput, Source};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

/// Why a claims file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something in it is wrong, or in a scenario file that it names.
    #[error(transparent)]
    Input(#[from] BadInput),
    /// A scenario file that it names can't be read.
    #[error("{place}: the scenario file `{path}` can't be read: {error}")]
    File {
        /// The claims file and the claim.
        place: String,
        /// As far as it was resolved.
        path: String,
        /// The system's answer.
        error: std::io::Error,
    },
}

/// A claim without its scenario and measure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClaimDoc {
    id: String,
    #[serde(default)]
    setup: String,
    #[serde(default)]
    metric: String,
    expect: Option<Spanned<Value>>,
    expect_list: Option<Spanned<Vec<f64>>>,
    tol: Option<Spanned<f64>>,
    unit: Option<Spanned<String>>,
    #[serde(default)]
    conflicts_with: Vec<String>,
    #[serde(default, rename = "note")]
    _note: String,
    // Taken out before; named so that errors list them.
    #[serde(rename = "scenario")]
    _scenario: Option<Value>,
    #[serde(rename = "measure")]
    _measure: Option<Value>,
}

/// Reads a claims file. `folder` is what paths in it are relative to.
pub fn read(file: &str, text: &str, folder: &Path) -> Result<Claims, Error> {
    let source = Source { file, text };
    let mut top = source.parse()?.into_inner();
    let mut reader = Reader { source, folder, named: BTreeMap::new(), built_in: None };
    if let Some(scenarios) = take(&mut top, "scenario") {
        reader.shared(scenarios)?;
    }
    let claims = take(&mut top, "claim");
    // Anything may be said of the device; the lab does not read it.
    take(&mut top, "device");
    if let Some(key) = top.keys().next() {
        let why = format!("unknown key `{}`; expected device, scenario, claim", key.get_ref());
        return Err(source.error(key.span(), why).into());
    }
    let Some(claims) = claims else {
        return Err(source.error(0..0, "no [[claim]] in the file").into());
    };
    let span = claims.span();
    let DeValue::Array(all) = claims.into_inner() else {
        return Err(source.error(span, "expected claims as [[claim]] tables").into());
    };
    let mut claims: Vec<Claim> = Vec::with_capacity(all.len());
    for value in all {
        let span = value.span();
        let claim = reader.claim(value)?;
        if claims.iter().any(|before| before.id == claim.id) {
            let why = format!("a second claim with the id `{}`", claim.id);
            return Err(source.error(span, why).into());
        }
        claims.push(claim);
    }
    Ok(Claims { claims })
}

struct Reader<'a> {
    source: Source<'a>,
    folder: &'a Path,
    /// Scenarios of this file and those looked up so far, by name or path.
    named: BTreeMap<String, Arc<Scenario>>,
    /// The built-in claims, once needed.
    built_in: Option<Arc<Claims>>,
}

impl<'a> Reader<'a> {
    /// Reads the file's own `[scenario.NAME]` tables.
    fn shared(&mut self, scenarios: Spanned<DeValue<'a>>) -> Result<(), Error> {
        for (key, value) in self.source.table(scenarios, "[scenario.NAME] tables")?.into_inner() {
            let name = key.get_ref().to_string();
            let table = self.source.table(value, "a scenario as a table")?;
            let scenario = Scenario::from_table(self.source, table, &name)?;
            self.named.insert(name, Arc::new(scenario));
        }
        Ok(())
    }

    fn claim(&mut self, value: Spanned<DeValue<'a>>) -> Result<Claim, Error> {
        let span = value.span();
        let mut table = self.source.table(value, "a [[claim]] table")?.into_inner();
        let scenario = take(&mut table, "scenario");
        let measure = take(&mut table, "measure");
        let doc: ClaimDoc =
            self.source.decode(Spanned::new(span.clone(), DeValue::Table(table)))?;
        if doc.id.trim().is_empty() {
            return Err(self
                .source
                .error(span, "the claim's `id` is empty; expected a name")
                .into());
        }
        let expect = self.expect(&doc, span.clone())?;
        let unit = self.unit(&doc)?;
        let origin = match (scenario, measure) {
            (Some(scenario), Some(measure)) => Origin::Known {
                scenario: self.scenario(scenario, &doc.id)?,
                measure: Arc::new(self.measure(measure)?),
            },
            (None, None) => self.built_in(&doc.id),
            (None, Some(measure)) => {
                let at = measure.span();
                let measure = Arc::new(self.measure(measure)?);
                match self.built_in(&doc.id) {
                    Origin::Known { scenario, .. } => Origin::Known { scenario, measure },
                    Origin::Unknown(_) => {
                        return Err(self
                            .source
                            .error(
                                at,
                                format!("the claim `{}` has a `measure` but no `scenario`", doc.id),
                            )
                            .into());
                    }
                }
            }
            (Some(scenario), None) => {
                let at = scenario.span();
                let scenario = self.scenario(scenario, &doc.id)?;
                match self.built_in(&doc.id) {
                    Origin::Known { measure, .. } => Origin::Known { scenario, measure },
                    Origin::Unknown(_) => {
                        return Err(self
                            .source
                            .error(
                                at,
                                format!("the claim `{}` has a `scenario` but no `measure`", doc.id),
                            )
                            .into());
                    }
                }
            }
        };
        let ClaimDoc { id, setup, metric, conflicts_with, .. } = doc;
        Ok(Claim { id, setup, metric, expect, unit, conflicts_with, origin })
    }

    /// What the built-in file knows of a claim with that id.
    fn built_in(&mut self, id: &str) -> Origin {
        if self.source.file == builtin::CLAIMS[0].shown("claims") {
            return Origin::Unknown("it has neither a scenario nor a measure".into());
        }
        let built_in = self.built_in.get_or_insert_with(|| Arc::new(Claims::built_in())).clone();
        match built_in.claims.iter().find(|claim| claim.id == id) {
            Some(claim) => claim.origin.clone(),
            None => Origin::Unknown(
                "it has no scenario and measure, and its id is not that of a built-in claim".into(),
            ),
        }
    }

    fn measure(&self, value: Spanned<DeValue<'a>>) -> Result<Measure, BadInput> {
        let table = self.source.table(value, "a measure such as { metric = \"rate\" }")?;
        Measure::read(self.source, table)
    }

    /// A table, a name in this file, a built-in name, or a path.
    fn scenario(&mut self, value: Spanned<DeValue<'a>>, id: &str) -> Result<Arc<Scenario>, Error> {
        let span = value.span();
        let name = match value.into_inner() {
            DeValue::String(name) => name.into_owned(),
            DeValue::Table(table) => {
                let table = Spanned::new(span, table);
                return Ok(Arc::new(Scenario::from_table(self.source, table, id)?));
            }
            _ => {
                let why = "expected a scenario: a table, the name of one, or a file";
                return Err(self.source.error(span, why).into());
            }
        };
        if let Some(known) = self.named.get(&name) {
            return Ok(known.clone());
        }
        let scenario = match builtin::scenario(&name) {
            Some(scenario) => scenario,
            None if name.ends_with(".toml") => self.file(&name, id)?,
            None => {
                let own: Vec<_> = self.named.keys().map(String::as_str).collect();
                let why = format!(
                    "no scenario `{name}`; expected a file ending in .toml, one of this file ({}) or a built-in one: {}",
                    if own.is_empty() { "none".to_owned() } else { own.join(", ") },
                    builtin::names()
                );
                return Err(self.source.error(span, why).into());
            }
        };
        let scenario = Arc::new(scenario);
        self.named.insert(name, scenario.clone());
        Ok(scenario)
    }

    fn file(&self, name: &str, id: &str) -> Result<Scenario, Error> {
        let path = self.folder.join(name);
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(&path).map_err(|error| Error::File {
            place: format!("{}, claim `{id}`", self.source.file),
            path: shown.clone(),
            error,
        })?;
        Ok(Scenario::from_toml(&shown, &text)?)
    }

    fn unit(&self, doc: &ClaimDoc) -> Result<Option<Unit>, BadInput> {
        let Some(unit) = &doc.unit else { return Ok(None) };
        Unit::named(unit.get_ref()).map(Some).map_err(|why| self.source.error(unit.span(), why))
    }

    fn expect(&self, doc: &ClaimDoc, claim: Range<usize>) -> Result<Expect, BadInput> {
        let fail = |span: Range<usize>, why: String| Err(self.source.error(span, why));
        let tol = match &doc.tol {
            Some(tol) if *tol.get_ref() < 0.0 || !tol.get_ref().is_finite() => {
                return fail(
                    tol.span(),
                    format!("a tolerance of {} is impossible; expected 0 or more", tol.get_ref()),
                );
            }
            tol => tol.as_ref().map_or(0.0, |tol| *tol.get_ref()),
        };
        match (&doc.expect, &doc.expect_list) {
            (Some(value), None) => self.expect_value(value, tol),
            (None, Some(list)) if list.get_ref().is_empty() => {
                fail(list.span(), "expect_list is empty; expected one value a cell".into())
            }
            (None, Some(list)) if list.get_ref().iter().any(|value| !value.is_finite()) => fail(
                list.span(),
                "expect_list holds what is no number; expected finite ones".into(),
            ),
            (None, Some(list)) => Ok(Expect::List { values: list.get_ref().clone(), tol }),
            (Some(_), Some(list)) => {
                fail(list.span(), "a claim has only one of `expect` and `expect_list`".into())
            }
            (None, None) => fail(
                claim,
                format!(
                    "the claim `{}` expects nothing; it needs `expect` or `expect_list`",
                    doc.id
                ),
            ),
        }
    }

    fn expect_value(&self, value: &Spanned<Value>, tol: f64) -> Result<Expect, BadInput> {
        let number = |value: &Value| match value {
            Value::Integer(n) => Some(*n as f64),
            Value::Float(n) if n.is_finite() => Some(*n),
            _ => None,
        };
        let ends = match value.get_ref() {
            Value::Array(ends) => match ends.as_slice() {
                [lo, hi] => number(lo).zip(number(hi)),
                _ => None,
            },
            one => {
                return match number(one) {
                    Some(value) => Ok(Expect::Value { value, tol }),
                    None => Err(self.source.error(
                        value.span(),
                        format!("{one} is no number; expected a number or a range [low, high]"),
                    )),
                };
            }
        };
        match ends {
            Some((lo, hi)) if lo <= hi => Ok(Expect::Range { lo: lo - tol, hi: hi + tol }),
            Some((lo, hi)) => Err(self.source.error(
                value.span(),
                format!("[{lo}, {hi}] is no range; expected [low, high] with low <= high"),
            )),
            None => Err(self.source.error(
                value.span(),
                "expected a number or a range [low, high]; one value a cell goes into `expect_list`",
            )),
        }
    }
}

/// Takes a key out of a table.
fn take<'a>(table: &mut DeTable<'a>, name: &str) -> Option<Spanned<DeValue<'a>>> {
    let key = table.keys().find(|key| key.get_ref() == name).cloned()?;
    table.remove(&key)
}
