//! A chip file from recorded runs: first what can be read off, then what simulation finds.
//!
//! P-states and counters of the runs are never looked at. Every fifth cell is kept back from both
//! stages; how well the fitted chip predicts it is part of the report.

mod direct;
mod loss;
mod parameters;
mod runs;
mod write;

use crate::ablate::Numbers;
use direct::direct;
use everwarm_dvfs::Traced;
use everwarm_fit::{Axis, Kernels, Step, findings, search, steps};
use everwarm_record as record;

pub use everwarm_fit::{Finding, Findings};
use loss::Model;
use parameters::{SEARCHED, Searched};
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
    /// Between which values the loss stays low; `None` for one that was not identified. Unit: of
    /// the value.
    pub interval: Option<(f64, f64)>,
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
    let (device, mut scenarios) = runs::check(runs)?;
    let all: Vec<Step> = runs.iter().flat_map(steps).collect();
    let kept = runs::kept_back(&all);
    let is_kept = |s: &Step| kept.contains(&(s.scenario.clone(), s.cell.clone()));
    let (held, train): (Vec<Step>, Vec<Step>) = all.iter().cloned().partition(is_kept);
    let (found_all, missing) = shown(&all);
    let seen = (1..3).filter(|n| found_all.contains_key(&format!("clock {n}"))).count();
    if seen == 0 {
        let what = "no kernel bound by the clock stayed at a rate".to_owned();
        return Err(Error::Missing { what, probe: "fit-ramp", device });
    }
    let train_kernels = Kernels::new(&train);
    let train_shown = findings(&train, &train_kernels, true);
    let mut set = direct(&train_shown, &train_kernels, &options.default.chip, options.top_clock);
    let numbers = Numbers::new(&options.default);
    let searched: Vec<&Searched> =
        SEARCHED.iter().filter(|s| start(&numbers, s).is_some()).collect();
    for scenario in &mut scenarios {
        scenario.rounds = scenario.rounds.min(2);
    }
    let model = Model { numbers: &numbers, searched: &searched, scenarios: &scenarios };
    let pairs = |set: &[direct::Set]| -> Vec<(String, Value)> {
        set.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect()
    };
    let fixed = pairs(&set);
    let first = model.chip(&fixed, &[]).map_err(Error::NoChip)?;
    let axes: Vec<Axis> = searched.iter().map(|s| axis(&numbers, s)).collect();
    let starts: Vec<f64> = axes.iter().map(|a| a.start).collect();
    let goal = loss::Goal::new(&train, &train_shown);
    let total = options.budget + 8 * axes.len();
    let mut done = 0;
    let mut parameters = Vec::new();
    let mut loss = (f64::NAN, f64::NAN);
    let mut values = starts;
    if options.budget > 0 {
        let found = search(&axes, options.budget, 0.05, &mut |values| {
            done += 1;
            progress(done, total);
            let chip = model.chip(&fixed, values).ok();
            chip.map_or(f64::INFINITY, |chip| {
                goal.loss(&model.run(&chip, &|key| !kept.contains(key)))
            })
        });
        loss = (found.loss_start, found.loss);
        for (n, (one, interval)) in searched.iter().zip(&found.intervals).enumerate() {
            let default = numbers.value(one.key).cloned().unwrap_or(Value::Boolean(false));
            let value = match interval {
                Some(_) => one.value(found.values[n]),
                None => default,
            };
            if interval.is_some() {
                values[n] = found.values[n];
            }
            let comment = interval.map_or("not identified: default".to_owned(), |(lo, hi)| {
                format!("fitted [{lo:.4} .. {hi:.4}] {}", one.unit)
            });
            parameters.push(Parameter {
                key: one.key.to_owned(),
                value: write::shown(&value),
                interval: *interval,
            });
            set.push((one.key.to_owned(), value, comment));
        }
    }
    let chip = model.chip(&fixed, &values).map_err(Error::NoChip)?;
    let kept_back = (!held.is_empty()).then(|| {
        let errors = |chip| loss::errors(&held, &model.run(chip, &|key| kept.contains(key)));
        KeptBack { cells: kept.len(), fitted: errors(&chip), default: errors(&first) }
    });
    let chip = write::chip_file(&options.default, &set, &device);
    Ok(Fit { device, findings: found_all, missing, parameters, kept_back, loss, chip })
}

/// What runs of one device show, and what they don't and why.
///
/// # Errors
/// [`Error`] for runs that don't belong together.
pub fn read_off(runs: &[record::Run]) -> Result<(Findings, Vec<(String, String)>), Error> {
    runs::check(runs)?;
    Ok(shown(&runs.iter().flat_map(steps).collect::<Vec<_>>()))
}

fn shown(all: &[Step]) -> (Findings, Vec<(String, String)>) {
    let found = findings(all, &Kernels::new(all), true);
    let missing = runs::missing(all, &found);
    (found, missing)
}

/// Where the search for a parameter begins: the default chip's value.
fn start(numbers: &Numbers, searched: &Searched) -> Option<f64> {
    searched.number(numbers.value(searched.key)?)
}

fn axis(numbers: &Numbers, searched: &Searched) -> Axis {
    let start = start(numbers, searched).unwrap_or(searched.min);
    Axis { start, min: searched.min, max: searched.max, whole: searched.whole }
}
