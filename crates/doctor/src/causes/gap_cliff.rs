//! A queue that is empty for a moment after each command buffer loses the clock, however busy it is.
//!
//! From a raised clock, a loop with a pause after each kernel; what counts is how long its last
//! kernels execute, against the same sample's warm-up. A pause that is long enough for the power to go
//! may stall the first kernel after it, which is no clock: what such a stall takes is measured after
//! a longer pause and taken off.

use super::{Case, Cause, first_seen};
use crate::diagnosis::Finding;
use crate::effect::{Scale, effect, finding};
use crate::evidence::{Taken, execution, executions, warm};
use everwarm_stats::median;

pub const CAUSE: Cause = Cause {
    id: "gap-cliff",
    name: "queue-gap cliff",
    about: "a program that leaves the queue empty between command buffers loses the clock while it works",
    of_gpu: true,
    quick: true,
    judge,
    helps: &[
        "the server could keep two or more command buffers in flight (`everwarm-inflight` for its authors)",
        "a hold fills the gaps in the eyes of the GPU's controller",
    ],
};

/// In milliseconds to 100 ms of work, that is in percent.
const SCALE: Scale = Scale { least: 3.0, tolerable: 10.0 };

const PAUSES: [&str; 3] = ["0.3 ms", "1 ms", "3 ms"];

fn judge(case: &Case<'_>) -> Finding {
    let evidence = case.evidence;
    let stall = median(&evidence.numbers("clock", "50 ms", stall)).unwrap_or(0.0).max(0.0);
    let slow =
        |pause: &str, stall: f64| evidence.numbers("gaps", pause, move |taken| slow(taken, stall));
    let mut base = slow("0", 0.0);
    base.extend(evidence.numbers("clock", "0", |taken| Some(100.0 * (taken.burst()?.tail - 1.0))));
    let looked = PAUSES.iter().filter(|pause| evidence.cell("gaps", pause).next().is_some());
    let mut findings: Vec<Finding> = looked
        .map(|pause| {
            let with = slow(pause, stall);
            finding(effect(&base, &with), SCALE, |_| {
                let each = PAUSES.map(|pause| (pause, median(&slow(pause, stall))));
                let each = each.iter().filter_map(|(pause, slow)| Some((pause, (*slow)?)));
                let each: Vec<String> =
                    each.map(|(pause, ms)| format!("{:.0} ms at {pause}", ms.max(0.0))).collect();
                format!(
                    "to 100 ms of work, with a pause of {pause} or more after each kernel of 0.58 ms ({})",
                    each.join(", ")
                )
            })
        })
        .collect();
    if findings.is_empty() {
        findings.push(Finding::CantTell { why: "there was no time for enough samples".to_owned() });
    }
    first_seen(findings)
}

/// By how much more the first kernel after a pause takes than the second.
fn stall(taken: &Taken) -> Option<f64> {
    Some(execution(taken.dispatch("burst", 0)?) - execution(taken.dispatch("burst", 1)?))
}

/// How much slower the loop's last kernels are than the warm-up's. Unit: %.
fn slow(taken: &Taken, stall: f64) -> Option<f64> {
    let all = executions(taken.step("loop")?);
    let last = median(&all[all.len() - all.len() * 2 / 5..])?;
    Some(100.0 * ((last - stall) / warm(taken)? - 1.0))
}
