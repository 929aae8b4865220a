//! When along a step the clock changes, to less than a buffer.
//!
//! A buffer that a change cuts in two has run at the clock before and at the one after: with both
//! known from its neighbours, its time says where the cut is. Without that, a change could be told
//! to a buffer only, which at the floor may be longer than the whole ramp.

use crate::kernels::Kernels;
use crate::trace::{Buffer, Step};
use everwarm_stats::median;

/// A time with the length of the buffers within which it was told. Unit: ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Since the start of the step's first buffer.
    pub time: f64,
    /// Time of the buffer that was cut.
    pub within: f64,
}

/// A step's buffers as work that was done over time.
pub struct Path<'a> {
    buffers: &'a [Buffer],
    speeds: Vec<f64>,
    /// Work of one buffer: its time at the top clock without what no clock shortens. Unit: ms.
    work: f64,
    fixed: f64,
    /// Time for which the first buffer stood still. Unit: ms.
    stall: f64,
}

impl<'a> Path<'a> {
    /// The path of a step of one clock-bound kernel, whose first buffer stood still for `stall`.
    pub fn new(step: &'a Step, kernels: &Kernels, stall: f64) -> Option<Path<'a>> {
        let first = step.buffers.first().filter(|_| step.is_uniform())?;
        let top = kernels.top(first).filter(|_| first.flops > 0.0)?;
        let fixed = kernels.fixed.min(0.5 * top);
        let mut path =
            Path { buffers: &step.buffers, speeds: Vec::new(), work: top - fixed, fixed, stall };
        path.speeds = (0..step.buffers.len()).map(|n| path.work / path.took(n)).collect();
        Some(path)
    }

    /// Time in which buffer `n` made progress.
    fn took(&self, n: usize) -> f64 {
        let stall = if n == 0 { self.stall } else { 0.0 };
        (self.buffers[n].took() - self.fixed - stall).max(0.2 * self.work)
    }

    /// When the clock first rises above `level`, of a step that begins at `floor`.
    pub fn reached(&self, level: f64, floor: f64) -> Option<Reached> {
        let above = |n: &usize| {
            self.speeds[*n] > level && self.speeds.get(n + 1).is_none_or(|next| *next > level)
        };
        let at = (0..self.speeds.len()).find(above)?;
        let before = if at >= 2 { self.speeds[at - 2].min(level) } else { floor };
        let after = self.speeds.get(at + 1).map_or(self.speeds[at], |s| s.max(self.speeds[at]));
        let from = at.saturating_sub(1);
        let found = self.cut(from, at, before, after);
        // A clock that changed while the first buffer stood still has left no trace.
        let in_stall = self.stall > 0.0 && found.time < self.stall + 0.2 * self.work;
        (!in_stall).then_some(found)
    }

    /// Where in the buffers `from..=to` the clock goes from `before` to `after`.
    fn cut(&self, from: usize, to: usize, before: f64, after: f64) -> Reached {
        let span: f64 = (from..=to).map(|n| self.took(n)).sum();
        let work = self.work * (to - from + 1) as f64;
        let slow = match (after - before).abs() > 1e-3 {
            true => ((after * span - work) / (after - before)).clamp(0.0, span),
            false => 0.0,
        };
        // Back on the timeline, where buffers have fixed parts and gaps between them.
        let (mut left, mut at) = (slow, from);
        while at < to && left > self.took(at) {
            left -= self.took(at);
            at += 1;
        }
        let stall = if at == 0 { self.stall } else { 0.0 };
        let buffer = &self.buffers[at];
        let time = buffer.start - self.buffers[0].start + self.fixed + stall + left;
        Reached { time, within: buffer.took() }
    }

    /// Changes between two clocks that both lasted for some buffers, in the first `until` ms: time
    /// since the first commit.
    pub fn changes(&self, until: f64) -> Vec<f64> {
        let mut found = Vec::new();
        let mut at = SIDE;
        let end = self.buffers[0].start + until;
        while at + SIDE < self.speeds.len() && self.buffers[at].end < end {
            match self.change(at) {
                Some(time) => {
                    found.push(time);
                    at += SIDE;
                }
                None => at += 1,
            }
        }
        found
    }

    /// A change within buffer `at`, if there is one.
    fn change(&self, at: usize) -> Option<f64> {
        let (before, after) = (&self.speeds[at - SIDE..at], &self.speeds[at + 1..=at + SIDE]);
        let steady = |side: &[f64], level: f64| side.iter().all(|s| (s / level - 1.0).abs() < 0.03);
        let (a, b) = (median(before)?, median(after)?);
        let sharp = (b / a).ln().abs() > 0.1 && steady(before, a) && steady(after, b);
        // The cut buffer is the one nearer to neither side; at a clean edge either will do.
        let between = |s: f64| s > a.min(b) * 0.97 && s < a.max(b) * 1.03;
        if !(sharp && between(self.speeds[at])) {
            return None;
        }
        let cut = self.cut(at, at, a, b);
        Some(cut.time + self.buffers[0].start - self.buffers[0].committed)
    }
}

/// Buffers on each side of a change that have to agree.
const SIDE: usize = 2;

/// The period on whose multiples changes fall: `ramps` holds the changes of each ramp, which need
/// not have a phase in common. `None` where no period explains them. Unit: ms.
pub fn period(ramps: &[Vec<f64>]) -> Option<f64> {
    let usable: Vec<&Vec<f64>> = ramps.iter().filter(|r| r.len() >= 2).collect();
    // A ramp of n changes has n - 1 independent distances.
    let distances: usize = usable.iter().map(|r| r.len() - 1).sum();
    if distances < DISTANCES_MIN {
        return None;
    }
    let score = |period: f64| {
        let one = |ramp: &&Vec<f64>| {
            let turns = ramp.iter().map(|t| std::f64::consts::TAU * t / period);
            let (re, im) = turns.fold((0.0, 0.0), |(re, im), a| (re + a.cos(), im + a.sin()));
            (re * re + im * im) / ramp.len() as f64 - 1.0
        };
        usable.iter().map(one).sum::<f64>() / distances as f64
    };
    let grid = std::iter::successors(Some(PERIOD_MAX), |p| Some(p / 1.0005));
    let scored: Vec<(f64, f64)> =
        grid.take_while(|p| *p > PERIOD_MIN).map(|p| (p, score(p))).collect();
    let best = scored.iter().map(|(_, score)| *score).fold(f64::MIN, f64::max);
    if best < COHERENT {
        return None;
    }
    // Fractions of the period explain the changes as well: the longest one is it.
    let first = scored.iter().position(|(_, score)| *score > 0.85 * best)?;
    let hill = scored[first..].iter().take_while(|(_, score)| *score > 0.85 * best);
    hill.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(period, _)| *period)
}

/// Distances of changes from which a period is told.
const DISTANCES_MIN: usize = 6;
/// Mean cosine of the distances of changes from which they count as periodic.
const COHERENT: f64 = 0.6;
/// Periods that are looked at. Unit: ms.
const PERIOD_MIN: f64 = 1.0;
/// See [`PERIOD_MIN`].
const PERIOD_MAX: f64 = 60.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_period_that_explains_the_changes_is_found() {
        let ramp = |phase: f64, at: &[f64]| at.iter().map(|k| phase + 8.0 * k).collect::<Vec<_>>();
        let ramps =
            [ramp(0.3, &[1.0, 2.0, 5.0]), ramp(2.0, &[2.0, 3.0]), ramp(7.0, &[4.0, 7.0, 8.0, 9.0])];
        let found = period(&ramps).unwrap();
        assert!((found / 8.0 - 1.0).abs() < 0.002, "{found}");
        assert_eq!(period(&ramps[..1]), None, "three changes are too few");
    }
}
