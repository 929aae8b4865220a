//! The host itself comes late: its thread wakes late, or its CPU runs slowly at first.
//!
//! After rests of some hundred milliseconds, against rests of a millisecond and none. A CPU that is slow
//! all the time is slow in both and no cause of a *cold* first token; a timer that is always late is
//! late in both.

use super::{Case, Cause, first_seen};
use crate::diagnosis::Finding;
use crate::effect::{Scale, effect, finding};
use crate::host::Rested;

pub const CAUSE: Cause = Cause {
    id: "host-wake",
    name: "host wake-up",
    about: "after a rest the host's thread wakes late, or its CPU works slowly until its clock has risen",
    of_gpu: false,
    quick: true,
    judge,
    helps: &[
        "a performance governor, or a process that keeps a core from sleeping; everwarm does not touch the CPU",
    ],
};

const SCALE: Scale = Scale { least: 0.2, tolerable: 3.0 };

fn judge(case: &Case<'_>) -> Finding {
    let rests = case.rests;
    let late = |all: &[Rested]| all.iter().map(|rested| rested.late).collect::<Vec<_>>();
    let work = |all: &[Rested]| all.iter().filter_map(|rested| rested.work).collect::<Vec<_>>();
    let wakes = effect(&late(&rests.short), &late(&rests.long));
    let mut findings = vec![finding(wakes, SCALE, |_| {
        "later than after a rest of a millisecond, until a thread runs again".to_owned()
    })];
    let works = effect(&work(&rests.none), &work(&rests.long));
    // Where there is no CPU to ask, sleep is all there is to know.
    if works.is_some() {
        findings.push(finding(works, SCALE, |_| {
            "that a millisecond of the CPU's work takes longer after a rest".to_owned()
        }));
    }
    first_seen(findings)
}
