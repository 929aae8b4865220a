//! The GPU's power goes soon after its queue is empty, and comes back with the next command buffer.
//!
//! Seen where the clock does not matter: a read of memory after 20 and 200 ms, against one straight
//! after work. What counts is the first read from its commit to its end, beyond what a steady one
//! executes. It has to be there on the host's clock and on the GPU's: two clocks that drift apart with
//! idle time look like a late start on one of them, a host that wakes late on the other.

use super::{Case, Cause};
use crate::diagnosis::Finding;
use crate::effect::{effect, finding};
use crate::evidence::{Taken, execution, observed, start};
use everwarm_stats::median;

pub const CAUSE: Cause = Cause {
    id: "power-gating",
    name: "power gating",
    about: "the GPU is switched off soon after its last work, and the next work waits until it is on",
    of_gpu: true,
    quick: true,
    judge,
    helps: &["a hold keeps the power on; by itself this is seldom worth its energy"],
};

const GAPS: [&str; 2] = ["20 ms", "200 ms"];

fn judge(case: &Case<'_>) -> Finding {
    let evidence = case.evidence;
    let base = evidence.numbers("stream", "0", first);
    let with = evidence.pooled("stream", &GAPS, first);
    finding(effect(&base, &with), case.by_stamps(0.1, 1.0), |_| {
        let part = |number: fn(&Taken) -> Option<f64>| {
            let base = median(&evidence.numbers("stream", "0", number)).unwrap_or(0.0);
            median(&evidence.pooled("stream", &GAPS, number)).unwrap_or(0.0) - base
        };
        format!(
            "after 20 ms and more: {:.2} ms until the first command buffer starts, {:.2} ms within it",
            part(|taken| Some(start(taken.dispatch("read", 0)?))),
            part(|taken| Some(execution(taken.dispatch("read", 0)?) - steady(taken)?)),
        )
    })
}

/// From commit to end of the first read, less what a steady one executes, on the clock that shows less.
fn first(taken: &Taken) -> Option<f64> {
    let first = taken.dispatch("read", 0)?;
    let by_gpu = start(first) + execution(first);
    let others = &taken.step("read")?.dispatches[1..];
    let usual = median(&others.iter().map(observed).collect::<Vec<_>>())?;
    let by_host = first.observed.since(first.committed).as_ms() - usual;
    Some(by_gpu.min(by_host) - steady(taken)?)
}

/// What a read executes when the memory is there.
fn steady(taken: &Taken) -> Option<f64> {
    median(&taken.step("read")?.dispatches[2..].iter().map(execution).collect::<Vec<_>>())
}
