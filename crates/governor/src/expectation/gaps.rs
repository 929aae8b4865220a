//! A distribution of gaps: how many ended in each bin of elapsed time, and how many were cut short
//! there by something else.
//!
//! Taking a gap is one addition; forgetting is done by letting later ones weigh more. What is made of
//! it, a hazard for each bin, is kept until the evidence has changed by a few per cent.

use everwarm_units::Span;
use std::sync::LazyLock;

const PER_DOUBLING: usize = 8;
const DOUBLINGS: usize = 20;
/// From 0 to [`FIRST`], then [`PER_DOUBLING`] a doubling up to 18 hours.
pub(crate) const BINS: usize = 1 + PER_DOUBLING * DOUBLINGS;
/// The end of the first bin: shorter gaps are within what devices forgive. Unit: s.
const FIRST: f64 = 0.0625;

/// For each bin the hazard, summed over it: `1 - exp(-sum)` is the chance of an arrival in a stretch.
pub(crate) type Hazard = [f64; BINS];

static EDGES: LazyLock<[f64; BINS + 1]> = LazyLock::new(|| {
    std::array::from_fn(|n| match n {
        0 => 0.0,
        _ => FIRST * 2_f64.powf((n - 1) as f64 / PER_DOUBLING as f64),
    })
});

/// The bins' ends. Unit: s.
pub(crate) fn edges() -> &'static [f64; BINS + 1] {
    &EDGES
}

/// How much of the arrivals a law without a scale has in each doubling: with this exponent half of
/// the gaps end by four times the second that it begins at. Source: guess.
const EXPONENT: f64 = 0.5;

static SCALE_FREE: LazyLock<Hazard> = LazyLock::new(|| {
    std::array::from_fn(|n| EXPONENT * ((1.0 + EDGES[n + 1]) / (1.0 + EDGES[n])).ln())
});

/// What is expected where nothing is known.
pub(crate) fn scale_free() -> &'static Hazard {
    &SCALE_FREE
}

fn bin(gap: Span) -> usize {
    let doublings = (gap.as_secs() / FIRST).log2();
    if doublings < 0.0 {
        return 0;
    }
    (1 + (doublings * PER_DOUBLING as f64) as usize).min(BINS - 1)
}

/// Arrivals that the level above is worth, for a doubling and for a bin: so many must be seen before
/// a factor is half-way to what they say. Source: guess; one coincidence is none.
const PRIOR: (f64, f64) = (4.0, 8.0);
/// The share of new evidence after which the hazard is made anew.
const STALE: f64 = 1.0 / 32.0;

/// A distribution.
pub(crate) struct Gaps {
    counts: Box<[[f32; 2]; BINS]>,
    /// What the next gap weighs: the newest always has the greatest weight.
    weight: f32,
    growth: f32,
    total: f32,
    hazard: Option<Box<Hazard>>,
    /// Taken since the hazard was made. Unit: share of all evidence then.
    stale: f64,
}

impl Gaps {
    /// Nothing yet; a gap counts 1/e after `memory` others.
    pub fn new(memory: f32) -> Self {
        Gaps {
            counts: Box::new([[0.0; 2]; BINS]),
            weight: 1.0,
            growth: (1.0 / memory).exp(),
            total: 0.0,
            hazard: None,
            stale: 0.0,
        }
    }

    /// A request came after this gap.
    pub fn came(&mut self, gap: Span) {
        self.take(gap, 0);
    }

    /// None had come after this gap, and then it could no longer be told.
    pub fn cut(&mut self, gap: Span) {
        self.take(gap, 1);
    }

    fn take(&mut self, gap: Span, kind: usize) {
        self.weight *= self.growth;
        self.total = self.total / self.growth + 1.0;
        if self.weight > 1e6 {
            let weight = self.weight;
            self.counts.iter_mut().flatten().for_each(|count| *count /= weight);
            self.weight = 1.0;
        }
        self.counts[bin(gap)][kind] += self.weight;
        self.stale += 1.0 / f64::from(self.total);
    }

    /// Gaps that it has seen and not forgotten.
    pub fn weight(&self) -> f64 {
        f64::from(self.total)
    }

    /// The hazard, where the level above says `parent`.
    pub fn smoothed(&mut self, parent: &Hazard) -> &Hazard {
        if self.hazard.is_none() || self.stale > STALE {
            self.stale = 0.0;
            let made = self.make(parent);
            match &mut self.hazard {
                Some(hazard) => **hazard = made,
                None => self.hazard = Some(Box::new(made)),
            }
        }
        self.hazard.as_ref().expect("it was made")
    }

    fn make(&self, parent: &Hazard) -> Hazard {
        let mut made = *parent;
        // From the longest gap down: who reaches a bin is who ended there or later.
        let (mut reach, scale) = (0.0, 1.0 / f64::from(self.weight));
        let mut bins = [(0.0, 0.0); BINS];
        for (bin, count) in self.counts.iter().enumerate().rev() {
            let (came, cut) = (f64::from(count[0]) * scale, f64::from(count[1]) * scale);
            // Those that end in a bin spend half of it there.
            bins[bin] = (came, reach + 0.5 * (came + cut));
            reach += came + cut;
        }
        let factor = |seen: f64, expected: f64, prior| (seen + prior) / (expected + prior);
        for from in (0..BINS).step_by(PER_DOUBLING) {
            let doubling = from..(from + PER_DOUBLING).min(BINS);
            let seen: f64 = bins[doubling.clone()].iter().map(|(came, _)| came).sum();
            let expected: f64 = doubling.clone().map(|n| bins[n].1 * parent[n]).sum();
            let whole = factor(seen, expected, PRIOR.0);
            for n in doubling {
                let here = parent[n] * whole;
                made[n] = here * factor(bins[n].0, bins[n].1 * here, PRIOR.1);
            }
        }
        made
    }
}

/// After so many times the time looked at, a hazard that knows no scale is as good as constant over it.
const STEADY: f64 = 8.0;

/// Adds the hazard from `passed` on to the bins that begin there.
pub(crate) fn add(hazard: &Hazard, passed: Span, onto: &mut [f64]) {
    if passed.is_zero() {
        onto.iter_mut().zip(hazard).for_each(|(sum, here)| *sum += here);
        return;
    }
    let edges = edges();
    let (passed, mut bin) = (passed.as_secs(), bin(passed));
    let mut rate = hazard[bin] / (edges[bin + 1] - edges[bin]);
    if passed > STEADY * edges[onto.len()] {
        let widths = edges.windows(2).map(|ends| ends[1] - ends[0]);
        onto.iter_mut().zip(widths).for_each(|(sum, width)| *sum += rate * width);
        return;
    }
    for (sum, ends) in onto.iter_mut().zip(edges.windows(2)) {
        let (mut from, to) = (passed + ends[0], passed + ends[1]);
        while to > edges[bin + 1] && bin + 1 < BINS {
            *sum += rate * (edges[bin + 1] - from).max(0.0);
            from = from.max(edges[bin + 1]);
            bin += 1;
            rate = hazard[bin] / (edges[bin + 1] - edges[bin]);
        }
        // Beyond the last bin nobody is expected.
        *sum += rate * (to.min(edges[bin + 1]) - from).max(0.0);
    }
}

/// The hazard up to `elapsed`. Unit of `elapsed`: s.
pub(crate) fn sum(hazard: &Hazard, elapsed: f64) -> f64 {
    let share = |ends: &[f64]| ((elapsed - ends[0]) / (ends[1] - ends[0])).clamp(0.0, 1.0);
    hazard.iter().zip(edges().windows(2)).map(|(here, ends)| here * share(ends)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_what_lies_between_their_edges() {
        for ms in [0, 1, 62, 63, 100, 125, 500, 3000, 65_000, 3_600_000] {
            let at = bin(Span::ms(ms));
            let seconds = ms as f64 / 1e3;
            assert!(edges()[at] <= seconds + 1e-9 && seconds < edges()[at + 1] + 1e-9, "{ms} ms");
        }
        assert_eq!(bin(Span::s(1_000_000)), BINS - 1);
    }

    /// Evenly among chances: gaps of an exponential distribution.
    fn exponential(mean: f64, count: u64) -> impl Iterator<Item = Span> {
        let chance = move |n: u64| (n * 7919 % count) as f64 + 0.5;
        (0..count).map(move |n| Span::from_secs(-mean * (1.0 - chance(n) / count as f64).ln()))
    }

    #[test]
    fn a_constant_hazard_is_found_also_where_gaps_are_cut() {
        let mut gaps = Gaps::new(1e6);
        for (n, gap) in exponential(10.0, 4000).enumerate() {
            // Every other one is lost sight of after 5 s.
            let lost = Span::s(5);
            if n % 2 == 0 && gap > lost { gaps.cut(lost) } else { gaps.came(gap) }
        }
        let hazard = *gaps.smoothed(scale_free());
        for (from, to) in [(0.0, 2.0), (2.0, 6.0), (6.0, 12.0), (12.0, 20.0)] {
            let rate = (sum(&hazard, to) - sum(&hazard, from)) / (to - from);
            assert!((rate / 0.1 - 1.0).abs() < 0.12, "{rate} per second from {from} to {to}");
        }
    }

    #[test]
    fn where_nothing_was_seen_the_level_above_is_believed() {
        let mut gaps = Gaps::new(100.0);
        for _ in 0..5 {
            gaps.came(Span::s(2));
        }
        let hazard = *gaps.smoothed(scale_free());
        let far = bin(Span::s(300));
        assert_eq!(hazard[far], scale_free()[far]);
        assert!(hazard[bin(Span::s(2))] > 3.0 * scale_free()[bin(Span::s(2))]);
        assert!(hazard[bin(Span::ms(300))] < scale_free()[bin(Span::ms(300))]);
    }

    #[test]
    fn what_has_passed_moves_the_axis() {
        let mut onto = [0.0; BINS];
        let hazard = scale_free();
        add(hazard, Span::s(100), &mut onto);
        let ahead = sum(hazard, 160.0) - sum(hazard, 100.0);
        assert!((sum(&onto, 60.0) / ahead - 1.0).abs() < 0.01);
    }

    #[test]
    fn weights_that_grow_for_long_stay_finite() {
        let mut gaps = Gaps::new(10.0);
        for _ in 0..10_000 {
            gaps.came(Span::s(1));
        }
        assert!(gaps.smoothed(scale_free()).iter().all(|h| h.is_finite()));
        assert!((gaps.weight() - 10.5).abs() < 0.1, "{}", gaps.weight());
    }
}
