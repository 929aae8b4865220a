//! Checks claims on variants of a model, all at once.
//!
//! A scenario in which nothing differs from the whole model is not run again. The results do not
//! depend on the number of threads.

use super::numbers::Variant;
use crate::claims::{Plan, Verdict, in_parallel, threads};
use crate::interpret;
use crate::scenario::{Scenario, StepKind};
use everwarm_workload::Runtime;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The verdicts on the whole model, and on each variant.
pub(crate) fn check_variants(
    plan: &Plan<'_>,
    whole: &Variant,
    variants: &[Variant],
    progress: &(dyn Fn(usize, usize) + Sync),
) -> (Vec<Verdict>, Vec<Vec<Verdict>>) {
    let all: Vec<&Variant> = std::iter::once(whole).chain(variants).collect();
    let mut jobs = Vec::new();
    for (v, variant) in all.iter().enumerate() {
        for (n, scenario) in plan.scenarios.iter().enumerate() {
            let scenario = with_runtimes(scenario, whole, variant);
            let same = matches!(scenario, Cow::Borrowed(_)) && variant.chip == whole.chip;
            if v == 0 || !same {
                jobs.push((v, n, scenario));
            }
        }
    }
    let done = AtomicUsize::new(0);
    let found = in_parallel(threads(), jobs.len(), |job| {
        let (v, n, scenario) = &jobs[job];
        let run = interpret::run_on_chip(scenario, &all[*v].chip).map_err(|e| e.to_string());
        let verdicts = plan.verdicts(*n, &run);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, jobs.len());
        (*v, *n, verdicts)
    });
    let of = |wanted: usize| found.iter().filter(move |(v, ..)| *v == wanted);
    let assembled = |v: usize| {
        let ran: BTreeSet<usize> = of(v).map(|(_, n, _)| *n).collect();
        // The whole model's verdicts where nothing differs.
        let rest = of(0).filter(|(_, n, _)| !ran.contains(n));
        plan.in_order(of(v).chain(rest).flat_map(|(.., verdicts)| verdicts.iter().cloned()))
    };
    (assembled(0), (1..all.len()).map(assembled).collect())
}

/// The scenario with the variant's runtimes in place of the whole model's; borrowed if none
/// of them takes part.
fn with_runtimes<'s>(
    scenario: &'s Scenario,
    whole: &Variant,
    variant: &Variant,
) -> Cow<'s, Scenario> {
    let pairs = whole.runtimes.iter().zip(&variant.runtimes);
    let changed: Vec<(&Runtime, &Runtime)> = pairs.filter(|(a, b)| a != b).collect();
    let other = |kind: &StepKind| match kind {
        StepKind::Model { runtime, .. } => {
            changed.iter().find(|(before, _)| *before == runtime.as_ref()).map(|(_, after)| *after)
        }
        _ => None,
    };
    let mut all = scenario.cells.iter().flat_map(|c| &c.actors).flat_map(|a| &a.steps);
    if !all.any(|step| other(&step.kind).is_some()) {
        return Cow::Borrowed(scenario);
    }
    let mut scenario = scenario.clone();
    let actors = scenario.cells.iter_mut().flat_map(|cell| &mut cell.actors);
    for step in actors.flat_map(|actor| &mut actor.steps) {
        if let Some(after) = other(&step.kind)
            && let StepKind::Model { runtime, .. } = &mut step.kind
        {
            **runtime = after.clone();
        }
    }
    Cow::Owned(scenario)
}
