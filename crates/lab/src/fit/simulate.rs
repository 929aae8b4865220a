//! Candidates run through the recorded scenarios.
//!
//! Nothing here is made into records: a candidate costs what its simulation costs.

use super::curve::{Curve, curve};
use super::parameters::Searched;
use crate::ablate::Numbers;
use crate::data::{RunData, Unit};
use crate::export::cell_name;
use crate::interpret::run_on_chip;
use crate::scenario::{Order, Scenario, StepKind, Until};
use everwarm_dvfs::Chip;
use everwarm_fit::{Buffer, Step};
use everwarm_units::Span;
use toml::Value;

/// Scenario, cell, label of the step.
pub(super) type Key = (String, String, String);

/// A chip that is searched for, and what it has to do.
pub(super) struct Model<'a> {
    pub numbers: &'a Numbers,
    pub fixed: &'a [(String, Value)],
    pub searched: &'a [&'a Searched],
}

impl Model<'_> {
    /// The chip with values that are known, and some of those that are searched for.
    pub fn chip(&self, values: &[f64]) -> Result<Chip, String> {
        let mut set = self.fixed.to_vec();
        let found = self.searched.iter().zip(values);
        set.extend(found.map(|(one, value)| (one.key.to_owned(), one.value(*value))));
        self.numbers.with(&set).map(|variant| variant.chip).map_err(|wrong| wrong.why)
    }
}

/// A scenario for one round, with its last cell ahead: what ran before a cell matters to it, and the
/// first one would find a machine that has never done anything.
pub(super) fn once(scenario: &Scenario) -> Scenario {
    let mut once = scenario.clone();
    once.rounds = 1;
    once.order = Order::CellByCell;
    once.cells.insert(0, once.cells[once.cells.len() - 1].clone());
    once
}

/// A few of a scenario's cells, each with its end cut short: all of a ramp is in its beginning. What
/// comes before something else in a cell stays, for it matters there.
pub(super) fn sketch(scenario: &Scenario, cells: usize, most: Span) -> Scenario {
    let mut sketch = scenario.clone();
    let every = sketch.cells.len().div_ceil(cells);
    let mut number = 0;
    sketch.cells.retain(|_| {
        number += 1;
        number % every == 0
    });
    for actor in sketch.cells.iter_mut().flat_map(|cell| &mut cell.actors) {
        if let Some(StepKind::Run(run)) = actor.steps.last_mut().map(|step| &mut step.kind)
            && let Until::Elapsed(span) = &mut run.until
        {
            *span = (*span).min(most);
        }
    }
    sketch
}

/// What `scenario`, made by [`once`], does on `chip`; nothing if it does not run there.
fn run(scenario: &Scenario, chip: &Chip) -> Option<RunData> {
    run_on_chip(scenario, chip).ok()
}

/// The curves of a scenario on a chip.
pub(super) fn curves(scenario: &Scenario, chip: &Chip) -> Vec<(Key, Curve)> {
    let of = |run: &RunData, unit: &Unit| {
        let cell = cell_name(&run.cells[unit.cell]).unwrap_or_default();
        let steps = unit.steps.iter().filter_map(|step| {
            let origin = step.dispatches.first()?.committed.as_nanos();
            let ms = |at: everwarm_units::Instant| (at.as_nanos() - origin) as f64 / 1e6;
            let times = step.dispatches.iter().map(|d| (ms(d.gpu_start), ms(d.gpu_end)));
            let key = (run.scenario.clone(), cell.clone(), step.label.clone());
            Some((key, curve(&times.collect::<Vec<_>>())))
        });
        steps.collect::<Vec<_>>()
    };
    let found = run(scenario, chip);
    found.iter().flat_map(|run| run.units.iter().skip(1).flat_map(|unit| of(run, unit))).collect()
}

/// The same as steps, for what is compared buffer by buffer.
pub(super) fn steps(scenario: &Scenario, chip: &Chip) -> Vec<Step> {
    let ms = |at: everwarm_units::Instant| at.as_nanos() as f64 / 1e6;
    let of = |run: &RunData, unit: &Unit| {
        let cell = cell_name(&run.cells[unit.cell]).unwrap_or_default();
        let step = |step: &crate::data::StepRun| Step {
            scenario: run.scenario.clone(),
            cell: cell.clone(),
            label: step.label.clone(),
            round: 0,
            buffers: step
                .dispatches
                .iter()
                .map(|d| Buffer {
                    committed: ms(d.committed),
                    start: ms(d.gpu_start),
                    end: ms(d.gpu_end),
                    observed: ms(d.observed),
                    flops: d.kernel.flops().unwrap_or(0.0),
                    bytes: d.kernel.bytes().unwrap_or(0.0),
                    clock: None,
                })
                .collect(),
            idle: None,
        };
        unit.steps.iter().map(step).filter(|s| !s.buffers.is_empty()).collect::<Vec<_>>()
    };
    let found = run(scenario, chip);
    found.iter().flat_map(|run| run.units.iter().skip(1).flat_map(|unit| of(run, unit))).collect()
}
