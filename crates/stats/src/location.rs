//! Where a sample lies, and how widely it spreads.

/// A sample in ascending order.
///
/// # Panics
/// If a value is NaN.
pub(crate) fn sorted(sample: &[f64]) -> Vec<f64> {
    assert!(sample.iter().all(|x| !x.is_nan()), "a sample can't contain NaN");
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The arithmetic mean; `None` of nothing.
pub fn mean(sample: &[f64]) -> Option<f64> {
    // Summed in ascending order, so that the same values give the same bits in any order.
    let sorted = sorted(sample);
    (!sorted.is_empty()).then(|| sorted.iter().sum::<f64>() / sorted.len() as f64)
}

/// The value that half of the sample lies below; `None` of nothing.
///
/// The mean of the middle two where their number is even.
///
/// # Panics
/// If a value is NaN.
pub fn median(sample: &[f64]) -> Option<f64> {
    quantile(sample, 0.5)
}

/// The value that a share `q` of the sample lies below, interpolated between neighbours.
///
/// With the n values sorted from x(0), it is x at the fractional index (n - 1) q.
/// Source: Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996), definition 7.
///
/// # Panics
/// If `q` is outside 0..=1 or a value is NaN.
pub fn quantile(sample: &[f64], q: f64) -> Option<f64> {
    quantile_sorted(&sorted(sample), q)
}

/// [`quantile`] of a sample that is already in ascending order.
pub(crate) fn quantile_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    assert!((0.0..=1.0).contains(&q), "a quantile is a share between 0 and 1, not {q}");
    let last = sorted.len().checked_sub(1)?;
    let place = last as f64 * q;
    let below = (place.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let share = place - below as f64;
    // Without this branch an infinite neighbour would turn an exact hit into NaN.
    if share == 0.0 || sorted[below] == sorted[above] {
        return Some(sorted[below]);
    }
    Some(sorted[below] + share * (sorted[above] - sorted[below]))
}

/// The median absolute deviation from the median, unscaled; `None` of nothing.
///
/// Times 1.4826 it estimates the standard deviation of a normal sample.
pub fn mad(sample: &[f64]) -> Option<f64> {
    let centre = median(sample)?;
    let deviations: Vec<f64> = sample.iter().map(|x| (x - centre).abs()).collect();
    median(&deviations)
}

/// The value at which half of the total weight is reached; `None` without positive weight.
///
/// `sample` holds (value, weight). With durations as weights it is the time-weighted median of a
/// signal that is constant over each of them.
///
/// # Panics
/// If a value is NaN, or a weight negative or not finite.
pub fn weighted_median(sample: &[(f64, f64)]) -> Option<f64> {
    weighted_quantile(sample, 0.5)
}

/// The smallest value at which a share `q` of the total weight is reached.
///
/// No interpolation: the result is one of the values, except that a share which falls exactly
/// between two values gives their mean (as [`median`] does).
///
/// # Panics
/// If `q` is outside 0..=1, a value is NaN, or a weight is negative or not finite.
pub fn weighted_quantile(sample: &[(f64, f64)], q: f64) -> Option<f64> {
    assert!((0.0..=1.0).contains(&q), "a quantile is a share between 0 and 1, not {q}");
    assert!(sample.iter().all(|(x, _)| !x.is_nan()), "a sample can't contain NaN");
    assert!(sample.iter().all(|(_, w)| w.is_finite() && *w >= 0.0), "a weight can't be negative");
    let mut sorted: Vec<(f64, f64)> = sample.iter().copied().filter(|(_, w)| *w > 0.0).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let total: f64 = sorted.iter().map(|(_, w)| w).sum();
    let goal = q * total;
    let mut reached = 0.0;
    for (i, (value, weight)) in sorted.iter().enumerate() {
        reached += weight;
        let tie = (reached - goal).abs() <= 1e-12 * total;
        if tie && let Some((next, _)) = sorted.get(i + 1) {
            return Some(0.5 * (value + next));
        }
        if tie || reached > goal {
            return Some(*value);
        }
    }
    sorted.last().map(|(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_samples() {
        let check = |sample: &[f64], expected: f64| assert_eq!(median(sample), Some(expected));
        check(&[3.0], 3.0);
        check(&[4.0, 1.0], 2.5);
        check(&[9.0, 1.0, 5.0], 5.0);
        assert_eq!(median(&[]), None);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.25), Some(1.75));
        assert_eq!(quantile(&[0.0, f64::INFINITY], 0.0), Some(0.0));
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
    }

    #[test]
    fn weight_is_time() {
        // One long stretch at 1 outweighs many short ones at 8.
        let signal = [(8.0, 1.0), (8.0, 1.0), (8.0, 1.0), (1.0, 10.0)];
        assert_eq!(weighted_median(&signal), Some(1.0));
        assert_eq!(weighted_median(&[(1.0, 2.0), (3.0, 2.0)]), Some(2.0));
        assert_eq!(weighted_median(&[(1.0, 0.0)]), None);
        assert_eq!(weighted_quantile(&[(1.0, 1.0), (2.0, 1.0)], 1.0), Some(2.0));
    }

    #[test]
    #[should_panic(expected = "NaN")]
    fn nan_is_no_measurement() {
        median(&[1.0, f64::NAN]);
    }

    fn samples() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-1e3..1e3f64, 1..40)
    }

    proptest! {
        #[test]
        fn order_does_not_matter(sample in samples(), by in 0usize..40) {
            let mut turned = sample.clone();
            turned.rotate_left(by % sample.len());
            turned.reverse();
            for f in [mean, median, mad] {
                prop_assert_eq!(f(&sample), f(&turned));
            }
        }

        #[test]
        fn location_moves_with_the_sample(sample in samples(), shift in -50.0..50.0f64, scale in 0.1..9.0f64) {
            let moved: Vec<f64> = sample.iter().map(|x| x * scale + shift).collect();
            for f in [mean, median] {
                let expected = f(&sample).unwrap() * scale + shift;
                prop_assert!((f(&moved).unwrap() - expected).abs() < 1e-6);
            }
            prop_assert!((mad(&moved).unwrap() - mad(&sample).unwrap() * scale).abs() < 1e-6);
        }

        #[test]
        fn quantiles_ascend_within_the_sample(sample in samples(), q in 0.0..1.0f64) {
            let low = quantile(&sample, q / 2.0).unwrap();
            let high = quantile(&sample, q).unwrap();
            prop_assert!(low <= high);
            prop_assert!(quantile(&sample, 0.0).unwrap() <= low);
            prop_assert!(high <= quantile(&sample, 1.0).unwrap());
        }

        #[test]
        fn equal_weights_are_no_weights(sample in samples()) {
            let weighted: Vec<(f64, f64)> = sample.iter().map(|x| (*x, 0.25)).collect();
            let (a, b) = (weighted_median(&weighted).unwrap(), median(&sample).unwrap());
            prop_assert!((a - b).abs() < 1e-9, "{a} {b}");
        }

        #[test]
        fn outliers_do_not_move_the_median_far(sample in samples()) {
            let spoilt: Vec<f64> = sample.iter().copied().chain([1e9]).collect();
            let highest = quantile(&sample, 1.0).unwrap();
            if sample.len() > 1 {
                prop_assert!(median(&spoilt).unwrap() <= highest);
            }
        }
    }
}
