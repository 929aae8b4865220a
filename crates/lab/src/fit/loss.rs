//! How far a simulated chip is from recorded runs.
//!
//! Two kinds of distance, as logarithms of ratios: of what is read off both by the same code, and
//! of the times of command buffers at the same place of the same step.

use super::parameters::Searched;
use crate::ablate::Numbers;
use crate::export::{manifest, records};
use crate::interpret::run_on_chip;
use crate::scenario::Scenario;
use everwarm_dvfs::Chip;
use everwarm_fit::{Findings, Kernels, Step, findings, steps};
use everwarm_stats::{mean, median, quantile};
use std::collections::BTreeMap;
use toml::Value;

/// Scenario and cell.
pub(super) type Key = (String, String);

/// A chip that is searched for, and what it has to do.
pub(super) struct Model<'a> {
    pub numbers: &'a Numbers,
    pub searched: &'a [&'a Searched],
    pub scenarios: &'a [Scenario],
}

impl Model<'_> {
    /// The chip with values that are known, and some of those that are searched for.
    pub fn chip(&self, fixed: &[(String, Value)], values: &[f64]) -> Result<Chip, String> {
        let mut set = fixed.to_vec();
        let found = self.searched.iter().zip(values);
        set.extend(found.map(|(one, value)| (one.key.to_owned(), one.value(*value))));
        self.numbers.with(&set).map(|variant| variant.chip).map_err(|wrong| wrong.why)
    }

    /// Simulates all cells, as what ran before one matters to it, and keeps those that `wanted` names;
    /// of two rounds the second, as the first begins with a machine that has never done anything.
    pub fn run(&self, chip: &Chip, wanted: &dyn Fn(&Key) -> bool) -> Vec<Step> {
        let mut all = Vec::new();
        for scenario in self.scenarios {
            if let Ok(run) = run_on_chip(scenario, chip) {
                let mut run = records(&run, manifest(&run, ""));
                if let Some(own) = &mut run.manifest.scenario {
                    own.name.clone_from(&scenario.name);
                }
                let last = scenario.rounds.saturating_sub(1);
                let key = |step: &Step| (step.scenario.clone(), step.cell.clone());
                let kept = steps(&run).into_iter();
                all.extend(kept.filter(|step| step.round == last && wanted(&key(step))));
            }
        }
        all
    }
}

/// Places of a step at which buffers are compared.
const PLACES: usize = 24;

/// Times of buffers at some places of each step, medians over rounds. Unit: ms.
type Profiles = BTreeMap<(String, String, String), Vec<f64>>;

fn profiles(all: &[Step]) -> Profiles {
    let mut groups: BTreeMap<(String, String, String), Vec<&Step>> = BTreeMap::new();
    for step in all {
        let key = (step.scenario.clone(), step.cell.clone(), step.label.clone());
        groups.entry(key).or_default().push(step);
    }
    let profile = |steps: Vec<&Step>| {
        // The longest step counts the places: a shorter round ends early.
        let len = steps.iter().map(|s| s.buffers.len()).max().unwrap_or(0);
        let at = |place: usize| {
            let took = steps.iter().filter_map(|s| s.buffers.get(place)).map(|b| b.took());
            median(&took.collect::<Vec<_>>()).unwrap_or(0.0)
        };
        places(len).map(at).collect()
    };
    groups.into_iter().map(|(key, steps)| (key, profile(steps))).collect()
}

/// Places that are dense at the beginning. They do not depend on the length of a step, so that the
/// same ones are compared in steps of different lengths.
fn places(len: usize) -> impl Iterator<Item = usize> {
    let place = |n: usize| (n as f64 * 1.28_f64.powf(n as f64 * 0.6)).round() as usize;
    (0..PLACES).map(place).take_while(move |place| *place < len)
}

/// What a chip has to show.
pub(super) struct Goal {
    profiles: Profiles,
    findings: Findings,
}

/// A difference beyond this counts no more: one that can't be had must not rule the others.
const WORST: f64 = 1.5;

impl Goal {
    pub fn new(train: &[Step], shown: &Findings) -> Goal {
        let mut findings = shown.clone();
        findings.retain(|name, _| ["ramp", "cliff", "decay"].iter().any(|n| name.starts_with(n)));
        Goal { profiles: profiles(train), findings }
    }

    /// Mean distance of what is read off plus that of the times.
    pub fn loss(&self, simulated: &[Step]) -> f64 {
        let own = findings(simulated, &Kernels::new(simulated), false);
        let distance = |(name, goal): (&String, &everwarm_fit::Finding)| {
            let Some(found) = own.get(name) else { return WORST };
            ((found.value.max(1e-3)) / goal.value.max(1e-3)).ln().abs().min(WORST)
        };
        let read: Vec<f64> = self.findings.iter().map(distance).collect();
        let own = profiles(simulated);
        let times: Vec<f64> = self
            .profiles
            .iter()
            .filter_map(|(key, goal)| {
                let ratios = |(a, b): (&f64, &f64)| (a / b).ln().abs().min(WORST);
                mean(&goal.iter().zip(own.get(key)?).map(ratios).collect::<Vec<_>>())
            })
            .collect();
        mean(&read).unwrap_or(0.0) + mean(&times).unwrap_or(0.0)
    }
}

/// Relative errors of buffers' times: the median, and that of nine in ten.
pub(super) fn errors(held: &[Step], simulated: &[Step]) -> (f64, f64) {
    let own = profiles(simulated);
    let mut all = Vec::new();
    for (key, goal) in profiles(held) {
        let Some(found) = own.get(&key) else { continue };
        all.extend(goal.iter().zip(found).map(|(goal, found)| (found / goal - 1.0).abs()));
    }
    (median(&all).unwrap_or(f64::NAN), quantile(&all, 0.9).unwrap_or(f64::NAN))
}
