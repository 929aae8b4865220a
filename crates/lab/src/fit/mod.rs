//! A chip file from recorded runs: first what can be read off, then what simulation finds.
//!
//! P-states and counters of the runs are never looked at. Every fifth cell is kept back from both
//! stages; how well the fitted chip predicts it is part of the report.

mod curve;
mod direct;
mod hunt;
mod loss;
mod parameters;
mod runs;
mod simulate;
mod write;

use crate::ablate::Numbers;
use crate::export::cell_name;
use crate::scenario::Scenario;
use direct::direct;
use everwarm_dvfs::Traced;
use everwarm_fit::{Kernels, Step, findings};
use everwarm_record as record;

pub use everwarm_fit::{Finding, Findings};
use everwarm_units::Span;
use hunt::{Found, Hunt, Part};
use parameters::{SEARCHED, Searched};
use simulate::Model;
use std::collections::BTreeSet;
use toml::Value;

/// How a chip is fitted.
#[derive(Clone, Debug)]
pub struct Options {
    /// The clock at the top, where it is known. Unit: MHz.
    pub top_clock: Option<f64>,
    /// The chip that gives what runs don't show.
    pub default: Traced,
    /// The most simulations of the search; 0 for reading off only.
    pub budget: usize,
    /// How many simulations run at once; what is found does not depend on it.
    pub threads: usize,
}

/// Why nothing could be fitted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No runs.
    #[error("no recorded runs; record some with {PROBES_HINT}")]
    NoRuns,
    /// Runs of several devices.
    #[error("runs of different devices: {0}; expected runs of one")]
    Mixed(String),
    /// Runs of scenarios that are not the same but are called so.
    #[error("runs of different scenarios are all called `{0}`; expected one scenario a name")]
    Differs(String),
    /// A run that can't be repeated.
    #[error("a run of {device}{name} {why}")]
    Run {
        /// The run's device.
        device: String,
        /// ` (NAME)`, the scenario, if it has one.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// What the runs have in common does not suffice.
    #[error("{what}: record `everwarm lab run {probe} --device {device} -o {probe}.jsonl`")]
    Missing {
        /// What could not be read off.
        what: String,
        /// The scenario that shows it.
        probe: &'static str,
        /// The runs' device.
        device: String,
    },
    /// The fitted values make no chip.
    #[error("the runs give no chip: {0}")]
    NoChip(String),
}

const PROBES_HINT: &str = "`everwarm lab run fit-ramp -o fit-ramp.jsonl`, and so on for fit-gaps, \
                           fit-decay, fit-idle and fit-wake";

/// One value that was searched for.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its key in the chip file.
    pub key: String,
    /// Its value there; the default's if it was not identified.
    pub value: String,
    /// Between which values it is likely to be; `None` for one that was not identified. Unit: that of
    /// `unit`.
    pub interval: Option<(f64, f64)>,
    /// `ms`, `s`, or nothing for a number.
    pub unit: &'static str,
}

/// How well GPU times of cells that were kept back are predicted, as relative errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptBack {
    /// How many cells.
    pub cells: usize,
    /// Median, and nine in ten, of the fitted chip.
    pub fitted: (f64, f64),
    /// Median, and nine in ten, of the same chip before the search.
    pub default: (f64, f64),
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The runs' device.
    pub device: String,
    /// What all runs show.
    pub findings: Findings,
    /// What they do not show, and why.
    pub missing: Vec<(String, String)>,
    /// What was searched for.
    pub parameters: Vec<Parameter>,
    /// How well it predicts; `None` if nothing was kept back.
    pub kept_back: Option<KeptBack>,
    /// Loss before and after the search.
    pub loss: (f64, f64),
    /// The chip file.
    pub chip: String,
}

/// Fits a chip to `runs`; `progress` hears how many simulations of about how many are done.
///
/// # Errors
/// [`Error`]: runs that don't belong together or lack what nothing can do without.
pub fn fit(
    runs: &[record::Run],
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Fit, Error> {
    let (device, scenarios) = runs::check(runs)?;
    let all: Vec<Step> = runs::steps_of(runs);
    let kept = runs::kept_back(&all);
    let is_kept = |s: &Step| kept.contains(&(s.scenario.clone(), s.cell.clone()));
    let (held, train): (Vec<Step>, Vec<Step>) = all.iter().cloned().partition(is_kept);
    let (found_all, mut missing) = shown(&all, &device);
    missing.extend(runs::absent(&scenarios, &all));
    let seen = (1..3).filter(|n| found_all.contains_key(&format!("clock {n}"))).count();
    if seen == 0 {
        let what = "no kernel bound by the clock stayed at a rate".to_owned();
        return Err(Error::Missing { what, probe: "fit-ramp", device });
    }
    let train_kernels = Kernels::new(&train);
    let train_shown = findings(&train, &train_kernels, true);
    let counted = found_all.get("top clock").map(|f| f.value);
    let top_clock = options.top_clock.or(counted);
    let mut set = direct(&train_shown, &train_kernels, &options.default.chip, top_clock);
    let numbers = Numbers::new(&options.default);
    let fixed: Vec<(String, Value)> =
        set.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect();
    let searched: Vec<&Searched> =
        SEARCHED.iter().filter(|s| is_searched(s, &numbers, &fixed)).collect();
    let model = Model { numbers: &numbers, fixed: &fixed, searched: &searched };
    let starts: Vec<f64> =
        searched.iter().map(|s| start(s, &numbers, &fixed, &train_shown)).collect();
    let first = model.chip(&starts).map_err(Error::NoChip)?;
    let once: Vec<Scenario> = scenarios.iter().map(simulate::once).collect();
    let mut fitted = first.clone();
    let mut loss = (f64::NAN, f64::NAN);
    let mut parameters = Vec::new();
    if options.budget > 0 {
        let parts = parts(&scenarios, &all);
        let goal = loss::Goal::new(&loss::rounds(&train));
        let mut hunt = Hunt::new(&model, &goal, &parts, options.threads, options.budget);
        let total = options.budget;
        let found = hunt.run(&starts, &mut |used| progress(used as usize, total));
        let (values, told) = settled(&mut hunt, &found, &starts);
        loss = (found.first.loss, found.best.loss);
        fitted = model.chip(&values).map_err(Error::NoChip)?;
        for (parameter, value) in told.iter().zip(&values) {
            let one = searched.iter().find(|s| s.key == parameter.key).expect("one of them");
            let comment = match parameter.interval {
                Some((lo, hi)) => format!("fitted [{lo:.4} .. {hi:.4}] {}", one.unit),
                None => "not identified".to_owned(),
            };
            set.retain(|(key, ..)| key != one.key);
            set.push((one.key.to_owned(), one.value(*value), comment.trim().to_owned()));
        }
        parameters = told;
    } else {
        set.extend(unsearched(&searched, &starts, &numbers));
    }
    let kept_back = (!held.is_empty()).then(|| {
        let errors = |chip| {
            let simulated: Vec<Step> =
                once.iter().flat_map(|scenario| simulate::steps(scenario, chip)).collect();
            loss::errors(&held, &simulated)
        };
        KeptBack { cells: kept.len(), fitted: errors(&fitted), default: errors(&first) }
    });
    let chip = write::chip_file(&options.default, &set, &device);
    Ok(Fit { device, findings: found_all, missing, parameters, kept_back, loss, chip })
}

/// The values with which a search would begin, for the file.
fn unsearched(searched: &[&Searched], starts: &[f64], numbers: &Numbers) -> Vec<direct::Set> {
    let known = |one: &Searched| numbers.value(one.key).and_then(|value| one.number(value));
    let of = |(one, value): (&&Searched, &f64)| {
        let hinted = known(one).is_some_and(|known| (known / value - 1.0).abs() > 1e-3);
        let comment =
            if hinted { "not searched: a hint of the runs" } else { "not searched: default" };
        (one.key.to_owned(), one.value(*value), comment.to_owned())
    };
    let not_read = |(one, _): &(&&Searched, &f64)| !one.key.starts_with("wake.");
    searched.iter().zip(starts).filter(not_read).map(of).collect()
}

/// Each scenario as a whole and as a sketch, with its share of the buffers.
fn parts(scenarios: &[Scenario], all: &[Step]) -> Vec<Part> {
    let buffers = |scenario: &Scenario, most: f64| -> f64 {
        let cells: BTreeSet<String> =
            scenario.cells.iter().map(|c| cell_name(&c.variables).unwrap_or_default()).collect();
        let own = all.iter().filter(|s| s.scenario == scenario.name && s.round == 0);
        let of = |s: &Step| {
            let from = s.buffers.first().map_or(0.0, |b| b.start);
            s.buffers.iter().filter(|b| b.start < from + most).count() as f64
        };
        own.filter(|s| cells.contains(&s.cell)).map(of).sum()
    };
    let sum: f64 = scenarios.iter().map(|s| buffers(s, f64::INFINITY)).sum();
    let part = |scenario: &Scenario, sketch: bool| {
        let (own, most) = match sketch {
            true => (simulate::sketch(scenario, SKETCHED, CUT), CUT.as_ms()),
            false => (scenario.clone(), f64::INFINITY),
        };
        let cost = buffers(&own, most) / sum.max(1.0);
        Part { scenario: simulate::once(&own), cost, sketch }
    };
    scenarios.iter().flat_map(|s| [part(s, true), part(s, false)]).collect()
}

/// How much of a cell's end a sketch keeps.
const CUT: Span = Span::ms(500);
/// How many of a scenario's cells a sketch has, at most.
const SKETCHED: usize = 16;

/// The values as they go into the file, and what is said of each: one that could be anything goes back
/// to where the search began, unless that costs.
fn settled(hunt: &mut Hunt<'_>, found: &Found, starts: &[f64]) -> (Vec<f64>, Vec<Parameter>) {
    let searched = hunt.model.searched;
    let mut values = found.best.values.clone();
    let mut parameters = Vec::new();
    for (n, one) in searched.iter().enumerate() {
        let (at, width) = (one.coordinate(values[n]), found.widths[n]);
        let interval = (width < ANYTHING).then(|| (one.at(at - width), one.at(at + width)));
        if interval.is_none() {
            let mut back = values.clone();
            back[n] = starts[n];
            if hunt.worth(&back) <= found.best.loss * (1.0 + 0.2 * hunt::TOLERANCE) {
                values = back;
            }
        }
        let value = write::shown(&one.value(values[n]));
        parameters.push(Parameter { key: one.key.to_owned(), value, interval, unit: one.unit });
    }
    (values, parameters)
}

/// A coordinate that may be so far off says nothing. Unit: spreads of the parameter.
const ANYTHING: f64 = 3.0;

/// How well `chip` predicts what [`fit`] keeps back of `runs`: median, and nine in ten.
///
/// # Errors
/// [`Error`] for runs that don't belong together.
pub fn predicts(runs: &[record::Run], chip: &everwarm_dvfs::Chip) -> Result<(f64, f64), Error> {
    let (_, scenarios) = runs::check(runs)?;
    let all: Vec<Step> = runs::steps_of(runs);
    let kept = runs::kept_back(&all);
    let is_kept = |s: &&Step| kept.contains(&(s.scenario.clone(), s.cell.clone()));
    let held: Vec<Step> = all.iter().filter(is_kept).cloned().collect();
    let once = scenarios.iter().map(simulate::once);
    let simulated: Vec<Step> = once.flat_map(|s| simulate::steps(&s, chip)).collect();
    Ok(loss::errors(&held, &simulated))
}

/// What runs of one device show, and what they don't and why.
///
/// # Errors
/// [`Error`] for runs that don't belong together.
pub fn read_off(runs: &[record::Run]) -> Result<(Findings, Vec<(String, String)>), Error> {
    let (device, _) = runs::check(runs)?;
    Ok(shown(&runs::steps_of(runs), &device))
}

fn shown(all: &[Step], device: &str) -> (Findings, Vec<(String, String)>) {
    let found = findings(all, &Kernels::new(all), true);
    let missing = runs::missing(all, &found, device);
    (found, missing)
}

/// The chip has the parameter, and it could not be read off.
fn is_searched(searched: &Searched, numbers: &Numbers, fixed: &[(String, Value)]) -> bool {
    let known = numbers.value(searched.key).and_then(|value| searched.number(value)).is_some();
    known
        && (searched.key.starts_with("wake.") || !fixed.iter().any(|(key, _)| key == searched.key))
}

/// Where the search for a parameter begins: what was read off, or hints at it, or the default.
fn start(
    searched: &Searched,
    numbers: &Numbers,
    fixed: &[(String, Value)],
    shown: &Findings,
) -> f64 {
    let read = fixed.iter().find(|(key, _)| key == searched.key).map(|(_, value)| value);
    let value = read.or_else(|| numbers.value(searched.key)).and_then(|v| searched.number(v));
    let of = |name: &str| shown.get(name).map(|f| f.value);
    let hint = match searched.key {
        // A commit is known to the firmware about half of the way to its start.
        "host.commit_to_firmware" => of("commit to start").map(|ms| 0.55 * ms),
        "controller.credited_gap" => of("cliff of kernel 1")
            .zip(of("commit to start"))
            .map(|(gap, start)| gap - 0.45 * start),
        _ => None,
    };
    hint.or(value).unwrap_or(searched.min).clamp(searched.min, searched.max)
}
