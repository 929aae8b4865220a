//! Which cells, steps and command buffers a metric looks at.

use crate::data::{Dispatch, RunData, StepRun, Unit};
use crate::scenario::{Duration, canonical};
use everwarm_units::{Instant, Span};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::BTreeMap;
use toml::Value;

/// The selectors of a measure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Select {
    /// Step labels; none for every step with work in the foreground.
    pub labels: Option<Vec<String>>,
    /// Only this actor's steps.
    pub actor: Option<String>,
    /// Cells by the values of variables.
    pub cells: BTreeMap<String, Match>,
    /// First and last round.
    pub rounds: Option<Between>,
    /// First and last command buffer of a step; negative ones count from the end.
    pub dispatch: Option<Between>,
    /// Only command buffers that began in these p-states.
    pub pstate: Option<Between>,
    /// Time since the step's first buffer began: from, to.
    pub window: Option<(Span, Span)>,
    /// A share of the step's time, at its beginning or end.
    pub part: Option<Part>,
}

/// A share of the step's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// The first so much of it.
    First(f64),
    /// The last so much of it.
    Last(f64),
}

/// One number, or a closed range of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Between {
    pub first: i64,
    pub last: i64,
}

impl Between {
    pub fn contains(self, n: i64) -> bool {
        (self.first..=self.last).contains(&n)
    }

    /// The range in a list of `len`, negative ends counted from its end.
    fn within(self, len: usize) -> std::ops::Range<usize> {
        let at = |n: i64| if n < 0 { n + len as i64 } else { n };
        let first = at(self.first).clamp(0, len as i64) as usize;
        let last = (at(self.last) + 1).clamp(0, len as i64) as usize;
        first..last.max(first)
    }
}

impl<'de> Deserialize<'de> for Between {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(d)?;
        let pair = match &value {
            Value::Integer(n) => Some((*n, *n)),
            Value::Array(pair) => match pair.as_slice() {
                [Value::Integer(first), Value::Integer(last)] => Some((*first, *last)),
                _ => None,
            },
            _ => None,
        };
        let wrong = |what: &str| D::Error::custom(format!("{value} {what}"));
        match pair {
            None => Err(wrong("is neither a whole number nor [first, last]")),
            Some((first, last)) if first > last && (first < 0) == (last < 0) => {
                Err(wrong("is no range; expected [first, last] with first <= last"))
            }
            Some((first, last)) => Ok(Between { first, last }),
        }
    }
}

/// What a variable must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Match {
    /// One of these values.
    OneOf(Vec<String>),
    /// A duration or number between two, both included.
    Range { min: f64, max: f64 },
}

impl std::fmt::Display for Match {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Match::OneOf(all) => f.write_str(&all.join(" or ")),
            Match::Range { min, max } => write!(f, "{min} to {max} (durations in ns)"),
        }
    }
}

impl Match {
    fn holds(&self, value: &str) -> bool {
        match self {
            Match::OneOf(all) => all.iter().any(|one| one == value),
            Match::Range { min, max } => number(value).is_some_and(|n| *min <= n && n <= *max),
        }
    }
}

/// A number or a duration (in ns) as one number.
fn number(text: &str) -> Option<f64> {
    let span = text.parse::<Span>().ok().map(|span| span.as_nanos() as f64);
    text.parse::<f64>().ok().or(span)
}

impl<'de> Deserialize<'de> for Match {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(d)?;
        let table = match &value {
            Value::Table(table) if table.keys().all(|key| key == "min" || key == "max") => table,
            Value::Array(all) => return Ok(Match::OneOf(all.iter().map(canonical).collect())),
            one => return Ok(Match::OneOf(vec![canonical(one)])),
        };
        let end = |key: &str, otherwise: f64| match table.get(key) {
            None => Ok(otherwise),
            Some(value) => number(&canonical(value)).ok_or_else(|| {
                D::Error::custom(format!("{value} is neither a number nor a duration"))
            }),
        };
        let (min, max) = (end("min", f64::NEG_INFINITY)?, end("max", f64::INFINITY)?);
        match min <= max {
            true => Ok(Match::Range { min, max }),
            false => Err(D::Error::custom(format!("{value} is no range; expected min <= max"))),
        }
    }
}

/// A window as it is written: `["100 ms", "240 ms"]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window(pub Span, pub Span);

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let [Duration(from), Duration(to)] = <[Duration; 2]>::deserialize(d)?;
        match from < to {
            true => Ok(Window(from, to)),
            false => Err(D::Error::custom(format!(
                "[{from}, {to}] is no range of time; expected [from, to] with from < to"
            ))),
        }
    }
}

/// A share above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(d)?;
        match share > 0.0 && share <= 1.0 {
            true => Ok(Share(share)),
            false => Err(D::Error::custom(format!(
                "{share} is no share; expected above 0 and at most 1"
            ))),
        }
    }
}

impl Select {
    /// The indices of the cells it names, in the order of the sweep.
    ///
    /// # Errors
    /// Says which variables or values exist if none fits.
    pub fn cells(&self, run: &RunData) -> Result<Vec<usize>, String> {
        for name in self.cells.keys() {
            let mut known = run.cells.iter().flat_map(BTreeMap::keys).collect::<Vec<_>>();
            known.sort();
            known.dedup();
            if !known.contains(&name) {
                return Err(format!(
                    "`where` names `{name}`, which is no sweep variable of `{}`; {}",
                    run.scenario,
                    match known.is_empty() {
                        true => "it has none".to_owned(),
                        false => format!("there are {known:?}"),
                    }
                ));
            }
        }
        let fits = |cell: &BTreeMap<String, String>| {
            self.cells.iter().all(|(name, wanted)| wanted.holds(&cell[name]))
        };
        let found: Vec<usize> = (0..run.cells.len()).filter(|&i| fits(&run.cells[i])).collect();
        match found.is_empty() {
            false => Ok(found),
            true => Err(self.no_cell(run)),
        }
    }

    /// Which variable excludes all cells, and what values it has.
    fn no_cell(&self, run: &RunData) -> String {
        for (name, wanted) in &self.cells {
            if !run.cells.iter().any(|cell| wanted.holds(&cell[name])) {
                let mut values: Vec<&str> = Vec::new();
                for cell in &run.cells {
                    if !values.contains(&cell[name].as_str()) {
                        values.push(&cell[name]);
                    }
                }
                let (scenario, values) = (&run.scenario, values.join(", "));
                return format!(
                    "no cell of `{scenario}` has a `{name}` of {wanted}; its values are {values}"
                );
            }
        }
        format!("no cell of `{}` fits all of `where`", run.scenario)
    }

    /// The rounds of one cell.
    pub fn units<'r>(&'r self, run: &'r RunData, cell: usize) -> impl Iterator<Item = &'r Unit> {
        let round =
            |unit: &&Unit| self.rounds.is_none_or(|range| range.contains(i64::from(unit.round)));
        run.units.iter().filter(move |unit| unit.cell == cell).filter(round)
    }

    /// The steps of one round. Without a label: those with work in the foreground, or, of a named
    /// actor, those with work.
    pub fn steps<'r>(&'r self, unit: &'r Unit) -> impl Iterator<Item = &'r StepRun> {
        unit.steps.iter().filter(|step| {
            let actor = self.actor.as_ref().is_none_or(|actor| *actor == step.actor);
            actor
                && match &self.labels {
                    Some(labels) => labels.contains(&step.label),
                    None => {
                        !step.dispatches.is_empty() && (self.actor.is_some() || !step.background)
                    }
                }
        })
    }

    /// True if it means whole rounds rather than single steps.
    pub fn whole_rounds(&self) -> bool {
        self.labels.is_none() && self.actor.is_none()
    }

    /// The command buffers of a step that it means: indices in commit order.
    pub fn dispatches(&self, all: &[Dispatch]) -> Vec<usize> {
        let range = self.dispatch.map_or(0..all.len(), |range| range.within(all.len()));
        let Some((begin, end)) = bounds(all) else { return Vec::new() };
        let (from, to) = self.narrow(begin, end);
        let fits = |d: &Dispatch| {
            let state = self
                .pstate
                .is_none_or(|range| d.pstate.is_some_and(|p| range.contains(i64::from(p.0))));
            state && from <= d.gpu_start && (d.gpu_start < to || self.unbounded())
        };
        range.filter(|&i| fits(&all[i])).collect()
    }

    /// True if time does not limit what it means.
    fn unbounded(&self) -> bool {
        self.window.is_none() && !matches!(self.part, Some(Part::First(_)))
    }

    /// The part of `begin..end` that it means.
    pub fn narrow(&self, begin: Instant, end: Instant) -> (Instant, Instant) {
        let (mut from, mut to) = (begin, end);
        if let Some((first, last)) = self.window {
            (from, to) = (begin + first, (begin + last).min(end + Span::ns(1)));
        }
        let share = |share: f64| Span::from_nanos_f64(end.since(begin).as_nanos() as f64 * share);
        match self.part {
            Some(Part::First(part)) => to = to.min(begin + share(part)),
            Some(Part::Last(part)) => from = from.max(end - share(part)),
            None => {}
        }
        (from, to)
    }
}

/// First start and last end on the GPU.
pub fn bounds(all: &[Dispatch]) -> Option<(Instant, Instant)> {
    let begin = all.iter().map(|d| d.gpu_start).min()?;
    let end = all.iter().map(|d| d.gpu_end).max()?;
    Some((begin, end))
}
