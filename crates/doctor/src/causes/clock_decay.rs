//! The clock has fallen while the GPU was idle, and comes back only with load.
//!
//! A full queue of equal kernels is timed kernel by kernel, straight after full load and after idle
//! times. Its loss is execution time beyond the same sample's own warm-up, so that a clock that
//! is lower for another reason (heat, a power limit) is in both, and a start that is late, memory that is
//! not there and a host that sleeps are in neither. What a prompt cache does is no GPU's business, and no
//! prompt is sent.
//!
//! After more than a second the bursts come last in a whole request, when the clock is already on its
//! way back: those are lower bounds, used where nothing shorter shows a loss.

use super::{Case, Cause, first_seen, list};
use crate::diagnosis::Finding;
use crate::effect::{Effect, Scale, effect, finding};
use crate::evidence::Taken;
use everwarm_stats::median;

pub const CAUSE: Cause = Cause {
    id: "clock-decay",
    name: "clock decay",
    about: "after an idle time the GPU starts at a lower clock and needs load to get it back",
    of_gpu: true,
    quick: true,
    judge,
    helps: &[
        "a hold keeps the clock up while requests are likely (`everwarm proxy`, `everwarm hold`)",
        "a pre-warm raises it while a request is on its way (hints to `everwarm proxy`)",
    ],
};

/// Half a millisecond is a hundredth of what a short prefill takes.
const SCALE: Scale = Scale { least: 0.5, tolerable: 3.0 };

const GAPS: [&str; 5] = ["50 ms", "100 ms", "200 ms", "500 ms", "1 s"];
const LONG: [&str; 2] = ["500 ms", "1 s"];
const LATE: [&str; 3] = ["1200 ms", "2 s", "5 s"];

fn judge(case: &Case<'_>) -> Finding {
    let evidence = case.evidence;
    let lost = |probe: &str, gaps: &[&str]| evidence.pooled(probe, gaps, Taken::lost);
    let soon = effect(&lost("clock", &["0"]), &lost("clock", &LONG));
    let late = effect(&lost("request", &["0"]), &lost("request", &LATE));
    first_seen(vec![
        finding(soon, SCALE, |effect| detail(case, effect)),
        finding(late, SCALE, |_| {
            let of = |gap| (gap, median(&lost("request", &[gap])));
            format!("only after long idle times: at least {}", list(&LATE.map(of)))
        }),
    ])
}

fn detail(case: &Case<'_>, effect: &Effect) -> String {
    let of = |gap| (gap, median(&case.evidence.numbers("clock", gap, Taken::lost)));
    let each = GAPS.map(of);
    let mut text = format!("a full queue loses {}", list(&each));
    let mut kept = each.iter().filter(|(_, ms)| ms.is_some_and(|ms| ms < 0.25 * effect.ms.point));
    if let Some((gap, _)) = kept.next_back() {
        text += &format!("; after {gap} the clock is still there");
    }
    let tails = case.evidence.pooled("clock", &LONG, |taken| Some(taken.burst()?.tail));
    if let Some(tail) = median(&tails).filter(|tail| *tail > 1.05) {
        let slow = 100.0 * (tail - 1.0);
        text += &format!("; {slow:.0} % slow at the probe's end, so longer work loses more");
    }
    text
}
