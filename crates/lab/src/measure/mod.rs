//! From what a run recorded to a number: selectors, metrics, aggregators, and arithmetic on them.
//!
//! docs/claims.md is the reference. A measure that can't be taken from a run gives a reason, never
//! a 0.

mod aggregate;
mod counters;
mod doc;
mod metric;
mod select;
mod unit;

pub use doc::Order;
pub use unit::{Dimension, Unit};

use crate::data::RunData;
use crate::text::{BadInput, Source};
use aggregate::{Aggregate, Sample};
use doc::{Cells, MeasureDoc, MetricName};
use everwarm_units::Span;
use metric::{Metric, Reason, View};
use select::Select;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What to read off a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    node: Node,
    cells: Option<Cells>,
    order: Option<Order>,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Metric(Box<Leaf>),
    Ratio(Box<[Measure; 2]>),
    Difference(Box<[Measure; 2]>),
    /// Idle, busy, treated: the share of idle less busy that the treatment takes away.
    Removed(Box<[Measure; 3]>),
    List(Vec<Measure>),
}

#[derive(Clone, Debug, PartialEq)]
struct Leaf {
    name: MetricName,
    metric: Metric,
    select: Select,
    bucket: Option<Span>,
    within: Option<Aggregate>,
    aggregate: Aggregate,
}

/// The values of a measure, in the SI unit of their dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// One, or one for each cell.
    pub values: Vec<f64>,
    /// What they are.
    pub dimension: Dimension,
    /// An order that was asked for and is not there.
    pub out_of_order: Option<Order>,
}

const COMBINATORS: [&str; 4] = ["ratio", "difference", "removed", "list"];

/// Keys that belong to the combination and not to its parts.
const OWN: [&str; 2] = ["cells", "order"];

impl Measure {
    /// Reads a measure's table.
    pub(crate) fn read<'a>(
        source: Source<'a>,
        table: Spanned<DeTable<'a>>,
    ) -> Result<Measure, BadInput> {
        let span = table.span();
        let mut table = table.into_inner();
        let keys: Vec<_> = table.keys().cloned().collect();
        let there = |name: &str| keys.iter().find(|key| key.get_ref() == name);
        let combinators: Vec<_> = COMBINATORS.iter().filter_map(|name| there(name)).collect();
        let combinator = match combinators.as_slice() {
            [] => None,
            [one] => Some((*one, table.remove(*one).expect("the key is there"))),
            [_, second, ..] => {
                return Err(source.error(second.span(), "only one combination in a measure"));
            }
        };
        let Some((name, parts)) = combinator else {
            let whole = Spanned::new(span.clone(), DeValue::Table(table));
            return Self::leaf(source, source.decode(whole)?, span);
        };
        let mut own = DeTable::new();
        for key in OWN.iter().filter_map(|name| there(name)) {
            own.insert(key.clone(), table.remove(key).expect("the key is there"));
        }
        let own: MeasureDoc = source.decode(Spanned::new(span, DeValue::Table(own)))?;
        let node = Self::combine(source, name.get_ref(), parts, &table)?;
        Ok(Measure { node, cells: own.cells, order: own.order })
    }

    /// Reads the measure that a document holds under the key `measure`.
    pub(crate) fn of_document<'a>(
        source: Source<'a>,
        document: Spanned<DeTable<'a>>,
    ) -> Result<Measure, BadInput> {
        let span = document.span();
        let found = document.into_inner().into_iter().find(|(key, _)| key.get_ref() == "measure");
        match found.map(|(_, value)| (value.span(), value.into_inner())) {
            Some((span, DeValue::Table(table))) => Self::read(source, Spanned::new(span, table)),
            _ => Err(source.error(span, "expected measure = { metric = …, … }")),
        }
    }

    fn leaf(
        source: Source<'_>,
        doc: MeasureDoc,
        span: std::ops::Range<usize>,
    ) -> Result<Measure, BadInput> {
        let fail = |why: String| source.error(span.clone(), why);
        let metric = doc.metric().map_err(fail)?;
        let name = doc.metric.expect("there is one, as it was just read");
        let (cells, order) = (doc.cells, doc.order);
        let (within, bucket) = (doc.within, doc.bucket.map(|bucket| bucket.0));
        if bucket.is_some_and(Span::is_zero) {
            return Err(fail("a bucket needs a length above 0".into()));
        }
        let aggregate = doc.aggregate.unwrap_or(metric.default_aggregate());
        let select = doc.select().map_err(fail)?;
        let leaf = Leaf { name, metric, select, bucket, within, aggregate };
        Ok(Measure { node: Node::Metric(Box::new(leaf)), cells, order })
    }

    fn combine<'a>(
        source: Source<'a>,
        name: &str,
        parts: Spanned<DeValue<'a>>,
        inherited: &DeTable<'a>,
    ) -> Result<Node, BadInput> {
        let span = parts.span();
        let fail = |why: &str| source.error(span.clone(), why);
        let read = |part: Spanned<DeValue<'a>>| {
            let at = part.span();
            match part.into_inner() {
                DeValue::Table(own) => {
                    Self::read(source, Spanned::new(at, inherit(inherited, own)))
                }
                _ => Err(source.error(at, "expected a measure: { metric = …, … }")),
            }
        };
        if name == "removed" {
            let DeValue::Table(mut table) = parts.into_inner() else {
                return Err(fail("expected removed = { idle = {…}, busy = {…}, with = {…} }"));
            };
            let mut take = |name: &str| {
                let key = table.keys().find(|key| key.get_ref() == name).cloned();
                let part = key.and_then(|key| table.remove(&key));
                part.ok_or_else(|| fail(&format!("`removed` needs `{name}`"))).and_then(read)
            };
            let three = [take("idle")?, take("busy")?, take("with")?];
            return match table.keys().next() {
                None => Ok(Node::Removed(Box::new(three))),
                Some(key) => Err(source.error(
                    key.span(),
                    format!("unknown key `{}`; expected idle, busy, with", key.get_ref()),
                )),
            };
        }
        let DeValue::Array(all) = parts.into_inner() else {
            return Err(fail(&format!("expected {name} = [{{…}}, {{…}}]")));
        };
        let parts = all.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        if name == "list" && !parts.is_empty() {
            return Ok(Node::List(parts));
        }
        let n = parts.len();
        if name == "list" {
            return Err(fail("an empty `list`; expected at least one measure"));
        }
        let two: [Measure; 2] = parts
            .try_into()
            .map_err(|_| fail(&format!("`{name}` has {n} measures; expected two")))?;
        Ok(if name == "ratio" {
            Node::Ratio(Box::new(two))
        } else {
            Node::Difference(Box::new(two))
        })
    }

    /// Takes the measure.
    ///
    /// # Errors
    /// Says why the run can't answer.
    pub fn take(&self, run: &RunData) -> Result<Measured, Reason> {
        let (values, dimension) = self.node.values(run)?;
        let sorted = |fits: fn(f64, f64) -> bool| values.windows(2).all(|v| fits(v[0], v[1]));
        let out_of_order = self.order.filter(|order| match order {
            Order::NonIncreasing => !sorted(|a, b| a >= b),
            Order::NonDecreasing => !sorted(|a, b| a <= b),
        });
        let Some(Cells::Of(aggregate)) = self.cells else {
            return Ok(Measured { values, dimension, out_of_order });
        };
        let samples: Vec<_> =
            values.into_iter().map(|value| Sample { value, weight: 1.0 }).collect();
        let value = aggregate.of(&samples).ok_or("no cell has a value")?;
        let dimension = if aggregate.counts() { Dimension::One } else { dimension };
        Ok(Measured { values: vec![value], dimension, out_of_order })
    }
}

/// The keys of `own`, and those of `outer` that it does not have; `where` tables are joined.
fn inherit<'a>(outer: &DeTable<'a>, own: DeTable<'a>) -> DeTable<'a> {
    let given: Vec<String> = own.keys().map(|key| key.get_ref().to_string()).collect();
    let mut joined = outer.clone();
    for (key, value) in own {
        let merged = match (joined.remove(&key), key.get_ref().as_ref()) {
            (Some(before), "where") => match (before.into_inner(), value.get_ref()) {
                (DeValue::Table(mut before), DeValue::Table(table)) => {
                    before.extend(table.clone());
                    Spanned::new(value.span(), DeValue::Table(before))
                }
                _ => value,
            },
            _ => value,
        };
        joined.insert(key, merged);
    }
    drop_foreign_arguments(&mut joined, &given);
    joined
}

/// An argument that a part inherits and has no use for is meant for the other parts.
fn drop_foreign_arguments(part: &mut DeTable<'_>, own: &[String]) {
    let metric = part.iter().find(|(key, _)| key.get_ref() == "metric").map(|(_, m)| m.get_ref());
    let Some(DeValue::String(metric)) = metric else { return };
    let metric = metric.to_string();
    for (argument, metrics) in doc::ARGUMENTS {
        let inherited = !own.iter().any(|key| key == argument);
        if inherited && !metrics.contains(&metric.as_str()) {
            let key = part.keys().find(|key| *key.get_ref() == *argument).cloned();
            key.and_then(|key| part.remove(&key));
        }
    }
}

impl Node {
    fn values(&self, run: &RunData) -> Result<(Vec<f64>, Dimension), Reason> {
        match self {
            Node::Metric(leaf) => leaf.values(run),
            Node::List(parts) => {
                let mut values = Vec::new();
                let mut dimension = None;
                for part in parts {
                    let measured = part.take(run)?;
                    if dimension.is_some_and(|d| d != measured.dimension) {
                        return Err("the parts of a list have different dimensions".into());
                    }
                    dimension = Some(measured.dimension);
                    values.extend(measured.values);
                }
                Ok((values, dimension.expect("a list has a part")))
            }
            Node::Difference(two) => {
                let [a, b] = [two[0].take(run)?, two[1].take(run)?];
                same(&a, &b)?;
                Ok((pairs(&[a.values, b.values], |v| v[0] - v[1])?, a.dimension))
            }
            Node::Ratio(two) => {
                let [a, b] = [two[0].take(run)?, two[1].take(run)?];
                same(&a, &b)?;
                Ok((pairs(&[a.values, b.values], |v| v[0] / v[1])?, Dimension::One))
            }
            Node::Removed(three) => {
                let [idle, busy, with] =
                    [three[0].take(run)?, three[1].take(run)?, three[2].take(run)?];
                same(&idle, &busy)?;
                same(&idle, &with)?;
                let share = |v: &[f64]| (v[0] - v[2]) / (v[0] - v[1]);
                let values = pairs(&[idle.values, busy.values, with.values], share)?;
                Ok((values, Dimension::One))
            }
        }
    }
}

fn same(a: &Measured, b: &Measured) -> Result<(), Reason> {
    match a.dimension == b.dimension {
        true => Ok(()),
        false => Err(format!("{:?} can't be combined with {:?}", a.dimension, b.dimension)),
    }
}

/// `combine` on the values cell by cell; a single value goes with each of a list.
fn pairs(lists: &[Vec<f64>], combine: impl Fn(&[f64]) -> f64) -> Result<Vec<f64>, Reason> {
    let len = lists.iter().map(Vec::len).max().unwrap_or(0);
    if let Some(odd) = lists.iter().find(|list| list.len() != len && list.len() != 1) {
        return Err(format!("{len} cells can't be combined with {}", odd.len()));
    }
    let at = |n: usize| lists.iter().map(|l| l[n.min(l.len() - 1)]).collect::<Vec<_>>();
    let values: Vec<f64> = (0..len).map(|n| combine(&at(n))).collect();
    match values.iter().all(|v| v.is_finite()) {
        true => Ok(values),
        false => Err("a division by 0".into()),
    }
}

impl Leaf {
    fn values(&self, run: &RunData) -> Result<(Vec<f64>, Dimension), Reason> {
        let cells = self.select.cells(run)?;
        let values = cells.iter().map(|&cell| self.cell(run, cell)).collect::<Result<_, _>>()?;
        let counts = self.aggregate.counts() || self.within.is_some_and(Aggregate::counts);
        let dimension = match counts {
            true => Dimension::One,
            false => self.metric.dimension(self.bytes(run, &cells)),
        };
        Ok((values, dimension))
    }

    /// True if what it selects are bandwidth meters.
    fn bytes(&self, run: &RunData, cells: &[usize]) -> bool {
        let units = run.units.iter().filter(|unit| cells.contains(&unit.cell));
        let mut all = units.flat_map(|unit| self.select.steps(unit)).flat_map(|s| &s.dispatches);
        all.next().is_some_and(|d| d.kernel.bytes().is_some())
    }

    fn cell(&self, run: &RunData, cell: usize) -> Result<f64, Reason> {
        let mut pool = Vec::new();
        let mut seen = 0;
        for unit in self.select.units(run, cell) {
            for step in self.steps(unit) {
                seen += 1;
                let view = View { run, unit, step, select: &self.select };
                for samples in view.samples(&self.metric, self.bucket)? {
                    self.pool(samples, &mut pool);
                }
            }
        }
        let nothing = || self.nothing(run, cell, seen);
        match self.aggregate {
            // A number of things may be 0, but not of things that were not looked at.
            Aggregate::Count if seen > 0 => Ok(pool.len() as f64),
            _ if pool.is_empty() => Err(nothing()),
            aggregate => aggregate.of(&pool).ok_or_else(nothing),
        }
    }

    fn pool(&self, samples: Vec<Sample>, pool: &mut Vec<Sample>) {
        // A bucket is one value: its mean, unless something else is wanted.
        let within = self.within.or(self.bucket.map(|_| Aggregate::Mean));
        match within {
            None => pool.extend(samples),
            Some(within) => {
                let weight = samples.iter().map(|s| s.weight).sum();
                pool.extend(within.of(&samples).map(|value| Sample { value, weight }));
            }
        }
    }

    fn steps<'r>(&'r self, unit: &'r crate::data::Unit) -> Vec<Option<&'r crate::data::StepRun>> {
        match self.metric.of_any_step() && self.select.whole_rounds() {
            true => vec![None],
            false => self.select.steps(unit).map(Some).collect(),
        }
    }

    fn nothing(&self, run: &RunData, cell: usize, steps: usize) -> Reason {
        let mut labels: Vec<&str> = run
            .units
            .iter()
            .filter(|unit| unit.cell == cell)
            .flat_map(|unit| unit.steps.iter().map(|step| step.label.as_str()))
            .collect();
        labels.sort_unstable();
        labels.dedup();
        match steps {
            0 => format!("no step fits the selectors; the labels are {}", labels.join(", ")),
            _ => format!("`{}` has no value in the {steps} steps selected", self.name),
        }
    }
}
