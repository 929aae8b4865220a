//! How long buffers take over the time of a step: what a recorded and a simulated step are compared
//! by.
//!
//! A ramp that comes a little late must cost a little. Compared buffer by buffer, it would be wrong
//! by half from the change on; so the times are compared as functions of time, as means over short
//! stretches that grow along the step. A clock that changes within a stretch changes its mean in
//! proportion.

/// The first stretch. Unit: ms.
const FIRST: f64 = 0.4;
/// Later ones are as long as this share of the time so far.
const GROWTH: f64 = 0.04;
/// A stretch counts if buffers cover so much of it. Unit: share.
const COVERED: f64 = 0.5;

/// Logarithms of the buffers' times (in ms) by stretch; NaN where nothing ran.
pub(super) type Curve = Vec<f64>;

/// The curve of buffers with these starts and ends, in ms since the first commit.
pub(super) fn curve(buffers: &[(f64, f64)]) -> Curve {
    let mut curve = Vec::new();
    let (mut from, mut at) = (0.0, 0);
    let end = buffers.last().map_or(0.0, |b| b.1);
    while from < end {
        let to = from + FIRST.max(GROWTH * from);
        let (mut sum, mut covered) = (0.0, 0.0);
        // A gap belongs to the buffer before it.
        let until = |n: usize| buffers.get(n + 1).map_or(buffers[n].1, |next| next.0);
        let mut n = at;
        while n < buffers.len() && buffers[n].0 < to {
            let part = until(n).min(to) - buffers[n].0.max(from);
            if part > 0.0 {
                sum += part * (buffers[n].1 - buffers[n].0).max(1e-6).ln();
                covered += part;
            }
            at = n;
            n += 1;
        }
        curve.push(if covered > COVERED * (to - from) { sum / covered } else { f64::NAN });
        from = to;
    }
    curve
}

/// Medians over rounds, where at least half of them ran.
pub(super) fn middle(curves: &[Curve]) -> Curve {
    let longest = curves.iter().map(Vec::len).max().unwrap_or(0);
    let at = |n: usize| {
        let known = curves.iter().filter_map(|c| c.get(n)).copied().filter(|v| !v.is_nan());
        let known: Vec<f64> = known.collect();
        let enough = 2 * known.len() >= curves.len();
        everwarm_stats::median(&known).filter(|_| enough).unwrap_or(f64::NAN)
    };
    (0..longest).map(at).collect()
}

/// A difference beyond this counts no more: one that can't be had must not rule the others.
const WORST: f64 = 1.0;

/// Mean distance over the stretches that both have; `None` if there are none.
pub(super) fn distance(a: &[f64], b: &[f64]) -> Option<f64> {
    let apart = a.iter().zip(b).map(|(a, b)| (a - b).abs()).filter(|d| !d.is_nan());
    let (sum, count) = apart.fold((0.0, 0.0), |(sum, count), d| (sum + d.min(WORST), count + 1.0));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step whose buffers take 2 ms until `change`, and 1 ms from there on.
    fn step(change: f64) -> Vec<(f64, f64)> {
        let mut buffers = Vec::new();
        let mut at: f64 = 1.0;
        while at < 200.0 {
            let slow = (change - at).clamp(0.0, 2.0);
            let took = slow + (2.0 - slow) / 2.0;
            buffers.push((at, at + took));
            at += took + 0.05;
        }
        buffers
    }

    #[test]
    fn a_change_that_comes_later_costs_more_the_later_it_comes() {
        let from = |change: f64| distance(&curve(&step(40.0)), &curve(&step(change))).unwrap();
        assert_eq!(from(40.0), 0.0);
        let costs = [41.0, 44.0, 48.0, 60.0].map(from);
        assert!(costs.windows(2).all(|w| w[0] < w[1]), "{costs:?}");
        assert!(costs[0] < 0.3 * costs[1], "{costs:?}");
    }
}
