//! The causes on the device's side, each one file beside this one and one line in [`CAUSES`].
//!
//! A judge reads a [`Case`] and says what it finds. It never sees a device, and it knows no other
//! cause's finding: what two of them could both explain, one of them subtracts by a measurement of its
//! own. What holds for a server behind a URL is another table with the same rows.

mod clock_decay;
mod deep_idle;
mod gap_cliff;
mod host_wake;
mod power_gating;
mod sync_tax;
mod unwired;

use crate::diagnosis::{Finding, Row};
use crate::effect::Scale;
use crate::evidence::{Evidence, Taken, warm};
use crate::host::Rests;
use crate::instrument::Instrument;
use everwarm_stats::median;

/// A cause of a late first token.
pub struct Cause {
    /// A short name that stays.
    pub id: &'static str,
    /// For people.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// It is the GPU's, so that nothing can be said where the GPU can't be measured.
    pub of_gpu: bool,
    /// A quick examination looks for it.
    pub quick: bool,
    /// Says what is found.
    pub judge: fn(&Case<'_>) -> Finding,
    /// What could be done about it.
    pub helps: &'static [&'static str],
}

/// What a judge sees.
pub struct Case<'a> {
    /// What the probes recorded.
    pub evidence: &'a Evidence,
    /// What the host showed.
    pub rests: &'a Rests,
    /// The instrument.
    pub instrument: &'a Instrument,
}

/// All causes, in the order in which they are shown.
pub const CAUSES: &[Cause] = &[
    clock_decay::CAUSE,
    sync_tax::CAUSE,
    gap_cliff::CAUSE,
    power_gating::CAUSE,
    deep_idle::CAUSE,
    unwired::CAUSE,
    host_wake::CAUSE,
];

/// Looks for each of them.
pub fn judge(evidence: &Evidence, rests: &Rests, instrument: &Instrument, quick: bool) -> Vec<Row> {
    let case = Case { evidence, rests, instrument };
    let row = |cause: &Cause| {
        let finding = match &instrument.trouble {
            _ if quick && !cause.quick => {
                Finding::LeftOut { why: "a quick examination has no time for it".to_owned() }
            }
            Some(why) if cause.of_gpu => Finding::CantTell { why: why.clone() },
            _ => (cause.judge)(&case),
        };
        let seen = matches!(finding, Finding::Seen { .. });
        let helps = cause.helps.iter().filter(|_| seen).map(|help| (*help).to_owned()).collect();
        Row { cause: cause.id, name: cause.name, about: cause.about, finding, helps }
    };
    CAUSES.iter().map(row).collect()
}

impl Case<'_> {
    /// The scale with an instrument's limit in it: what one or two readings of the GPU's clock tell.
    fn by_stamps(&self, least: f64, tolerable: f64) -> Scale {
        let step = self.instrument.gpu_step_ms.unwrap_or(0.0);
        Scale { least: least.max(2.0 * step), tolerable }
    }
}

/// Of findings about one cause under several conditions the first that is seen; else what is not
/// known counts more than what is not there.
fn first_seen(findings: Vec<Finding>) -> Finding {
    let rank = |finding: &Finding| match finding {
        Finding::Seen { .. } => 0,
        Finding::CantTell { .. } => 1,
        Finding::LeftOut { .. } => 2,
        Finding::NotSeen { .. } => 3,
    };
    let missed = findings.iter().filter_map(|finding| match finding {
        Finding::NotSeen { missed_at_most_ms } => Some(*missed_at_most_ms),
        _ => None,
    });
    let missed = missed.fold(0.0, f64::max);
    match findings.into_iter().min_by_key(rank).expect("there are conditions") {
        Finding::NotSeen { .. } => Finding::NotSeen { missed_at_most_ms: missed },
        other => other,
    }
}

/// "200 ms: 13.9, 1 s: 15.1": medians of cells, for people.
fn list(values: &[(&str, Option<f64>)]) -> String {
    let known = values.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    known.map(|(name, value)| format!("{value:.1} ms after {name}")).collect::<Vec<_>>().join(", ")
}

/// What a long idle time adds to a whole request, against the one without: start, memory, clock.
fn penalty(taken: &Taken) -> Option<f64> {
    let knock = taken.step("knock")?.dispatches.first()?;
    let touch = &taken.step("touch")?.dispatches;
    let burst = taken.burst()?.lost;
    let around = |d: &everwarm_lab::Dispatch| d.observed.since(d.committed).as_ms();
    Some(around(knock) + around(touch.first()?) + burst)
}

/// What a request pays after each idle time, against one without.
fn penalties(evidence: &Evidence) -> Vec<(&'static str, f64)> {
    let of = |gap: &str| median(&evidence.numbers("request", gap, penalty));
    let Some(base) = of("0") else { return Vec::new() };
    ["1200 ms", "2 s", "5 s"].into_iter().filter_map(|gap| Some((gap, of(gap)? - base))).collect()
}

/// The shortest idle time after which a request pays nearly all that it pays after any.
pub fn telling_gap(evidence: &Evidence) -> &'static str {
    let all = penalties(evidence);
    let most = all.iter().map(|(_, ms)| *ms).fold(0.0, f64::max);
    all.iter().find(|(_, ms)| *ms >= 0.8 * most).map_or("1200 ms", |(gap, _)| gap)
}

/// Whether the one sample of the longest idle time stands out from those of the shorter ones.
pub fn odd_after_the_longest(taken: &[Taken]) -> bool {
    let of = |gap: &str| {
        let gap = crate::probe::cell_name([gap].into_iter());
        let all = taken.iter().filter(|t| t.probe == "request" && t.cell == gap);
        median(&all.filter_map(penalty).collect::<Vec<_>>())
    };
    let warm = median(&taken.iter().filter_map(warm).collect::<Vec<_>>());
    let (Some(long), Some(short), Some(warm)) = (of("5 s"), of("2 s"), warm) else { return false };
    long - short > 2.0 * warm
}
