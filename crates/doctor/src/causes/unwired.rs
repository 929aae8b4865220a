//! Memory is no longer resident after an idle time: unwired by the driver, or paged out.
//!
//! Two reads of 1 GB after each other. The first pays for making the memory resident, the second does
//! not; what a lower clock or a lower bandwidth does is in both, and in a small read right before
//! them, whose speed is what the first one is held against where the clock is on its way up meanwhile.
//! What the small reads show is also why a GPU that is only switched off is not taken for one whose memory
//! is gone.
//!
//! It can't see what a server does with its own buffers; it tells what happens to those of a process that does
//! nothing to keep them.

use super::{Case, Cause, list};
use crate::diagnosis::Finding;
use crate::effect::{Scale, effect, finding};
use crate::evidence::{Taken, execution};
use everwarm_lab::Dispatch;
use everwarm_stats::median;
use everwarm_workload::Kernel;

pub const CAUSE: Cause = Cause {
    id: "memory-unwired",
    name: "memory unwired or paged out",
    about: "memory that the GPU has not used for a while is not resident and must be made so again",
    of_gpu: true,
    quick: true,
    judge,
    helps: &[
        "a hold, or any work in time, keeps it (see what was tried)",
        "a server can keep its buffers resident itself (residency sets on macOS, `--mlock` of llama.cpp)",
    ],
};

const SCALE: Scale = Scale { least: 0.5, tolerable: 4.0 };

const GAPS: [&str; 4] = ["500 ms", "1200 ms", "2 s", "5 s"];

fn judge(case: &Case<'_>) -> Finding {
    let evidence = case.evidence;
    let base = evidence.numbers("request", "0", beyond);
    let with = evidence.pooled("request", &GAPS[1..], beyond);
    finding(effect(&base, &with), SCALE, |_| {
        let usual = median(&base).unwrap_or(0.0);
        let of =
            |gap| (gap, median(&evidence.numbers("request", gap, beyond)).map(|ms| ms - usual));
        format!("to the first read of 1 GB: {}", list(&GAPS.map(of)))
    })
}

/// The first large read beyond the second one, or beyond what the small one before predicts of it.
fn beyond(taken: &Taken) -> Option<f64> {
    let (first, second) = (taken.dispatch("touch", 0)?, taken.dispatch("touch", 1)?);
    let small = taken.dispatch("read", 1)?;
    let around = |d: &Dispatch| d.observed.since(d.committed).as_ms();
    let predicted = execution(small) * bytes(first)? / bytes(small)?;
    let without = around(second) - execution(second);
    Some(around(first) - without - execution(second).max(predicted))
}

fn bytes(dispatch: &Dispatch) -> Option<f64> {
    match dispatch.kernel {
        Kernel::Modelled { bytes, .. } => Some(bytes),
        kernel => kernel.bytes(),
    }
}
