//! Intervals by resampling.
//!
//! A statistic of one or several independent samples (a median, a difference of medians, a ratio
//! of differences) is computed again on samples drawn with replacement from each; where the
//! results fall is how far the statistic could have fallen otherwise. Two intervals are offered:
//! *percentile* (the quantiles of the results) and *BCa* (the same, corrected for bias and
//! skewness). Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 13
//! and 14; the acceleration over several samples is that of Davison and Hinkley, "Bootstrap
//! Methods and their Application" (1997), section 5.3.
//!
//! With three to eight values, as in a quick bench, either interval is rough: it can't reach
//! beyond the sample. It says so by width, not by a warning.

use crate::location::{median, quantile_sorted, sorted};
use crate::normal::{phi, probit};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A point estimate with the interval around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The statistic of the samples as they are.
    pub point: f64,
    /// Lower end; never above `point`.
    pub lo: f64,
    /// Upper end; never below `point`.
    pub hi: f64,
}

/// How to resample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// How often to draw. 2,000 keep the ends of a 95 % interval steady to about a percent of it.
    pub resamples: u32,
    /// The share of such intervals that should cover the truth.
    pub confidence: f64,
    /// Seed of the draws: equal seeds give equal intervals.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Bootstrap { resamples: 2_000, confidence: 0.95, seed: 0 }
    }
}

impl Bootstrap {
    /// The percentile interval of `statistic` over independent `samples`.
    ///
    /// `None` where the statistic is undefined on the samples, where one of them has fewer than
    /// two values (nothing can be said of spread), or where so many resamples leave the statistic
    /// undefined that the interval's own tail is among them.
    ///
    /// # Panics
    /// If the confidence is not between 0 and 1, there are no resamples, or a value is NaN.
    pub fn percentile(
        &self,
        samples: &[&[f64]],
        statistic: impl Fn(&[&[f64]]) -> Option<f64>,
    ) -> Option<Interval> {
        let drawn = self.draw(samples, &statistic)?;
        let tail = 0.5 * (1.0 - self.confidence);
        drawn.interval(tail, 1.0 - tail)
    }

    /// The bias-corrected and accelerated interval of `statistic` over independent `samples`.
    ///
    /// The quantiles taken are Phi(z0 + (z0 + z) / (1 - a (z0 + z))) for z at the two tails, with
    /// z0 the normal quantile of the share of resamples below the point (half of those equal to
    /// it counted) and a the acceleration from leaving out each value once. Where a is not
    /// defined (a median of few values may not move at all) it counts as 0.
    ///
    /// `None` and panics as for [`Bootstrap::percentile`].
    pub fn bca(
        &self,
        samples: &[&[f64]],
        statistic: impl Fn(&[&[f64]]) -> Option<f64>,
    ) -> Option<Interval> {
        let drawn = self.draw(samples, &statistic)?;
        let z0 = probit(drawn.share_below_point());
        let a = acceleration(samples, drawn.point, &statistic);
        let corrected = |tail: f64| {
            let z = z0 + probit(tail);
            phi(z0 + z / (1.0 - a * z))
        };
        let tail = 0.5 * (1.0 - self.confidence);
        drawn.interval(corrected(tail), corrected(1.0 - tail))
    }

    /// The BCa interval of a median.
    pub fn median(&self, sample: &[f64]) -> Option<Interval> {
        self.bca(&[sample], |s| median(s[0]))
    }

    /// The BCa interval of the difference of medians, `b` less `a`.
    pub fn difference(&self, a: &[f64], b: &[f64]) -> Option<Interval> {
        self.bca(&[a, b], |s| Some(median(s[1])? - median(s[0])?))
    }

    /// The BCa interval of the ratio of medians, `b` by `a`.
    pub fn ratio(&self, a: &[f64], b: &[f64]) -> Option<Interval> {
        self.bca(&[a, b], |s| {
            let below = median(s[0])?;
            (below != 0.0).then_some(median(s[1])? / below)
        })
    }

    /// The percentile interval of the share of the penalty that condition `c` removes; see
    /// [`penalty_removed`].
    ///
    /// A ratio whose denominator comes near zero has no useful influence values, hence not BCa.
    pub fn penalty_removed(&self, idle: &[f64], busy: &[f64], c: &[f64]) -> Option<Interval> {
        self.percentile(&[idle, busy, c], |s| penalty_removed(s[0], s[1], s[2]))
    }

    fn draw(
        &self,
        samples: &[&[f64]],
        statistic: &impl Fn(&[&[f64]]) -> Option<f64>,
    ) -> Option<Drawn> {
        assert!(self.resamples > 0, "a bootstrap needs at least one resample");
        assert!(
            self.confidence > 0.0 && self.confidence < 1.0,
            "a confidence lies between 0 and 1, not at {}",
            self.confidence
        );
        let point = statistic(samples)?;
        if samples.iter().any(|s| s.len() < 2) {
            return None;
        }
        // Sorted, so that the order of measurement changes nothing.
        let pools: Vec<Vec<f64>> = samples.iter().map(|s| sorted(s)).collect();
        let mut rng = ChaCha12Rng::seed_from_u64(self.seed);
        let mut drawn = pools.clone();
        let mut results = Vec::with_capacity(self.resamples as usize);
        for _ in 0..self.resamples {
            for (target, pool) in drawn.iter_mut().zip(&pools) {
                target.fill_with(|| pool[below(&mut rng, pool.len())]);
            }
            let views: Vec<&[f64]> = drawn.iter().map(Vec::as_slice).collect();
            results.extend(statistic(&views).filter(|r| !r.is_nan()));
        }
        let undefined = 1.0 - results.len() as f64 / f64::from(self.resamples);
        if undefined > 0.5 * (1.0 - self.confidence) {
            return None;
        }
        results.sort_by(f64::total_cmp);
        Some(Drawn { point, results })
    }
}

/// The share of the penalty of idling that condition `c` removes: (idle - c) / (idle - busy).
///
/// Of medians. 1 means as fast as busy, 0 as slow as idle; above 1 and below 0 are possible.
/// `None` where a sample is empty or where there is no penalty (idle is not slower than busy).
pub fn penalty_removed(idle: &[f64], busy: &[f64], c: &[f64]) -> Option<f64> {
    let (idle, busy, c) = (median(idle)?, median(busy)?, median(c)?);
    (idle > busy).then(|| (idle - c) / (idle - busy))
}

/// A uniform index below `n`, by multiplication (Lemire 2019); its bias is below n / 2^64.
fn below(rng: &mut ChaCha12Rng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

struct Drawn {
    point: f64,
    results: Vec<f64>,
}

impl Drawn {
    fn share_below_point(&self) -> f64 {
        let count =
            |test: &dyn Fn(f64) -> bool| self.results.iter().filter(|r| test(**r)).count() as f64;
        let share = count(&|r| r < self.point) + 0.5 * count(&|r| r == self.point);
        // Kept off 0 and 1, where the normal quantile is infinite.
        let n = self.results.len() as f64;
        (share / n).clamp(0.5 / n, 1.0 - 0.5 / n)
    }

    fn interval(&self, low: f64, high: f64) -> Option<Interval> {
        let lo = quantile_sorted(&self.results, low.clamp(0.0, 1.0))?;
        let hi = quantile_sorted(&self.results, high.clamp(0.0, 1.0))?;
        // On a handful of values the corrected interval can miss its own point by a hair.
        Some(Interval { point: self.point, lo: lo.min(self.point), hi: hi.max(self.point) })
    }
}

/// The acceleration over several samples: sum(l^3 / n^3) / (6 sum(l^2 / n^2)^(3/2)) with
/// l = (n - 1)(point - point without that value), n the size of the value's own sample.
fn acceleration(
    samples: &[&[f64]],
    point: f64,
    statistic: &impl Fn(&[&[f64]]) -> Option<f64>,
) -> f64 {
    let (mut cubes, mut squares) = (0.0, 0.0);
    for (which, sample) in samples.iter().enumerate() {
        let pool = sorted(sample);
        let n = pool.len() as f64;
        for left_out in 0..pool.len() {
            let mut rest = pool.clone();
            rest.remove(left_out);
            let mut views = samples.to_vec();
            views[which] = &rest;
            let Some(without) = statistic(&views) else { return 0.0 };
            let influence = (n - 1.0) * (point - without) / n;
            cubes += influence.powi(3);
            squares += influence.powi(2);
        }
    }
    let a = cubes / (6.0 * squares.powf(1.5));
    if a.is_finite() { a } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::mean;
    use proptest::prelude::*;

    const QUICK: Bootstrap = Bootstrap { resamples: 300, confidence: 0.95, seed: 7 };

    #[test]
    fn the_share_of_the_penalty() {
        let check = |c: f64, expected: f64| {
            let share = penalty_removed(&[150.0], &[116.0], &[c]).unwrap();
            assert!((share - expected).abs() < 1e-12, "{share}");
        };
        check(116.0, 1.0);
        check(150.0, 0.0);
        check(133.0, 0.5);
        check(99.0, 1.5);
        assert_eq!(penalty_removed(&[116.0], &[116.0], &[116.0]), None);
        assert_eq!(penalty_removed(&[], &[116.0], &[116.0]), None);
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(QUICK.median(&[3.0]), None);
        assert_eq!(QUICK.median(&[]), None);
    }

    #[test]
    fn a_penalty_lost_in_noise_has_no_interval() {
        let noisy_idle = [100.0, 140.0, 120.0, 90.0];
        let noisy_busy = [99.0, 138.0, 121.0, 91.0];
        assert_eq!(QUICK.penalty_removed(&noisy_idle, &noisy_busy, &[110.0, 111.0]), None);
        let removed = QUICK.penalty_removed(&[150.0, 149.0, 151.0], &[116.0; 3], &[117.0; 3]);
        let removed = removed.unwrap();
        assert!(removed.lo > 0.96 && removed.hi < 0.98, "{removed:?}");
    }

    #[test]
    fn intervals_cover_the_truth_about_as_often_as_they_say() {
        // Means of 12 uniform values; 300 intervals at 95 %. Fixed seeds, hence no flakiness.
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let mut uniform = || rng.next_u64() as f64 / u64::MAX as f64;
        let mut covered = 0;
        for seed in 0..300 {
            let sample: Vec<f64> = (0..12).map(|_| uniform()).collect();
            let interval = Bootstrap { seed, ..QUICK }.bca(&[&sample], |s| mean(s[0])).unwrap();
            covered += u32::from(interval.lo <= 0.5 && 0.5 <= interval.hi);
        }
        assert!((265..=297).contains(&covered), "{covered} of 300");
    }

    #[test]
    fn bca_leans_with_the_skew() {
        let skewed = [1.0, 1.1, 1.2, 1.3, 1.5, 1.9, 2.6, 4.0, 7.0, 15.0];
        let plain = QUICK.percentile(&[&skewed], |s| mean(s[0])).unwrap();
        let corrected = QUICK.bca(&[&skewed], |s| mean(s[0])).unwrap();
        assert!(corrected.lo > plain.lo && corrected.hi > plain.hi, "{plain:?} {corrected:?}");
    }

    fn samples() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(1.0..1e3f64, 2..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_interval_contains_the_point_and_stays_in_the_sample(sample in samples()) {
            let interval = QUICK.median(&sample).unwrap();
            let sorted = sorted(&sample);
            prop_assert!(sorted[0] <= interval.lo && interval.hi <= sorted[sorted.len() - 1]);
            prop_assert!(interval.lo <= interval.point && interval.point <= interval.hi);
            prop_assert_eq!(Some(interval.point), median(&sample));
        }

        #[test]
        fn order_does_not_matter_and_seeds_repeat(a in samples(), b in samples()) {
            let (mut turned_a, mut turned_b) = (a.clone(), b.clone());
            turned_a.reverse();
            turned_b.rotate_left(1);
            prop_assert_eq!(QUICK.difference(&a, &b), QUICK.difference(&turned_a, &turned_b));
        }

        #[test]
        fn scale_moves_the_interval_along(sample in samples(), power in -3i32..4) {
            let scale = 2f64.powi(power); // exact, so that no tie breaks the other way
            let scaled: Vec<f64> = sample.iter().map(|x| x * scale).collect();
            let (plain, moved) = (QUICK.median(&sample).unwrap(), QUICK.median(&scaled).unwrap());
            prop_assert_eq!((plain.lo * scale, plain.hi * scale), (moved.lo, moved.hi));
        }

        #[test]
        fn more_confidence_is_wider(sample in samples()) {
            let narrow = Bootstrap { confidence: 0.5, ..QUICK }.median(&sample).unwrap();
            let wide = QUICK.median(&sample).unwrap();
            prop_assert!(wide.lo <= narrow.lo && narrow.hi <= wide.hi);
        }
    }
}
