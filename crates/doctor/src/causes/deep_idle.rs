//! After a second or more the GPU is in a deeper sleep, which costs more to leave.
//!
//! A small kernel after 2 and 5 s of idle, from its commit to its end, less the execution of the one right
//! after it: both run at the same clock, so that a clock that has fallen further is not counted. Held
//! against the same after 200 and 500 ms, when the power is off, too.

use super::{Case, Cause, list};
use crate::diagnosis::Finding;
use crate::effect::{effect, finding};
use crate::evidence::{Taken, execution};
use everwarm_stats::median;

pub const CAUSE: Cause = Cause {
    id: "deep-idle",
    name: "deep idle",
    about: "after a second or more without work the GPU takes longer to come back than after a shorter time",
    of_gpu: true,
    quick: false,
    judge,
    helps: &["a hold, or any work in time, keeps the GPU from sleeping so deeply"],
};

const LONG: [&str; 2] = ["2 s", "5 s"];

fn judge(case: &Case<'_>) -> Finding {
    let evidence = case.evidence;
    let burst = |taken: &Taken| Some(taken.burst()?.first);
    let mut base = evidence.pooled("clock", &["200 ms", "500 ms"], burst);
    base.extend(evidence.numbers("request", "500 ms", knock));
    let with = evidence.pooled("request", &LONG, knock);
    finding(effect(&base, &with), case.by_stamps(0.2, 1.5), |_| {
        let usual = median(&base).unwrap_or(0.0);
        let of = |gap| (gap, median(&evidence.numbers("request", gap, knock)).map(|ms| ms - usual));
        format!("beyond what half a second costs: {}", list(&["1200 ms", "2 s", "5 s"].map(of)))
    })
}

/// From the first kernel's commit to its end, less the execution of the second one.
fn knock(taken: &Taken) -> Option<f64> {
    let (first, second) = (taken.dispatch("knock", 0)?, taken.dispatch("knock", 1)?);
    Some(first.gpu_end.since(first.committed).as_ms() - execution(second))
}
