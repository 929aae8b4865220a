//! From many values to one.

use everwarm_stats as stats;
use serde::de::{Deserialize, Deserializer, Error};

/// A value and how long it lasted (its weight where an aggregator is weighted by time).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// In its dimension's SI unit.
    pub value: f64,
    /// Seconds.
    pub weight: f64,
}

/// How many values become one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aggregate {
    /// The middle one, or the mean of the middle two.
    Median,
    /// The arithmetic mean.
    Mean,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Their sum.
    Sum,
    /// How many there are.
    Count,
    /// How many different ones there are.
    CountDistinct,
    /// The first, in the order of time.
    First,
    /// The last.
    Last,
    /// Largest less smallest.
    Spread,
    /// Largest less smallest, as a share of the mean.
    RelativeSpread,
    /// The largest by magnitude, with its sign.
    MaxAbs,
    /// The value that held for half of the time or less.
    TimeWeightedMedian,
    /// The mean over time.
    TimeWeightedMean,
    /// The value that this share lies below.
    Quantile(f64),
}

const NAMED: &[(&str, Aggregate)] = &[
    ("median", Aggregate::Median),
    ("mean", Aggregate::Mean),
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("sum", Aggregate::Sum),
    ("count", Aggregate::Count),
    ("count_distinct", Aggregate::CountDistinct),
    ("first", Aggregate::First),
    ("last", Aggregate::Last),
    ("spread", Aggregate::Spread),
    ("relative_spread", Aggregate::RelativeSpread),
    ("max_abs", Aggregate::MaxAbs),
    ("time_weighted_median", Aggregate::TimeWeightedMedian),
    ("time_weighted_mean", Aggregate::TimeWeightedMean),
];

impl Aggregate {
    /// True if the result counts things instead of being one of them.
    pub fn counts(self) -> bool {
        matches!(self, Aggregate::Count | Aggregate::CountDistinct | Aggregate::RelativeSpread)
    }

    /// One value of many; `None` of nothing.
    pub fn of(self, samples: &[Sample]) -> Option<f64> {
        let values: Vec<f64> = samples.iter().map(|s| s.value).collect();
        let weighted = || samples.iter().map(|s| (s.value, s.weight)).collect::<Vec<_>>();
        let min = || values.iter().copied().reduce(f64::min);
        let max = || values.iter().copied().reduce(f64::max);
        match self {
            Aggregate::Median => stats::median(&values),
            Aggregate::Mean => stats::mean(&values),
            Aggregate::Min => min(),
            Aggregate::Max => max(),
            Aggregate::Sum => (!values.is_empty()).then(|| values.iter().sum()),
            Aggregate::Count => Some(values.len() as f64),
            Aggregate::CountDistinct => Some(distinct(values) as f64),
            Aggregate::First => values.first().copied(),
            Aggregate::Last => values.last().copied(),
            Aggregate::Spread => Some(max()? - min()?),
            Aggregate::RelativeSpread => Some((max()? - min()?) / stats::mean(&values)?),
            Aggregate::MaxAbs => values.into_iter().max_by(|a, b| a.abs().total_cmp(&b.abs())),
            Aggregate::TimeWeightedMedian => stats::weighted_median(&weighted()),
            Aggregate::TimeWeightedMean => {
                let total: f64 = samples.iter().map(|s| s.weight).sum();
                let sum: f64 = samples.iter().map(|s| s.value * s.weight).sum();
                (total > 0.0).then(|| sum / total)
            }
            Aggregate::Quantile(q) => stats::quantile(&values, q),
        }
    }
}

fn distinct(mut values: Vec<f64>) -> usize {
    values.sort_by(f64::total_cmp);
    values.dedup();
    values.len()
}

impl<'de> Deserialize<'de> for Aggregate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let named = NAMED.iter().find(|(name, _)| *name == text).map(|(_, a)| *a);
        // p90 and the like.
        let percent = text.strip_prefix('p').and_then(|n| n.parse::<f64>().ok());
        let quantile = percent.filter(|n| (0.0..=100.0).contains(n));
        named.or(quantile.map(|n| Aggregate::Quantile(n / 100.0))).ok_or_else(|| {
            let names: Vec<_> = NAMED.iter().map(|(name, _)| *name).collect();
            D::Error::custom(format!(
                "unknown aggregator `{text}`; expected one of {}, or a quantile such as p90",
                names.join(", ")
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_aggregator_gives_its_value() {
        let samples = [(3.0, 1.0), (1.0, 1.0), (1.0, 4.0), (7.0, 1.0)]
            .map(|(value, weight)| Sample { value, weight });
        let check = |aggregate: Aggregate, expected: f64| {
            assert_eq!(aggregate.of(&samples), Some(expected), "{aggregate:?}");
        };
        check(Aggregate::Median, 2.0);
        check(Aggregate::Mean, 3.0);
        check(Aggregate::Min, 1.0);
        check(Aggregate::Max, 7.0);
        check(Aggregate::CountDistinct, 3.0);
        check(Aggregate::First, 3.0);
        check(Aggregate::Last, 7.0);
        check(Aggregate::Spread, 6.0);
        check(Aggregate::RelativeSpread, 2.0);
        check(Aggregate::TimeWeightedMedian, 1.0);
        check(Aggregate::TimeWeightedMean, 15.0 / 7.0);
        check(Aggregate::Quantile(1.0), 7.0);
        assert_eq!(Aggregate::Median.of(&[]), None);
    }
}
