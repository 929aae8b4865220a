//! The way back to the clock is longer for a host that waits for each command buffer.
//!
//! The same kernels after the same idle time, once with the queue kept full and once one by one. What the
//! second loses more in execution is the tax; the pauses between the buffers themselves are not counted,
//! and neither is what such a loop pays when it is warm.

use super::{Case, Cause};
use crate::diagnosis::Finding;
use crate::effect::{Scale, effect, finding};
use crate::evidence::Taken;
use everwarm_stats::median;

pub const CAUSE: Cause = Cause {
    id: "sync-tax",
    name: "synchronous-submission tax",
    about: "a program that waits for each command buffer gets its clock back later than one that does not",
    of_gpu: true,
    quick: false,
    judge,
    helps: &[
        "the server could keep two or more command buffers in flight (`everwarm-inflight` for its authors)",
        "a hold keeps the clock up, so that nothing has to come back",
    ],
};

const SCALE: Scale = Scale { least: 1.0, tolerable: 5.0 };

fn judge(case: &Case<'_>) -> Finding {
    let lost = |probe: &str, gap: &str| case.evidence.numbers(probe, gap, Taken::lost);
    let beyond = |gap: &str| -> Vec<f64> {
        let full = median(&lost("clock", gap));
        full.map(|full| lost("sync", gap).iter().map(|one| one - full).collect())
            .unwrap_or_default()
    };
    // Two readings each of a sum over many kernels: both loops' controls are controls here.
    let mut base = beyond("0");
    if let Some(full) = median(&lost("clock", "0")) {
        base.extend(lost("clock", "0").iter().map(|one| one - full));
    }
    finding(effect(&base, &beyond("500 ms")), SCALE, |_| {
        let of = |probe, gap| median(&lost(probe, gap)).unwrap_or(0.0);
        format!(
            "after 500 ms of idle 120 kernels of 0.58 ms lose {:.1} ms one by one and {:.1} ms from a full \
             queue",
            of("sync", "500 ms"),
            of("clock", "500 ms"),
        )
    })
}
