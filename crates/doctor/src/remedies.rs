//! What helps, tried: one request after an idle time, with and without.
//!
//! `busy` is the request straight after work, `idle` the one that pays. A hold and a ping run through the
//! idle time, a pre-warm begins 100 ms before its end. Power is what the device's own counters say
//! of the idle time.

use crate::evidence::{Evidence, Taken};
use everwarm_gpu::Counters;
use everwarm_stats::{Bootstrap, Interval, median};
use everwarm_units::{Joules, Span};
use serde::Serialize;

/// What was tried after one idle time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trials {
    /// The idle time.
    pub idle: String,
    /// What the request takes straight after work. Unit: ms.
    pub busy_ms: f64,
    /// What it takes more after the idle time. Unit: ms.
    pub penalty_ms: f64,
    /// Lower and upper end of the penalty's interval.
    pub penalty_between: Option<[f64; 2]>,
    /// Power of the GPU while nothing is done. Unit: W.
    pub idle_w: Option<f64>,
    /// Each thing that was tried.
    pub tried: Vec<Tried>,
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// `hold`, `pre-warm` or `ping`.
    pub what: &'static str,
    /// What it is.
    pub about: &'static str,
    /// By how much the request is faster with it. Unit: ms.
    pub removed_ms: f64,
    /// The share of the penalty that is gone; below 0 if it makes things worse.
    pub removed: f64,
    /// Lower and upper end of the share's interval.
    pub removed_between: Option<[f64; 2]>,
    /// What the GPU draws more in the idle time. Unit: W.
    pub gpu_w: Option<f64>,
    /// What the CPU spends on submission. Unit: W.
    pub cpu_w: Option<f64>,
    /// What both cost once, for what is done only once. Unit: J.
    pub once_j: Option<f64>,
}

/// Conditions that were tried: name, what it is, and whether it is done once before each request.
const TRIED: [(&str, &str, bool); 3] = [
    ("hold", "one small kernel always running", false),
    ("pre-warm", "work begun 100 ms before the request", true),
    ("ping", "an empty command buffer every 100 ms", false),
];

/// A penalty below this has no shares.
const LEAST: f64 = 0.3;

/// What the trials say; `None` if there was no time for them.
pub fn judge(evidence: &Evidence, gap: &str) -> Option<Trials> {
    let all =
        |condition: &str| evidence.numbers("remedies", &format!("{condition}, {gap}"), request);
    let (busy, idle) = (all("busy"), all("idle"));
    let (busy_ms, idle_ms) = (median(&busy)?, median(&idle)?);
    let between = |interval: Option<Interval>| interval.map(|i| [i.lo, i.hi]);
    let power = |condition: &str, of: Rail| {
        let cell = format!("{condition}, {gap}");
        median(&evidence.numbers("remedies", &cell, |taken| watts(taken, of)))
    };
    let more = |condition: &str, of: Rail| Some(power(condition, of)? - power("idle", of)?);
    let span = gap.parse::<Span>().ok()?;
    let tried = |(what, about, once): (&'static str, &'static str, bool)| {
        let with = all(what);
        let removed_ms = idle_ms - median(&with)?;
        let penalty = idle_ms - busy_ms;
        let (gpu_w, cpu_w) = (more(what, Rail::Gpu), more(what, Rail::Cpu));
        let sum_w = gpu_w.map(|gpu| gpu + cpu_w.unwrap_or(0.0));
        let removed_between = between(Bootstrap::default().penalty_removed(&idle, &busy, &with));
        Some(Tried {
            what,
            about,
            removed_ms,
            removed: if penalty > LEAST { removed_ms / penalty } else { 0.0 },
            removed_between: removed_between.filter(|_| penalty > LEAST),
            gpu_w: gpu_w.filter(|_| !once),
            cpu_w: cpu_w.filter(|_| !once),
            once_j: sum_w.filter(|_| once).map(|w| w * span.as_secs()),
        })
    };
    Some(Trials {
        idle: span.to_string(),
        busy_ms,
        penalty_ms: idle_ms - busy_ms,
        penalty_between: between(Bootstrap::default().difference(&busy, &idle)),
        idle_w: power("idle", Rail::Gpu),
        tried: TRIED.into_iter().filter_map(tried).collect(),
    })
}

/// From the request's first commit until the host knows of its end.
fn request(taken: &Taken) -> Option<f64> {
    let begin = taken.dispatch("knock", 0)?.committed;
    Some(taken.step("burst")?.dispatches.last()?.observed.since(begin).as_ms())
}

/// Whose energy.
#[derive(Clone, Copy)]
enum Rail {
    Gpu,
    Cpu,
}

/// Power over the idle step, from the readings within it. Unit: W.
fn watts(taken: &Taken, of: Rail) -> Option<f64> {
    let idle = taken.step("idle")?;
    let within = |c: &&Counters| c.at >= idle.begin && c.at <= idle.end;
    let energy = |c: &Counters| match of {
        Rail::Gpu => c.gpu_energy,
        Rail::Cpu => c.cpu_energy,
    };
    let mut readings = taken.unit.samples.iter().filter(within);
    let (first, last) = (readings.next()?, readings.next_back()?);
    let spent: Joules = energy(last)? - energy(first)?;
    let seconds = last.at.since(first.at).as_secs();
    (seconds > 0.0).then(|| spent.as_j() / seconds)
}
