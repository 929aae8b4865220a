//! Does one sample tend to lie above another? By ranks, so that no tail is too heavy.
//!
//! The rank-sum test of Wilcoxon, Mann and Whitney, one-sided and exact: of all ways to deal the values
//! out to two samples of these sizes, the share that puts at least as much rank into the upper one.
//! Ties share their mean rank, and are dealt out as they are, so that the share stays exact.
//! Source: Lehmann, "Nonparametrics" (1975), chapter 1.

use crate::location::sorted;

/// The chance that `upper` would have ranks at least this high if it were drawn like `lower`; `None`
/// if a sample is empty.
///
/// # Panics
/// If a value is NaN.
pub fn rank_sum(lower: &[f64], upper: &[f64]) -> Option<f64> {
    if lower.is_empty() || upper.is_empty() {
        return None;
    }
    let all = sorted(&[lower, upper].concat());
    // Twice the mean rank of a value's ties, so that it is whole.
    let doubled = |value: f64| {
        let below = all.partition_point(|v| *v < value);
        let through = all.partition_point(|v| *v <= value);
        below + through + 1
    };
    let seen: usize = upper.iter().map(|value| doubled(*value)).sum();
    let most: usize = all.iter().map(|value| doubled(*value)).sum();
    // ways[k][s]: choices of k values with the doubled rank sum s, as a share of what comes later.
    let mut ways = vec![vec![0.0; most + 1]; upper.len() + 1];
    ways[0][0] = 1.0;
    for value in &all {
        let rank = doubled(*value);
        for k in (1..=upper.len()).rev() {
            for sum in (rank..=most).rev() {
                ways[k][sum] += ways[k - 1][sum - rank];
            }
        }
    }
    let dealt = &ways[upper.len()];
    let total: f64 = dealt.iter().sum();
    Some(dealt[seen..].iter().sum::<f64>() / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lower: &[f64], upper: &[f64], expected: f64) {
        let p = rank_sum(lower, upper).unwrap();
        assert!((p - expected).abs() < 1e-12, "{lower:?} {upper:?}: {p}, expected {expected}");
    }

    #[test]
    fn separated_samples_are_one_deal_of_all() {
        check(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], 1.0 / 20.0);
        check(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0], 1.0);
        check(&[1.0; 8], &[2.0; 3], 1.0 / 165.0);
    }

    #[test]
    fn equal_values_say_nothing() {
        check(&[1.0; 4], &[1.0; 3], 1.0);
        check(&[1.0, 2.0], &[1.0, 2.0], 5.0 / 6.0);
    }

    #[test]
    fn one_wild_value_does_not_weigh_more_than_a_large_one() {
        let p = rank_sum(&[1.0, 2.0, 3.0], &[1.5, 2.5, 1e9]);
        assert_eq!(p, rank_sum(&[1.0, 2.0, 3.0], &[1.5, 2.5, 4.0]));
        assert_eq!(rank_sum(&[], &[1.0]), None);
    }
}
