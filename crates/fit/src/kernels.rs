//! What each kernel takes at the top clock, and at which speed a buffer ran.
//!
//! A buffer of a clock-bound kernel takes `fixed + work / clock`. The fixed part comes from kernels of
//! different lengths at the top and at the floor; with it, a buffer's time gives its clock as a share
//! of the top one, without knowing either.

use crate::trace::{Buffer, Step};
use everwarm_stats::median;
use std::collections::BTreeMap;

/// Buffers in a row from which a plateau counts.
const PLATEAU_MIN: usize = 6;
/// Plateaus nearer than this are one. Source: half of the distance of the top states of an M2.
const SAME: f64 = 0.025;
/// Width of a bin of the density of times. Unit: share.
const BIN: f64 = 0.002;
/// A clock is one if this share of buffers ran at it.
const RARE: f64 = 3e-4;

/// Plateaus of one kernel's execution time.
#[derive(Clone, Debug, PartialEq)]
struct Times {
    /// Execution time and number of buffers of each. Unit: ms. Shape: ascending.
    plateaus: Vec<(f64, usize)>,
}

/// The kernels of the runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernels {
    of: BTreeMap<(u64, u64), Times>,
    /// Time that no clock shortens. Unit: ms.
    pub fixed: f64,
    /// All overhead at the top clock, the fixed part included. Unit: ms.
    pub overhead: f64,
}

impl Kernels {
    /// What `steps` tell of each kernel in them.
    pub fn new(steps: &[Step]) -> Kernels {
        let mut all: BTreeMap<(u64, u64), Vec<f64>> = BTreeMap::new();
        for step in steps.iter().filter(|s| s.is_uniform() && s.buffers.len() >= PLATEAU_MIN) {
            all.entry(step.buffers[0].work()).or_default().extend(settled(step));
        }
        let of = all.into_iter().map(|(work, times)| (work, Times { plateaus: peaks(times) }));
        let mut kernels = Kernels { of: of.collect(), fixed: 0.0, overhead: 0.0 };
        (kernels.fixed, kernels.overhead) = kernels.overheads().unwrap_or((0.0, 0.0));
        kernels
    }

    /// Time of a buffer like this at the top clock. Unit: ms.
    pub fn top(&self, buffer: &Buffer) -> Option<f64> {
        self.of.get(&buffer.work()).and_then(|times| times.plateaus.first()).map(|(time, _)| *time)
    }

    /// The clock at which `buffer` ran, as a share of the top one.
    pub fn speed(&self, buffer: &Buffer) -> Option<f64> {
        let top = self.top(buffer).filter(|_| buffer.flops > 0.0)?;
        let fixed = self.fixed.min(0.5 * top);
        Some((top - fixed) / (buffer.took() - fixed).max(1e-6))
    }

    /// The shortest clock-bound kernel that was seen at more than one clock: the fewest of its buffers
    /// are cut by a change.
    pub fn shortest(&self) -> Option<(u64, u64)> {
        let mut chains = self.of.iter().filter(|((flops, _), _)| f64::from_bits(*flops) > 0.0);
        chains.find(|(_, times)| times.plateaus.len() > 1).map(|(work, _)| *work)
    }

    /// The clocks at which work was seen to stay, as shares of the top one, and in how many buffers.
    /// Shape: ascending, the last is 1.
    pub fn clocks(&self) -> Vec<(f64, usize)> {
        let Some(times) = self.shortest().and_then(|work| self.of.get(&work)) else {
            return Vec::new();
        };
        let top = times.plateaus[0].0;
        let fixed = self.fixed.min(0.5 * top);
        let share = |(time, n): &(f64, usize)| ((top - fixed) / (time - fixed), *n);
        times.plateaus.iter().rev().map(share).collect()
    }

    /// Operations a ms at the top clock without overhead.
    pub fn flops_per_ms(&self) -> Option<f64> {
        let of_work = |((flops, _), times): (&(u64, u64), &Times)| {
            let (top, _) = times.plateaus.first()?;
            let flops = f64::from_bits(*flops);
            (flops > 0.0).then(|| (flops, flops / (top - self.overhead)))
        };
        let all = self.of.iter().filter_map(of_work);
        all.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, rate)| rate)
    }

    /// Bytes a ms of the largest streaming kernel at its best.
    pub fn bytes_per_ms(&self) -> Option<f64> {
        let of_work = |((_, bytes), times): (&(u64, u64), &Times)| {
            let (top, _) = times.plateaus.first()?;
            let bytes = f64::from_bits(*bytes);
            (bytes > 0.0).then(|| bytes / (top - self.overhead).max(1e-6))
        };
        self.of.iter().filter_map(of_work).max_by(f64::total_cmp)
    }

    /// The fixed overhead, and all of it at the top clock, from the shortest and the longest kernel
    /// at the top and at the floor.
    fn overheads(&self) -> Option<(f64, f64)> {
        let chains = || self.of.iter().filter(|((flops, _), t)| *flops > 0 && t.plateaus.len() > 1);
        let (short, long) = (chains().next()?, chains().next_back()?);
        let flops = [short, long].map(|((flops, _), _)| f64::from_bits(*flops));
        if flops[1] < 1.5 * flops[0] {
            return None;
        }
        let line = |times: [f64; 2]| {
            let slope = (times[1] - times[0]) / (flops[1] - flops[0]);
            (slope, (times[0] - slope * flops[0]).max(0.0))
        };
        let (fast, at_top) = line([short, long].map(|(_, t)| t.plateaus[0].0));
        // The longer kernel at the clock of the shorter one's floor.
        let floor = short.1.plateaus[short.1.plateaus.len() - 1].0;
        let expected = floor / short.1.plateaus[0].0 * long.1.plateaus[0].0;
        let off = |time: f64| (time / expected).ln().abs();
        let near = long.1.plateaus.iter().map(|(time, _)| *time);
        let near = near.min_by(|a, b| off(*a).total_cmp(&off(*b))).filter(|t| off(*t) < 0.05);
        let Some(near) = near else { return Some((at_top, at_top)) };
        let (slow, at_floor) = line([floor, near]);
        let ratio = slow / fast;
        // The scaled part grows with the ratio, the fixed part does not.
        let scaled = ((at_floor - at_top) / (ratio - 1.0)).clamp(0.0, at_top);
        Some((at_top - scaled, at_top))
    }
}

/// Logarithms of the execution times of those buffers of a step whose neighbours took as long:
/// outliers and the buffers that a change of clock cuts are left out.
fn settled(step: &Step) -> Vec<f64> {
    let times: Vec<f64> = step.buffers.iter().map(|b| b.took().max(1e-9).ln()).collect();
    let middle = smoothed(&times);
    let agree = |n: &usize| {
        let near = &middle[n - 1..n + 2];
        near.iter().all(|t| (t - middle[*n]).abs() < SAME) && (times[*n] - middle[*n]).abs() < SAME
    };
    (1..times.len().max(2) - 1).filter(agree).map(|n| times[n]).collect()
}

/// Where times lie most densely: ms and the number of buffers there. Shape: ascending.
///
/// A controller that hovers changes the clock every few buffers, so that stretches of one clock are
/// too short for change points; but the same few clocks come back again and again.
fn peaks(mut times: Vec<f64>) -> Vec<(f64, usize)> {
    times.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (times.first().copied(), times.last()) else {
        return Vec::new();
    };
    let bins = ((last - first) / BIN) as usize + 1;
    let mut counts = vec![0.0; bins];
    times.iter().for_each(|t| counts[((t - first) / BIN) as usize] += 1.0);
    let around = |series: &[f64], n: usize, reach: usize| {
        series[n.saturating_sub(reach)..(n + reach + 1).min(bins)].to_vec()
    };
    // Twice the mean of neighbours: about a bell of 0.6 %.
    let mean = |series: &[f64]| -> Vec<f64> {
        (0..bins).map(|n| around(series, n, 2).iter().sum::<f64>() / 5.0).collect()
    };
    let density = mean(&mean(&counts));
    let apart = (SAME / BIN) as usize;
    let highest = |n: &usize| {
        density[*n] > 0.0 && around(&density, *n, apart).iter().all(|d| *d <= density[*n])
    };
    let least = (times.len() as f64 * RARE).max(2.0 * PLATEAU_MIN as f64) as usize;
    let level = |n: usize| {
        let centre = first + (n as f64 + 0.5) * BIN;
        let from = times.partition_point(|t| *t < centre - 0.75 * SAME);
        let to = times.partition_point(|t| *t <= centre + 0.75 * SAME);
        median(&times[from..to]).map(|t| (t.exp(), to - from))
    };
    let mut found: Vec<_> = (0..bins).filter(highest).filter_map(level).collect();
    found.retain(|(_, n)| *n >= least);
    merged(found)
}

/// Medians of three: a single outlier is no plateau.
pub(crate) fn smoothed(series: &[f64]) -> Vec<f64> {
    let of = |n: usize| {
        let from = n.saturating_sub(1);
        median(&series[from..(n + 2).min(series.len())]).unwrap_or(series[n])
    };
    (0..series.len()).map(of).collect()
}

/// Values that are nearly the same as one, weighted by their numbers. Shape: ascending.
fn merged(mut all: Vec<(f64, usize)>) -> Vec<(f64, usize)> {
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut groups: Vec<Vec<(f64, usize)>> = Vec::new();
    for one in all {
        let centre = |group: &Vec<(f64, usize)>| {
            let n: usize = group.iter().map(|g| g.1).sum();
            group.iter().map(|g| g.0 * g.1 as f64).sum::<f64>() / n as f64
        };
        match groups.last_mut() {
            Some(group) if one.0 < centre(group) * (1.0 + SAME) => group.push(one),
            _ => groups.push(vec![one]),
        }
    }
    let middle = |group: Vec<(f64, usize)>| {
        let weighted: Vec<(f64, f64)> = group.iter().map(|g| (g.0, g.1 as f64)).collect();
        let n = group.iter().map(|g| g.1).sum();
        (everwarm_stats::weighted_median(&weighted).unwrap_or(group[0].0), n)
    };
    groups.into_iter().map(middle).collect()
}
