//! What can be read off runs without a model: plateaus, delays, ramps, cliffs, latencies.
//!
//! Each finding is a median over rounds with the interval of its bootstrap, or of the two neighbours
//! of a sweep between which it lies. What the runs don't show is absent.

use crate::kernels::Kernels;
use crate::path::{Path, Reached, period};
use crate::trace::Step;
use everwarm_stats::{Bootstrap, median};
use std::collections::BTreeMap;

/// A figure that was read off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// The value, in ms or as a share.
    pub value: f64,
    /// Its interval.
    pub lo: f64,
    /// Its interval.
    pub hi: f64,
}

/// Findings by name: `idle-off`, `decay`, `ramp short, one in flight, 500 ms: first step` …
pub type Findings = BTreeMap<String, Finding>;

/// Work after less idle than this finds the GPU powered. Unit: ms.
const SURELY_POWERED: f64 = 0.5;
/// Work after more idle than this finds it switched off on every device that is known. Unit: ms.
const SURELY_GATED: f64 = 50.0;
/// After more idle than this a first buffer may stand still. Unit: ms.
const MAY_STALL: f64 = 600.0;
/// A speed from which a clock is the top one.
const TOP: f64 = 0.97;

/// All that `steps` show, by name; with intervals, or without where only the values are asked for.
pub fn findings(steps: &[Step], kernels: &Kernels, intervals: bool) -> Findings {
    let mut all = Collected { found: Findings::new(), intervals };
    for (n, (clock, buffers)) in kernels.clocks().iter().enumerate() {
        // Half a percent of noise in a plateau of a few buffers.
        let half = 0.01 / (*buffers as f64).sqrt();
        let clock = Finding { value: *clock, lo: clock * (1.0 - half), hi: clock * (1.0 + half) };
        all.found.insert(format!("clock {}", n + 1), clock);
    }
    top_clock(steps, kernels, &mut all);
    latencies(steps, &mut all);
    gating(steps, &mut all);
    memory_path(steps, &mut all);
    deep_idle(steps, &mut all);
    decay(steps, kernels, &mut all);
    ramps(steps, kernels, &mut all);
    cliffs(steps, kernels, &mut all);
    all.found
}

/// What first buffers of clock-bound loops take longer after a long idle time than after a short one,
/// by idle time. The second buffer would not do to compare with: its clock may be another.
fn stalled(steps: &[Step], from: f64) -> Vec<(f64, f64)> {
    let first = |s: &Step| {
        let first = s.buffers.first().filter(|b| b.bytes == 0.0 && !s.is_queued())?;
        Some((first.work(), s.idle?, first.took()))
    };
    let firsts: Vec<_> = steps.iter().filter_map(first).collect();
    let usual = |work: (u64, u64)| {
        let same = firsts.iter().filter(|f| f.0 == work && (90.0..MAY_STALL).contains(&f.1));
        median(&same.map(|f| f.2).collect::<Vec<_>>())
    };
    let usual: BTreeMap<_, _> = firsts.iter().filter_map(|f| Some((f.0, usual(f.0)?))).collect();
    let long = firsts.iter().filter(|f| f.1 > from);
    long.filter_map(|(work, idle, took)| Some((*idle, took - usual.get(work)?))).collect()
}

/// How long the first buffer stands still after a long idle time, and from which one on.
fn deep_idle(steps: &[Step], all: &mut Collected) {
    let after = |from: f64| stalled(steps, from).into_iter().map(|(_, extra)| extra);
    all.put("deep idle stall", &after(1900.0).collect::<Vec<_>>());
    let stall = all.found.get("deep idle stall").map(|f| f.value).filter(|ms| *ms > 0.1);
    let Some(stall) = stall else { return };
    let mut series = stalled(steps, 90.0);
    series.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let Some(found) = split(&series, |extra| extra > 0.5 * stall) {
        all.found.insert("deep idle".into(), found);
    }
}

/// Findings, and whether their intervals are asked for.
struct Collected {
    found: Findings,
    intervals: bool,
}

impl Collected {
    /// The median of a sample, with its bootstrap interval.
    fn put(&mut self, name: impl Into<String>, sample: &[f64]) {
        let Some(value) = median(sample) else { return };
        let interval = match self.intervals {
            true => Bootstrap::default().median(sample),
            false => None,
        };
        let (lo, hi) = interval.map_or((value, value), |interval| (interval.lo, interval.hi));
        self.found.insert(name.into(), Finding { value, lo, hi });
    }
}

/// The top clock in MHz, where buffers counted their cycles.
fn top_clock(steps: &[Step], kernels: &Kernels, all: &mut Collected) {
    let buffers = steps.iter().flat_map(|s| &s.buffers);
    let at_top =
        buffers.filter(|b| kernels.speed(b).is_some_and(|speed| (speed - 1.0).abs() < 0.02));
    all.put("top clock", &sampled(at_top.filter_map(|b| b.clock)));
}

/// The host's side of a buffer.
fn latencies(steps: &[Step], all: &mut Collected) {
    let loops = || steps.iter().filter(|s| !s.is_queued());
    let awake = loops().flat_map(|s| s.buffers.windows(2));
    let awake = awake.filter(|w| w[1].committed - w[0].end < SURELY_POWERED);
    all.put("commit to start", &sampled(awake.map(|w| w[1].start - w[1].committed)));
    let ends = steps.iter().flat_map(|s| &s.buffers);
    all.put("end to host", &sampled(ends.map(|b| b.observed - b.end)));
    let queued = steps.iter().filter(|s| s.is_queued()).flat_map(|s| s.buffers.windows(2));
    let queued = queued.filter(|w| w[1].committed < w[0].end - 0.5);
    all.put("gap between queued buffers", &sampled(queued.map(|w| w[1].start - w[0].end)));
}

/// At most some hundreds of a series: bootstraps of thousands tell nothing more.
fn sampled(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let all: Vec<f64> = values.collect();
    let stride = all.len().div_ceil(400).max(1);
    all.into_iter().step_by(stride).collect()
}

/// Idle time and commit-to-start latency of the first buffer after it.
fn first_latencies(steps: &[Step]) -> Vec<(f64, f64)> {
    let of = |s: &Step| Some((s.idle?, s.buffers.first()?.start - s.buffers.first()?.committed));
    let mut all: Vec<_> = steps.iter().filter_map(of).filter(|(idle, _)| *idle > 0.0).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// When power goes, and what the first buffer waits after it.
fn gating(steps: &[Step], all: &mut Collected) {
    let firsts = first_latencies(steps);
    let Some(awake) = all.found.get("commit to start").map(|f| f.value) else { return };
    // After seconds a start may wait for more than power: those count only where there are no others.
    let after = |idle: std::ops::Range<f64>| {
        let starts = firsts.iter().filter(|f| idle.contains(&f.0));
        median(&starts.map(|f| f.1).collect::<Vec<_>>())
    };
    let usual = after(SURELY_GATED..MAY_STALL);
    let Some(gated) = usual.or_else(|| after(MAY_STALL..f64::INFINITY)) else { return };
    let middle = awake + 0.4 * (gated - awake).max(0.0);
    let slow = |latency: f64| latency > middle;
    if let Some(found) = split(&firsts, slow) {
        all.found.insert("idle-off".into(), found);
        for (idle, latency) in by_idle(&firsts, found.hi) {
            all.put(format!("wake after {idle} ms"), &latency);
        }
    }
}

/// Latencies of idle times that are nearly the same, beyond `from`.
fn by_idle(firsts: &[(f64, f64)], from: f64) -> Vec<(f64, Vec<f64>)> {
    let mut groups: Vec<(f64, Vec<f64>)> = Vec::new();
    for (idle, latency) in firsts.iter().filter(|f| f.0 >= from) {
        match groups.last_mut() {
            Some((first, group)) if *idle < *first * 1.08 => group.push(*latency),
            _ => groups.push((*idle, vec![*latency])),
        }
    }
    groups.retain(|(_, group)| group.len() >= 3);
    for (idle, _) in &mut groups {
        *idle = format!("{idle:.3e}").parse().unwrap_or(*idle);
    }
    groups
}

/// Where along ascending x a property begins to hold: the cut that leaves the fewest on the wrong
/// side; between the two x around it. `None` if it holds for all or none.
fn split(series: &[(f64, f64)], holds: impl Fn(f64) -> bool) -> Option<Finding> {
    let holds: Vec<bool> = series.iter().map(|(_, y)| holds(*y)).collect();
    let mut wrong = holds.iter().filter(|h| !**h).count();
    let (mut best, mut cut) = (wrong, 0);
    for (n, holds) in holds.iter().enumerate() {
        wrong = if *holds { wrong + 1 } else { wrong - 1 };
        if wrong < best {
            (best, cut) = (wrong, n + 1);
        }
    }
    if cut == 0 || cut == series.len() || best * 5 > series.len() {
        return None;
    }
    let (lo, hi) = (series[cut - 1].0, series[cut].0);
    Some(Finding { value: (lo * hi).sqrt(), lo, hi })
}

/// How long a clock is kept after full load: until it has lost half of the way to the floor.
fn decay(steps: &[Step], kernels: &Kernels, all: &mut Collected) {
    let mut series = Vec::new();
    for pair in steps.windows(2) {
        let Some(idle) = pair[1].idle.filter(|idle| *idle > 5.0) else { continue };
        let last = pair[0].buffers.len().saturating_sub(8);
        let before: Vec<f64> =
            pair[0].buffers[last..].iter().filter_map(|b| kernels.speed(b)).collect();
        let was_top = median(&before).is_some_and(|speed| speed > TOP);
        let speed = |n: usize| pair[1].buffers.get(n).and_then(|b| kernels.speed(b));
        // The first one shows the clock at the wake, but may stand still after a long idle time.
        let woken = match idle > MAY_STALL {
            true => speed(0).zip(speed(1)).map(|(first, second)| first.max(second)),
            false => speed(0),
        };
        if let Some(speed) = woken.filter(|_| was_top && pair[0].buffers.len() > 100) {
            series.push((idle, speed));
        }
    }
    series.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some(floor) = kernels.clocks().first().map(|(clock, _)| *clock) else { return };
    let half = (1.0 + floor) / 2.0;
    if let Some(found) = split(&series, |speed| speed < half) {
        all.found.insert("decay".into(), found);
    }
}

/// From the first start after a long idle time to the first step up, to half of the way and to the
/// top clock; and the period on which the clock changes.
fn ramps(steps: &[Step], kernels: &Kernels, all: &mut Collected) {
    let mut samples: BTreeMap<String, Vec<Reached>> = BTreeMap::new();
    let mut changes = Vec::new();
    let floor = kernels.clocks().first().map_or(1.0, |(clock, _)| *clock);
    let value = |name: &str| all.found.get(name).map(|f: &Finding| f.value);
    let (stall, deep) = (value("deep idle stall").unwrap_or(0.0), value("deep idle"));
    let long = |s: &&Step| s.idle.is_some_and(|idle| idle > 250.0) && s.buffers.len() >= 60;
    for step in steps.iter().filter(long) {
        let is_deep = step.idle > deep.or(Some(f64::INFINITY));
        let stall = if is_deep { stall.max(0.0) } else { 0.0 };
        let Some(path) = Path::new(step, kernels, stall) else { continue };
        // Longer ones may be cut twice.
        if kernels.shortest() == Some(step.buffers[0].work()) {
            changes.push(path.changes(PERIODS_IN));
        }
        if step.idle < Some(RAMP_AFTER) {
            continue;
        }
        let mut put = |what: &str, found: Option<Reached>| {
            let name = format!("ramp {}: {what}", step.cell);
            samples.entry(name).or_default().extend(found);
        };
        put("first step", path.reached(floor * 1.06, floor));
        put("half", path.reached((1.0 + floor) / 2.0, floor));
        if ends_on_top(step, kernels) {
            put("top", path.reached(TOP, floor));
        }
    }
    for (name, sample) in samples {
        let of = |part: fn(&Reached) -> f64| sample.iter().map(part).collect::<Vec<f64>>();
        let (times, within) = (of(|r| r.time), of(|r| r.within));
        // A change that may lie anywhere in a buffer as long as the ramp is not known.
        if median(&within) < median(&times) {
            all.put(name, &times);
        }
    }
    if let Some(period) = period(&changes) {
        let half = period * 2e-3;
        let found = Finding { value: period, lo: period - half, hi: period + half };
        all.found.insert("control period".into(), found);
    }
}

/// A ramp is one after at least so much idle time. Unit: ms.
const RAMP_AFTER: f64 = 400.0;
/// The time of a ramp in which changes are looked at for their period: later, errors add up.
/// Unit: ms.
const PERIODS_IN: f64 = 300.0;

/// The last buffers of a step run at the top clock.
fn ends_on_top(step: &Step, kernels: &Kernels) -> bool {
    let last = &step.buffers[step.buffers.len() - 10..];
    let speeds: Vec<f64> = last.iter().filter_map(|b| kernels.speed(b)).collect();
    median(&speeds).is_some_and(|speed| speed > TOP)
}

/// The gap from which a loop of a kernel no longer holds the top clock, and what it holds far
/// beyond it.
fn cliffs(steps: &[Step], kernels: &Kernels, all: &mut Collected) {
    let mut series: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for step in steps.iter().filter(|s| s.is_uniform() && s.buffers.len() >= 100) {
        let span = step.buffers[step.buffers.len() - 1].end - step.buffers[0].start;
        let last = step.buffers.iter().filter(|b| b.start > step.buffers[0].start + 0.4 * span);
        let speeds: Vec<f64> = last.filter_map(|b| kernels.speed(b)).collect();
        let gaps = step.gaps();
        let settled = median(&gaps[gaps.len() / 3..]);
        if let (Some(speed), Some(gap), false) = (middle(speeds), settled, step.is_queued()) {
            series.entry(step.buffers[0].work()).or_default().push((gap, speed));
        }
    }
    for (n, mut series) in series.into_values().enumerate() {
        series.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let Some(mut found) = split(&series, |speed| speed < TOP) {
            // A loop may beat with the control period: lose the top clock, find it again, and lose it.
            let at = |lost: bool| series.iter().filter(move |s| (s.1 < TOP) == lost).map(|s| s.0);
            found.lo = at(true).fold(found.lo, f64::min);
            found.hi = at(false).fold(found.hi, f64::max);
            all.found.insert(format!("cliff of kernel {}", n + 1), found);
        }
    }
}

/// Mean over time without the slowest and quickest hundredth: a loop that hovers between clocks has
/// no median to speak of.
fn middle(mut speeds: Vec<f64>) -> Option<f64> {
    speeds.sort_by(f64::total_cmp);
    let aside = speeds.len() / 100;
    let kept = &speeds[aside..speeds.len() - aside];
    let time: f64 = kept.iter().map(|speed| 1.0 / speed).sum();
    (!kept.is_empty()).then(|| kept.len() as f64 / time)
}

/// What the first stream after a wake takes longer than the next ones.
fn memory_path(steps: &[Step], all: &mut Collected) {
    let extra = |s: &Step| {
        let (first, second) = (s.buffers.first()?, s.buffers.get(1)?);
        let same = first.work() == second.work() && first.bytes > 0.0 && !s.is_queued();
        let plain = s.idle.is_some_and(|idle| (50.0..900.0).contains(&idle));
        (same && plain).then(|| first.took() - second.took())
    };
    all.put("memory path", &steps.iter().filter_map(extra).collect::<Vec<_>>());
}
