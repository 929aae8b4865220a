//! Reading a figures file.
//!
//! In a curve's `measure`, `"$x"` stands for the value at which it is taken: one of `x`, or each
//! value that the scenario's variable `over` has. A value is a TOML literal; `[5, "a name"]` gives
//! the place on the axis beside it.

use super::figure::{Axis, Curve, Figure, Figures, Mark, Panel, Series};
use crate::builtin;
use crate::claims::{Claims, Expect};
use crate::measure::{Measure, Unit};
use crate::scenario::Scenario;
use crate::text::{BadInput, Source};
use everwarm_units::Span;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Value};

const M2: &str = include_str!("../../figures/m2.toml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AxisDoc {
    label: String,
    unit: Spanned<String>,
    #[serde(default)]
    log: bool,
    ends: Spanned<(f64, f64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CurveDoc {
    label: String,
    course: Option<String>,
    over: Option<String>,
    x: Option<Spanned<Vec<Value>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkDoc {
    claim: Option<Spanned<String>>,
    x: Option<Ends>,
    y: Option<Ends>,
    curve: Option<usize>,
    source: Option<String>,
}

/// A value, or from and to.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "expected a number or [from, to]")]
enum Ends {
    One(f64),
    Two([f64; 2]),
}

impl Ends {
    fn pair(self) -> (f64, f64) {
        match self {
            Ends::One(value) => (value, value),
            Ends::Two([from, to]) => (from, to),
        }
    }
}

impl Figures {
    /// The figures of the M2 study.
    ///
    /// # Panics
    /// If they do not read, which a test holds.
    pub fn built_in() -> Figures {
        Self::from_toml("built-in figures m2.toml", M2).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Reads a figures file's text; `file` is named in errors.
    ///
    /// # Errors
    /// [`BadInput`] says where, what stands there and what was expected.
    pub fn from_toml(file: &str, text: &str) -> Result<Figures, BadInput> {
        let source = Source { file, text };
        let mut root = source.parse()?.into_inner();
        let mut reader = Reader { source, named: BTreeMap::new(), claims: Claims::built_in() };
        if let Some(own) = take(&mut root, "scenario") {
            for (key, value) in reader.source.table(own, "[scenario.NAME] tables")?.into_inner() {
                let table = reader.source.table(value, "a scenario")?;
                let scenario = Scenario::from_table(source, table, key.get_ref())?;
                reader.named.insert(key.get_ref().to_string(), Arc::new(scenario));
            }
        }
        let figures = take(&mut root, "figure");
        if let Some(key) = root.keys().next() {
            let why = format!("`{}` is not known here; expected figure or scenario", key.get_ref());
            return Err(source.error(key.span(), why));
        }
        let figures = reader.list(figures, 0..0, "[[figure]] tables")?;
        let figures = figures.into_iter().map(|one| reader.figure(one));
        Ok(Figures { figures: figures.collect::<Result<_, _>>()? })
    }
}

struct Reader<'a> {
    source: Source<'a>,
    named: BTreeMap<String, Arc<Scenario>>,
    claims: Claims,
}

impl<'a> Reader<'a> {
    fn list(
        &self,
        value: Option<Spanned<DeValue<'a>>>,
        at: Range<usize>,
        what: &str,
    ) -> Result<Vec<Spanned<DeValue<'a>>>, BadInput> {
        let span = value.as_ref().map_or(at, |value| value.span());
        match value.map(Spanned::into_inner) {
            Some(DeValue::Array(all)) if !all.is_empty() => Ok(all.into_iter().collect()),
            _ => Err(self.source.error(span, format!("expected {what}"))),
        }
    }

    fn need(
        &self,
        table: &mut DeTable<'a>,
        key: &str,
        at: Range<usize>,
    ) -> Result<Spanned<DeValue<'a>>, BadInput> {
        take(table, key).ok_or_else(|| self.source.error(at, format!("missing field `{key}`")))
    }

    fn figure(&self, value: Spanned<DeValue<'a>>) -> Result<Figure, BadInput> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Doc {
            name: String,
            title: String,
        }
        let span = value.span();
        let mut table = self.source.table(value, "a [[figure]] table")?.into_inner();
        let panels =
            self.list(take(&mut table, "panel"), span.clone(), "[[figure.panel]] tables")?;
        let panels = panels.into_iter().map(|one| self.panel(one)).collect::<Result<_, _>>()?;
        let doc: Doc = self.source.decode(Spanned::new(span, DeValue::Table(table)))?;
        Ok(Figure { name: doc.name, title: doc.title, panels })
    }

    fn panel(&self, value: Spanned<DeValue<'a>>) -> Result<Panel, BadInput> {
        let span = value.span();
        let mut table = self.source.table(value, "a [[figure.panel]] table")?.into_inner();
        let x = self.axis(self.need(&mut table, "x", span.clone())?)?;
        let y = self.axis(self.need(&mut table, "y", span.clone())?)?;
        let curves = self.list(take(&mut table, "curves"), span, "curves = [{ … }, …]")?;
        let curves = curves.into_iter().map(|one| self.curve(one, &x));
        let curves: Vec<Curve> = curves.collect::<Result<_, _>>()?;
        let mut panel = Panel { x, y, curves, marks: Vec::new() };
        if let Some(marks) = take(&mut table, "marks") {
            for one in self.list(Some(marks), 0..0, "marks = [{ … }, …]")? {
                let mark = self.mark(one, &panel)?;
                panel.marks.push(mark);
            }
        }
        match table.keys().next() {
            None => Ok(panel),
            Some(key) => {
                let why = format!("unknown key `{}`; expected x, y, curves, marks", key.get_ref());
                Err(self.source.error(key.span(), why))
            }
        }
    }

    fn axis(&self, value: Spanned<DeValue<'a>>) -> Result<Axis, BadInput> {
        let doc: AxisDoc = self.source.decode(value)?;
        let fail = |span: Range<usize>, why: String| Err(self.source.error(span, why));
        let unit = match Unit::named(doc.unit.get_ref()) {
            Ok(unit) => unit,
            Err(why) => return fail(doc.unit.span(), why),
        };
        let (from, to) = *doc.ends.get_ref();
        if !(from < to && to.is_finite() && (from > 0.0 || !doc.log)) {
            let why =
                format!("[{from}, {to}] are no ends; expected the lower first, above 0 if log");
            return fail(doc.ends.span(), why);
        }
        Ok(Axis { label: doc.label, unit, log: doc.log, ends: (from, to) })
    }

    fn curve(&self, value: Spanned<DeValue<'a>>, axis: &Axis) -> Result<Curve, BadInput> {
        let span = value.span();
        let fail = |why: String| self.source.error(span.clone(), why);
        let mut table =
            self.source.table(value, "a curve: { label = …, scenario = …, … }")?.into_inner();
        let scenario = self.scenario(self.need(&mut table, "scenario", span.clone())?)?;
        let measure = take(&mut table, "measure");
        let table = Spanned::new(span.clone(), DeValue::Table(table));
        let doc: CurveDoc = self.source.decode(table)?;
        let series = match (doc.course, measure) {
            (Some(label), None) => Series::Course { label },
            (None, Some(measure)) => {
                let places = match (doc.over, doc.x) {
                    (Some(variable), None) => values_of(&scenario, &variable),
                    (None, Some(all)) => all.into_inner(),
                    _ => return Err(fail("expected one of `over` and `x`".into())),
                };
                if places.is_empty() {
                    return Err(fail("there is no value at which to measure".into()));
                }
                let one = |place: &Value| self.measure(&measure.span(), place, axis, &doc.label);
                Series::Measures(places.iter().map(one).collect::<Result<_, _>>()?)
            }
            _ => return Err(fail("expected one of `course` and `measure`".into())),
        };
        Ok(Curve { label: doc.label, scenario, series })
    }

    /// The measure with a value in place of `"$x"`, and where on the axis that is.
    fn measure(
        &self,
        at: &Range<usize>,
        place: &Value,
        axis: &Axis,
        label: &str,
    ) -> Result<(f64, Measure), BadInput> {
        let (x, value) = match place {
            Value::Array(pair) if pair.len() == 2 => (&pair[0], &pair[1]),
            one => (one, one),
        };
        let place = match x {
            Value::Integer(n) => Some(*n as f64),
            Value::Float(x) => Some(*x),
            Value::String(text) => {
                let span = text.parse::<Span>().ok().map(|span| span.as_secs() / axis.unit.size);
                text.parse::<f64>().ok().or(span)
            }
            _ => None,
        };
        let Some(place) = place else {
            return Err(self.source.error(at.clone(), format!("{x} is no place on the axis")));
        };
        let file = format!("{}, curve `{label}` at {value}", self.source.file);
        let text = self.source.text[at.clone()].replace("\"$x\"", &value.to_string());
        let text = format!("measure = {text}");
        let source = Source { file: &file, text: &text };
        let mut root = source.parse()?.into_inner();
        let measure = take(&mut root, "measure").map(Spanned::into_inner);
        let Some(DeValue::Table(table)) = measure else {
            return Err(self.source.error(at.clone(), "expected a measure: { metric = … }"));
        };
        Ok((place, Measure::read(source, Spanned::new(10..text.len(), table))?))
    }

    fn scenario(&self, value: Spanned<DeValue<'a>>) -> Result<Arc<Scenario>, BadInput> {
        let span = value.span();
        let DeValue::String(name) = value.into_inner() else {
            return Err(self.source.error(span, "expected the name of a scenario"));
        };
        let known = self.named.get(name.as_ref()).cloned();
        known.or_else(|| builtin::scenario(&name).map(Arc::new)).ok_or_else(|| {
            let why = format!(
                "no scenario `{name}`; expected one of this file or a built-in one: {}",
                builtin::names()
            );
            self.source.error(span, why)
        })
    }

    fn mark(&self, value: Spanned<DeValue<'a>>, panel: &Panel) -> Result<Mark, BadInput> {
        let span = value.span();
        let doc: MarkDoc = self.source.decode(value)?;
        let fail = |why: String| self.source.error(span.clone(), why);
        if doc.curve.is_some_and(|curve| curve >= panel.curves.len()) {
            return Err(fail(format!("there are {} curves, counted from 0", panel.curves.len())));
        }
        let curve = doc.curve;
        let Some(id) = doc.claim else {
            let (Some(x), Some(y), Some(source)) = (doc.x, doc.y, doc.source) else {
                return Err(fail("expected `claim`, or all of `x`, `y` and `source`".into()));
            };
            return Ok(Mark { x: x.pair(), y: y.pair(), curve, source });
        };
        let claim = self.claims.claims.iter().find(|claim| claim.id == *id.get_ref());
        let claim = claim.ok_or_else(|| fail(format!("no built-in claim `{}`", id.get_ref())))?;
        let (axis, given) = match (doc.x, doc.y) {
            (Some(x), None) => (&panel.y, x.pair()),
            (None, Some(y)) => (&panel.x, y.pair()),
            _ => {
                return Err(fail(
                    "a claim is one direction; expected `x` or `y` for the other".into(),
                ));
            }
        };
        let (from, to) = match &claim.expect {
            Expect::Value { value, tol } => (value - tol, value + tol),
            Expect::Range { lo, hi } => (*lo, *hi),
            Expect::List { .. } => return Err(fail("the claim expects a list".into())),
        };
        let unit = claim.unit.unwrap_or(axis.unit);
        if unit.dimension != axis.unit.dimension {
            let why = format!("the claim is in {}, the axis in {}", unit.name, axis.unit.name);
            return Err(fail(why));
        }
        let scale = unit.size / axis.unit.size;
        let own = (from * scale, to * scale);
        let (x, y) = if doc.x.is_some() { (given, own) } else { (own, given) };
        Ok(Mark { x, y, curve, source: id.into_inner() })
    }
}

/// The values of a variable, in the order of the cells.
fn values_of(scenario: &Scenario, variable: &str) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    for cell in &scenario.cells {
        if let Some(value) = cell.variables.get(variable) {
            let value = Value::String(value.clone());
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }
    values
}

/// Takes a key out of a table.
fn take<'a>(table: &mut DeTable<'a>, name: &str) -> Option<Spanned<DeValue<'a>>> {
    let key = table.keys().find(|key| key.get_ref() == name).cloned()?;
    table.remove(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[[figure]]
name = "a"
title = "A"
[[figure.panel]]
x = { label = "sleep", unit = "ms", log = true, ends = [0.1, 6] }
y = { label = "p-state", unit = "P", ends = [0, 9] }
curves = [{ label = "c", scenario = "queue-sleep", over = "sleep", measure = { metric = "pstate", where = { kernel = "short", sleep = "$x" } } }]
marks = [{ claim = "queue.sleep_budget_ok", x = 0.125, curve = 0 }, { claim = "ramp.p5_at", y = [5, 6] }]
"#;

    #[test]
    fn places_and_marks_are_in_the_units_of_the_axes() {
        let read = Figures::from_toml("a.toml", GOOD).unwrap();
        let panel = &read.figures[0].panels[0];
        let Series::Measures(all) = &panel.curves[0].series else { panic!() };
        let places: Vec<f64> = all.iter().map(|(x, _)| *x).collect();
        assert_eq!(&places[..3], [0.0, 0.1, 0.125]);
        let marks: Vec<_> = panel.marks.iter().map(|mark| (mark.x, mark.y)).collect();
        assert_eq!(marks, [((0.125, 0.125), (8.0, 8.0)), ((396.0, 446.0), (5.0, 6.0))]);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let check = |from: &str, to: &str, line: usize, expected: &str| {
            assert!(GOOD.contains(from), "{from}");
            let error = Figures::from_toml("a.toml", &GOOD.replacen(from, to, 1)).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(expected), "{text}");
            assert!(error.line == line, "{text}");
        };
        check("unit = \"ms\"", "unit = \"mm\"", 6, "unknown unit `mm`");
        check("[0.1, 6]", "[0, 6]", 6, "above 0 if log");
        check("\"queue-sleep\"", "\"queue\"", 8, "no scenario `queue`");
        check("over = \"sleep\"", "over = \"sleeps\"", 8, "no value at which to measure");
        check("over = \"sleep\", ", "", 8, "expected one of `over` and `x`");
        check("curve = 0", "curve = 1", 9, "there are 1 curves");
        check("sleep_budget_ok", "sleep", 9, "no built-in claim `queue.sleep`");
        check("y = [5, 6]", "x = [5, 6]", 9, "the claim is in ms, the axis in P");
        // A measure is read once for each place, from a text with the place in it.
        check("\"pstate\"", "\"p-state\"", 1, "a.toml, curve `c` at");
    }
}
