//! Holds a device against claims: runs each scenario once, takes the measures, gives verdicts.

use super::{Claim, Claims, Origin};
use crate::data::RunData;
use crate::interpret;
use crate::measure::{Measured, Order, Unit};
use crate::scenario::Scenario;
use everwarm_dvfs::Chip;
use everwarm_gpu::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What became of one claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The claim's id.
    pub id: String,
    /// One value, or one a cell, in the claim's unit.
    pub measured: Option<Vec<f64>>,
    /// The unit of `measured`.
    pub unit: String,
    /// True if everything measured is as claimed.
    pub held: bool,
    /// Why it was not measured, or what else is wrong with it.
    pub reason: Option<String>,
}

/// What a device said to all claims of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The device.
    pub device: String,
    /// One for each claim, in the file's order.
    pub verdicts: Vec<Verdict>,
}

impl Report {
    /// How many claims hold.
    pub fn held(&self) -> usize {
        self.verdicts.iter().filter(|v| v.held).count()
    }
}

/// Checks every claim on the device `id`; `progress` hears of each scenario that has ended.
///
/// Scenarios that claims share run once. On a device in virtual time several run at once, each on a
/// machine of its own; the results do not depend on that.
///
/// # Errors
/// If the device can't be opened. A scenario that it can't run gives its claims a reason.
pub fn check(claims: &Claims, id: &str, progress: Progress<'_>) -> Result<Report, Error> {
    let at_once = everwarm_gpu::open(id)?.device().virtual_time;
    let run = |scenario: &Scenario| interpret::run(scenario, id);
    Ok(Report { device: id.to_owned(), verdicts: verdicts(claims, at_once, &run, progress) })
}

/// Checks every claim on a simulated GPU with `chip`, which need not stand in a file.
pub fn check_chip(claims: &Claims, chip: &Chip, progress: Progress<'_>) -> Report {
    let run = |scenario: &Scenario| interpret::run_on_chip(scenario, chip);
    let verdicts = verdicts(claims, true, &run, progress);
    Report { device: format!("sim:{}", chip.id), verdicts }
}

/// Told how many scenarios of how many have ended, and which was the last.
pub type Progress<'a> = &'a (dyn Fn(usize, usize, &str) + Sync);

fn verdicts(
    claims: &Claims,
    at_once: bool,
    run: &(dyn Fn(&Scenario) -> Result<RunData, interpret::Error> + Sync),
    progress: Progress<'_>,
) -> Vec<Verdict> {
    let plan = Plan::new(claims);
    let threads = if at_once { threads() } else { 1 };
    // The measures are taken where the run is, so that only one run a thread is in memory.
    let done = AtomicUsize::new(0);
    let verdicts = in_parallel(threads, plan.scenarios.len(), |n| {
        let scenario = &plan.scenarios[n];
        let run = run(scenario).map_err(|error| error.to_string());
        let verdicts = plan.verdicts(n, &run);
        progress(done.fetch_add(1, Ordering::Relaxed) + 1, plan.scenarios.len(), &scenario.name);
        verdicts
    });
    plan.in_order(verdicts.into_iter().flatten())
}

/// How many runs in virtual time go on at once.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Claims by the scenarios that they share.
pub(crate) struct Plan<'a> {
    claims: &'a Claims,
    /// Each different scenario once.
    pub scenarios: Vec<Arc<Scenario>>,
    /// For each claim, the index of its scenario.
    of_claim: Vec<Option<usize>>,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(claims: &'a Claims) -> Self {
        let mut scenarios: Vec<Arc<Scenario>> = Vec::new();
        let mut index = |claim: &Claim| {
            let Origin::Known { scenario, .. } = &claim.origin else { return None };
            let known = scenarios.iter().position(|s| same(s, scenario));
            Some(known.unwrap_or_else(|| {
                scenarios.push(scenario.clone());
                scenarios.len() - 1
            }))
        };
        let of_claim = claims.claims.iter().map(&mut index).collect();
        Plan { claims, scenarios, of_claim }
    }

    /// What a run of scenario `n` says to the claims that are about it, each with its index.
    pub(crate) fn verdicts(
        &self,
        n: usize,
        run: &Result<RunData, String>,
    ) -> Vec<(usize, Verdict)> {
        let all = self.claims.claims.iter().enumerate();
        let mine = all.filter(|(c, _)| self.of_claim[*c] == Some(n));
        mine.map(|(c, claim)| (c, verdict(claim, run))).collect()
    }

    /// One verdict for each claim, in the file's order.
    ///
    /// # Panics
    /// If one is missing whose scenario is known.
    pub(crate) fn in_order(&self, found: impl Iterator<Item = (usize, Verdict)>) -> Vec<Verdict> {
        let mut all: Vec<Option<Verdict>> = self.claims.claims.iter().map(|_| None).collect();
        for (claim, verdict) in found {
            all[claim] = Some(verdict);
        }
        let known = |(claim, verdict): (&Claim, Option<Verdict>)| {
            verdict.unwrap_or_else(|| match &claim.origin {
                Origin::Unknown(why) => claim.unanswered(why.clone()),
                Origin::Known { .. } => unreachable!("each known scenario was run"),
            })
        };
        self.claims.claims.iter().zip(all).map(known).collect()
    }
}

fn same(a: &Arc<Scenario>, b: &Arc<Scenario>) -> bool {
    // Names do not matter: what is submitted does.
    Arc::ptr_eq(a, b) || {
        let unnamed =
            |s: &Scenario| Scenario { name: String::new(), about: String::new(), ..s.clone() };
        unnamed(a) == unnamed(b)
    }
}

/// `work(0..n)` on several threads; the results in order.
pub(crate) fn in_parallel<T: Send>(
    threads: usize,
    n: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                i if i < n => done.push((i, work(i))),
                _ => return done,
            }
        }
    };
    let mut all: Vec<(usize, T)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(n).max(1)).map(|_| scope.spawn(worker)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<_>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    });
    all.sort_by_key(|(i, _)| *i);
    all.into_iter().map(|(_, result)| result).collect()
}

fn verdict(claim: &Claim, run: &Result<RunData, String>) -> Verdict {
    let Origin::Known { measure, .. } = &claim.origin else {
        unreachable!("only claims with a scenario are asked")
    };
    let measured = run.as_ref().map_err(Clone::clone).and_then(|run| measure.take(run));
    match measured.and_then(|measured| claim.in_unit(measured)) {
        Err(reason) => claim.unanswered(reason),
        Ok((values, unit, order)) => {
            let order = order.map(|order| match order {
                Order::NonIncreasing => "the cells do not fall in order".to_owned(),
                Order::NonDecreasing => "the cells do not rise in order".to_owned(),
            });
            let held = claim.expect.holds(&values) && order.is_none();
            let reason = order.or_else(|| claim.expect.miscounted(values.len()));
            Verdict { id: claim.id.clone(), measured: Some(values), unit, held, reason }
        }
    }
}

impl Claim {
    /// The verdict on a claim that was not measured.
    fn unanswered(&self, reason: String) -> Verdict {
        let unit = self.unit.map_or("", |unit| unit.name).to_owned();
        Verdict { id: self.id.clone(), measured: None, unit, held: false, reason: Some(reason) }
    }

    /// Measured values in the claim's unit.
    fn in_unit(&self, measured: Measured) -> Result<(Vec<f64>, String, Option<Order>), String> {
        let unit = self.unit.unwrap_or(Unit::of(measured.dimension));
        if unit.dimension != measured.dimension {
            return Err(format!(
                "the measure is {} and can't be given in {}",
                Unit::of(measured.dimension).name,
                unit.name
            ));
        }
        // Twelve digits: what floating-point arithmetic adds beyond them is not measured.
        let round = |value: f64| format!("{value:.11e}").parse().unwrap_or(value);
        let values = measured.values.iter().map(|value| round(value / unit.size)).collect();
        Ok((values, unit.name.to_owned(), measured.out_of_order))
    }
}
