//! A measure as it is written. `mod.rs` in this folder turns it into a tree.

use super::aggregate::Aggregate;
use super::metric::{Metric, Rail};
use super::select::{Between, Match, Part, Select, Share, Window};
use crate::scenario::{Count, Duration};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::BTreeMap;
use toml::Value;

/// Arguments, and the metrics that take them.
pub const ARGUMENTS: [(&str, &[&str]); 4] = [
    ("reach", &["time_until"]),
    ("sustained", &["time_until"]),
    ("at", &["plateau", "residency"]),
    ("rail", &["power", "energy"]),
];

/// A measure without its combinators, which are taken out before.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasureDoc {
    pub metric: Option<MetricName>,
    // Selectors.
    label: Option<Labels>,
    actor: Option<String>,
    #[serde(default, rename = "where")]
    cells_where: BTreeMap<String, Match>,
    rounds: Option<Between>,
    dispatch: Option<Between>,
    pstate: Option<Between>,
    window: Option<Window>,
    first: Option<Share>,
    last: Option<Share>,
    // Arguments of metrics.
    reach: Option<Count>,
    sustained: Option<bool>,
    at: Option<At>,
    rail: Option<Rail>,
    // Aggregation.
    pub bucket: Option<Duration>,
    pub within: Option<Aggregate>,
    pub aggregate: Option<Aggregate>,
    pub cells: Option<Cells>,
    pub order: Option<Order>,
    // Named so that errors list them.
    #[serde(rename = "ratio")]
    _ratio: Option<Value>,
    #[serde(rename = "difference")]
    _difference: Option<Value>,
    #[serde(rename = "removed")]
    _removed: Option<Value>,
    #[serde(rename = "list")]
    _list: Option<Value>,
}

/// How the values of several cells are given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cells {
    /// As they are.
    List,
    /// As one.
    Of(Aggregate),
}

impl<'de> Deserialize<'de> for Cells {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        if text == "list" {
            return Ok(Cells::List);
        }
        let name = serde::de::value::StringDeserializer::<D::Error>::new(text);
        Aggregate::deserialize(name)
            .map(Cells::Of)
            .map_err(|error| D::Error::custom(format!("{error}, or list")))
    }
}

/// An order that the values of several cells must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// No value above the one before.
    NonIncreasing,
    /// No value below the one before.
    NonDecreasing,
}

/// One label or several.
struct Labels(Vec<String>);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let strings = match Value::deserialize(d)? {
            Value::String(one) => Some(vec![one]),
            Value::Array(all) => {
                all.iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
            }
            _ => None,
        };
        strings.map(Labels).ok_or_else(|| D::Error::custom("a label is a text, or a list of texts"))
    }
}

/// P-states as a metric's argument: a number, `[lowest, highest]` or `"off"`.
#[derive(Clone, Copy)]
struct At(Between);

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match Value::deserialize(d)? {
            Value::String(text) if text == "off" => Ok(At(Between { first: 0, last: 0 })),
            Value::String(text) => Err(D::Error::custom(format!(
                "`{text}` is no p-state; expected a number, [lowest, highest] or \"off\""
            ))),
            other => Between::deserialize(other).map(At).map_err(D::Error::custom),
        }
    }
}

/// The name of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetricName {
    Rate,
    Pstate,
    Clock,
    CommitToStart,
    Execution,
    Gap,
    RoundTrip,
    ObserveDelay,
    Late,
    TimeUntil,
    Plateau,
    Loss,
    Span,
    GpuTime,
    Duty,
    Throughput,
    Count,
    Wall,
    Ttft,
    Interval,
    Residency,
    Power,
    Energy,
    Utilisation,
}

impl std::fmt::Display for MetricName {
    /// As it is written in a measure.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, c) in format!("{self:?}").char_indices() {
            match c.is_uppercase() && n > 0 {
                true => write!(f, "_{}", c.to_ascii_lowercase())?,
                false => write!(f, "{}", c.to_ascii_lowercase())?,
            }
        }
        Ok(())
    }
}

impl MeasureDoc {
    /// The metric with its arguments.
    pub fn metric(&self) -> Result<Metric, String> {
        let name = self.metric.ok_or("a measure needs a `metric`")?;
        self.arguments_fit(&name.to_string())?;
        let at = || {
            self.at.map(|at| at.0).ok_or_else(|| {
                format!("`{name}` needs `at`: a p-state, [lowest, highest] or \"off\"")
            })
        };
        let metric = match name {
            MetricName::Rate => Metric::Rate,
            MetricName::Pstate => Metric::PState,
            MetricName::Clock => Metric::Clock,
            MetricName::CommitToStart => Metric::CommitToStart,
            MetricName::Execution => Metric::Execution,
            MetricName::Gap => Metric::Gap,
            MetricName::RoundTrip => Metric::RoundTrip,
            MetricName::ObserveDelay => Metric::ObserveDelay,
            MetricName::Late => Metric::Late,
            MetricName::TimeUntil => {
                let reach = self.reach.ok_or("`time_until` needs `reach`: a p-state")?;
                let sustained = self.sustained.unwrap_or(false);
                Metric::TimeUntil { reach: i64::from(reach.0), sustained }
            }
            MetricName::Plateau => Metric::Plateau { at: at()? },
            MetricName::Loss => Metric::Loss,
            MetricName::Span => Metric::Span,
            MetricName::GpuTime => Metric::GpuTime,
            MetricName::Duty => Metric::Duty,
            MetricName::Throughput => Metric::Throughput,
            MetricName::Count => Metric::Count,
            MetricName::Wall => Metric::Wall,
            MetricName::Ttft => Metric::Ttft,
            MetricName::Interval => Metric::Interval,
            MetricName::Residency => Metric::Residency { at: at()? },
            MetricName::Power => Metric::Power { rail: self.rail()? },
            MetricName::Energy => Metric::Energy { rail: self.rail()? },
            MetricName::Utilisation => Metric::Utilisation,
        };
        self.selectors_fit(&metric, name)?;
        Ok(metric)
    }

    /// An argument that the metric does not take would be a silent mistake.
    fn arguments_fit(&self, name: &str) -> Result<(), String> {
        let given = [
            self.reach.is_some(),
            self.sustained.is_some(),
            self.at.is_some(),
            self.rail.is_some(),
        ];
        for ((argument, metrics), given) in ARGUMENTS.iter().zip(given) {
            if given && !metrics.contains(&name) {
                let metrics = metrics.join(", ");
                return Err(format!(
                    "`{argument}` has no meaning for `{name}`, only for {metrics}"
                ));
            }
        }
        Ok(())
    }

    /// So would a selector.
    fn selectors_fit(&self, metric: &Metric, name: MetricName) -> Result<(), String> {
        let of_buffers = [("dispatch", self.dispatch.is_some()), ("pstate", self.pstate.is_some())];
        let of_time = [
            ("window", self.window.is_some()),
            ("first", self.first.is_some()),
            ("last", self.last.is_some()),
        ];
        let timeless = matches!(metric, Metric::Wall | Metric::Ttft);
        let bufferless = timeless || metric.of_counters() || *metric == Metric::Interval;
        let idle = of_buffers.into_iter().filter(|_| bufferless);
        let mut idle = idle.chain(of_time.into_iter().filter(|_| timeless));
        match idle.find(|(_, given)| *given) {
            None => Ok(()),
            Some((selector, _)) => Err(format!("`{selector}` selects nothing of `{name}`")),
        }
    }

    fn rail(&self) -> Result<Rail, String> {
        self.rail.ok_or_else(|| "power and energy need `rail`: gpu or cpu".into())
    }

    /// The selectors.
    pub fn select(self) -> Result<Select, String> {
        let part = match (self.first, self.last) {
            (Some(_), Some(_)) => return Err("only one of `first` and `last` is possible".into()),
            (Some(share), None) => Some(Part::First(share.0)),
            (None, Some(share)) => Some(Part::Last(share.0)),
            (None, None) => None,
        };
        Ok(Select {
            labels: self.label.map(|labels| labels.0),
            actor: self.actor,
            cells: self.cells_where,
            rounds: self.rounds,
            dispatch: self.dispatch,
            pstate: self.pstate,
            window: self.window.map(|window| (window.0, window.1)),
            part,
        })
    }
}
