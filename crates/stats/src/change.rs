//! Plateaus and change points of a series.
//!
//! A rate series under a stepping clock is flat between steps. [`change_points`] finds the steps by
//! penalised least squares: of all ways to cut the series it takes the one that minimises
//! sum over segments of (weighted squared deviations from the segment's mean + penalty). It is solved
//! exactly by PELT. Source: Killick, Fearnhead and Eckley, "Optimal Detection of Changepoints
//! With a Linear Computational Cost" (2012).
//!
//! [`runs`] is for values that are exactly equal within a plateau (p-states): run lengths.

use crate::location::{mad, median, weighted_median};

/// A stretch of a series at one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plateau {
    /// Index of its first value.
    pub start: usize,
    /// Index after its last value.
    pub end: usize,
    /// The weighted median of its values.
    pub level: f64,
}

/// How to cut a series into plateaus.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segmentation {
    /// Standard deviation of the noise, in the series' own unit; `None`: estimated by [`noise`].
    ///
    /// Give it where the series has little noise or quantised noise: an estimate near 0 makes
    /// every wiggle a step.
    pub noise: Option<f64>,
    /// Cost of one more step, in units of noise^2 ln n. 2 is the usual (Schwarz) penalty; more
    /// asks for larger steps.
    pub strictness: f64,
    /// The shortest plateau, in values.
    pub length_min: usize,
}

impl Default for Segmentation {
    fn default() -> Self {
        Segmentation { noise: None, strictness: 3.0, length_min: 2 }
    }
}

impl Segmentation {
    /// The plateaus of `series`, in order and without holes. Shape: (value, weight) each.
    ///
    /// # Panics
    /// If a value is NaN, a weight is not positive and finite, or `length_min` is 0.
    pub fn plateaus(&self, series: &[(f64, f64)]) -> Vec<Plateau> {
        let values: Vec<f64> = series.iter().map(|(x, _)| *x).collect();
        if series.is_empty() {
            return Vec::new();
        }
        let sigma = self.noise.unwrap_or_else(|| noise(&values));
        // A series without any noise still has rounding; a step must exceed a millionth of it.
        let scale = median(&values.iter().map(|x| x.abs()).collect::<Vec<_>>()).unwrap_or(0.0);
        let sigma = sigma.max(1e-6 * scale).max(f64::MIN_POSITIVE.sqrt());
        let mean_weight = series.iter().map(|(_, w)| w).sum::<f64>() / series.len() as f64;
        let n = series.len() as f64;
        let penalty = self.strictness * sigma * sigma * n.ln().max(1.0) * mean_weight;
        let cuts = change_points(series, penalty, self.length_min);
        let starts = std::iter::once(0).chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain(std::iter::once(series.len()));
        starts
            .zip(ends)
            .map(|(start, end)| {
                let level = weighted_median(&series[start..end]).unwrap_or(values[start]);
                Plateau { start, end, level }
            })
            .collect()
    }
}

/// The standard deviation of a series' noise, from the differences of neighbours.
///
/// `1.4826 MAD(x[i+1] - x[i]) / sqrt(2)`: steps are few among the differences, so the median does not
/// see them. 0 of fewer than two values.
pub fn noise(series: &[f64]) -> f64 {
    let differences: Vec<f64> = series.windows(2).map(|w| w[1] - w[0]).collect();
    mad(&differences).map_or(0.0, |mad| 1.4826 * mad / std::f64::consts::SQRT_2)
}

/// Where the level changes: the index of the first value after each step, ascending.
///
/// Shape: `series` holds (value, weight); weights scale the squared deviations, so durations make
/// the fit one over time. `penalty` is the cost of one more segment, in value^2 weight.
///
/// # Panics
/// If a value is NaN, a weight is not positive and finite, the penalty is negative, or
/// `length_min` is 0.
pub fn change_points(series: &[(f64, f64)], penalty: f64, length_min: usize) -> Vec<usize> {
    assert!(length_min > 0, "a segment has at least one value");
    assert!(penalty >= 0.0, "a penalty can't be {penalty}");
    let cost = Cost::new(series);
    let n = series.len();
    // best[t]: the least cost of the first t values; last[t]: where its last segment begins.
    let mut best = vec![f64::INFINITY; n + 1];
    let mut last = vec![0; n + 1];
    best[0] = -penalty;
    let mut candidates = vec![0usize];
    for t in length_min..=n {
        for &s in &candidates {
            let total = best[s] + cost.of(s, t) + penalty;
            if total < best[t] {
                (best[t], last[t]) = (total, s);
            }
        }
        // From here on `u` can begin a segment too. A start before it that does worse up to `u` than
        // the best cut there never wins again: splitting at `u` would be cheaper for any later end.
        if let Some(u) = (t + 1).checked_sub(length_min).filter(|u| *u >= length_min) {
            candidates.retain(|&s| s + length_min > u || best[s] + cost.of(s, u) <= best[u]);
            candidates.push(u);
        }
    }
    let mut cuts = Vec::new();
    let mut t = n;
    while t > 0 && last[t] > 0 {
        t = last[t];
        cuts.push(t);
    }
    cuts.reverse();
    cuts
}

/// Weighted squared deviations of any stretch in constant time, by prefix sums.
struct Cost {
    weight: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Cost {
    fn new(series: &[(f64, f64)]) -> Self {
        for (value, weight) in series {
            assert!(!value.is_nan(), "a series can't contain NaN");
            assert!(weight.is_finite() && *weight > 0.0, "a weight can't be {weight}");
        }
        // Centred first: prefix sums of squares far from zero would lose their digits.
        let centre = weighted_median(series).unwrap_or(0.0);
        let prefix = |term: fn(f64, f64) -> f64| {
            let terms = series.iter().map(|(x, w)| term(x - centre, *w));
            let sums = terms.scan(0.0, |sum, term| {
                *sum += term;
                Some(*sum)
            });
            std::iter::once(0.0).chain(sums).collect()
        };
        Cost {
            weight: prefix(|_, w| w),
            first: prefix(|x, w| w * x),
            second: prefix(|x, w| w * x * x),
        }
    }

    fn of(&self, start: usize, end: usize) -> f64 {
        let weight = self.weight[end] - self.weight[start];
        let first = self.first[end] - self.first[start];
        let second = self.second[end] - self.second[start];
        (second - first * first / weight).max(0.0)
    }
}

/// A stretch of equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run<T> {
    /// Index of its first value.
    pub start: usize,
    /// Index after its last value.
    pub end: usize,
    /// The value.
    pub value: T,
}

/// The stretches of equal neighbours, in order and without holes.
pub fn runs<T: Copy + PartialEq>(series: &[T]) -> Vec<Run<T>> {
    let mut runs: Vec<Run<T>> = Vec::new();
    for (i, &value) in series.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if run.value == value => run.end = i + 1,
            _ => runs.push(Run { start: i, end: i + 1, value }),
        }
    }
    runs
}

/// Runs shorter than `length_min` given to their left neighbour (to the right one at the very start).
pub fn merge_short_runs<T: Copy + PartialEq>(runs: &[Run<T>], length_min: usize) -> Vec<Run<T>> {
    let mut merged: Vec<Run<T>> = Vec::new();
    for &run in runs {
        let long = run.end - run.start >= length_min;
        match merged.last_mut() {
            Some(left) if !long || left.value == run.value => left.end = run.end,
            // A short run at the start takes the value of the first long one.
            Some(left) if left.end - left.start < length_min => {
                (left.end, left.value) = (run.end, run.value);
            }
            _ => merged.push(run),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn even(values: &[f64]) -> Vec<(f64, f64)> {
        values.iter().map(|x| (*x, 1.0)).collect()
    }

    #[test]
    fn steps_of_a_clock_are_found() {
        // Made-up rates with a little deterministic noise.
        let wiggle = |i: usize| ((i * i * 37 + i * 11) % 29) as f64 / 2.0 - 7.0;
        let levels = [(277.0, 30), (604.0, 60), (504.0, 40), (872.0, 80)];
        let values: Vec<f64> = levels
            .iter()
            .flat_map(|(level, n)| std::iter::repeat_n(*level, *n))
            .enumerate()
            .map(|(i, level)| level + wiggle(i))
            .collect();
        let plateaus = Segmentation::default().plateaus(&even(&values));
        let starts: Vec<usize> = plateaus.iter().map(|p| p.start).collect();
        assert_eq!(starts, [0, 30, 90, 130]);
        for (plateau, (level, _)) in plateaus.iter().zip(levels) {
            assert!((plateau.level - level).abs() < 3.0, "{plateau:?}");
        }
    }

    #[test]
    fn a_flat_series_is_one_plateau() {
        let check = |values: &[f64]| {
            assert_eq!(Segmentation::default().plateaus(&even(values)).len(), 1, "{values:?}");
        };
        check(&[5.0]);
        check(&[5.0; 50]);
        check(&[0.0; 50]);
        check(&[5.0, 5.1, 4.9, 5.0, 5.05, 4.95, 5.1, 4.9, 5.0]);
        assert_eq!(Segmentation::default().plateaus(&[]), []);
    }

    #[test]
    fn a_noiseless_step_is_a_step() {
        let plateaus = Segmentation::default().plateaus(&even(&[1.0, 1.0, 1.0, 2.0, 2.0]));
        assert_eq!(plateaus[0], Plateau { start: 0, end: 3, level: 1.0 });
        assert_eq!(plateaus[1], Plateau { start: 3, end: 5, level: 2.0 });
    }

    #[test]
    fn equal_values_run() {
        let series = [1, 1, 4, 3, 3, 3];
        let found = runs(&series);
        assert_eq!(
            found.iter().map(|r| (r.value, r.end - r.start)).collect::<Vec<_>>(),
            [(1, 2), (4, 1), (3, 3)]
        );
        let merged = merge_short_runs(&found, 2);
        assert_eq!(
            merged,
            [Run { start: 0, end: 3, value: 1 }, Run { start: 3, end: 6, value: 3 }]
        );
        assert_eq!(merge_short_runs(&runs(&[9, 1, 1, 1]), 2), [Run { start: 0, end: 4, value: 1 }]);
    }

    /// Every way to cut, without pruning.
    fn exhaustive(series: &[(f64, f64)], penalty: f64, length_min: usize) -> f64 {
        let cost = Cost::new(series);
        let mut best = vec![f64::INFINITY; series.len() + 1];
        best[0] = -penalty;
        for t in length_min..=series.len() {
            for s in 0..=(t - length_min) {
                best[t] = best[t].min(best[s] + cost.of(s, t) + penalty);
            }
        }
        best[series.len()]
    }

    fn total(series: &[(f64, f64)], cuts: &[usize], penalty: f64) -> f64 {
        let cost = Cost::new(series);
        let bounds: Vec<usize> =
            [0].into_iter().chain(cuts.iter().copied()).chain([series.len()]).collect();
        bounds.windows(2).map(|w| cost.of(w[0], w[1])).sum::<f64>() + penalty * cuts.len() as f64
    }

    proptest! {
        #[test]
        fn pruning_loses_nothing(
            series in prop::collection::vec((0.0..10.0f64, 0.1..3.0f64), 6..60),
            penalty in 0.1..30.0f64,
            length_min in 1usize..4,
        ) {
            let cuts = change_points(&series, penalty, length_min);
            let expected = exhaustive(&series, penalty, length_min);
            prop_assert!((total(&series, &cuts, penalty) - expected).abs() < 1e-6);
            let ends = cuts.iter().copied().chain([series.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            for (start, end) in starts.zip(ends) {
                prop_assert!(end - start >= length_min);
            }
        }

        #[test]
        fn runs_cover_the_series(series in prop::collection::vec(0u8..3, 0..50), shortest in 1usize..4) {
            for found in [runs(&series), merge_short_runs(&runs(&series), shortest)] {
                let covered: usize = found.iter().map(|r| r.end - r.start).sum();
                prop_assert_eq!(covered, series.len());
                prop_assert!(found.windows(2).all(|w| w[0].end == w[1].start && w[0].value != w[1].value));
            }
        }
    }
}
