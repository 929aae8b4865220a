//! What the probes recorded, as numbers that can be compared. Unit of all numbers: ms.
//!
//! A sample that can't count is void, with a reason: the simulation was late, or the GPU was not
//! warm when its idle time began, as after a long idle time before it.

use crate::probe::cell_name;
use everwarm_gpu::Device;
use everwarm_lab::{Dispatch, StepRun, Unit};
use everwarm_stats::median;
use everwarm_units::Span;
use std::collections::BTreeMap;

/// A dispatch of a real-time simulation that was later than this voids its sample.
const LATE_MAX: Span = Span::ms(1);

/// A unit whose own warm-up ended slower than this times the usual was not warm. The loss is counted
/// against that warm-up, so that a somewhat lower clock (from heat, say) does no harm.
const WARM_MAX: f64 = 1.25;

/// Dispatches over which execution times are smoothed: what somebody else disturbs for a moment is
/// no clock.
const SMOOTHED: usize = 5;

/// One round of one cell.
pub struct Taken {
    /// The probe's name.
    pub probe: &'static str,
    /// The cell's values.
    pub cell: String,
    /// What was recorded.
    pub unit: Unit,
}

/// A sample that does not count.
#[derive(Clone, Debug, PartialEq)]
pub struct Void {
    /// Probe and cell.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// All that was recorded of one device.
pub struct Evidence {
    /// The device.
    pub device: Device,
    /// Samples that count, in the order in which they were taken.
    pub taken: Vec<Taken>,
    /// Those that don't.
    pub void: Vec<Void>,
}

/// A row of kernels of one length under full load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Execution beyond what the same kernels would have taken right before the idle time.
    pub lost: f64,
    /// How much slower the last ones still were, as a factor.
    pub tail: f64,
    /// From the first commit until that kernel's end, less the execution of the second one.
    pub first: f64,
}

impl Evidence {
    /// Of what was taken, in order.
    pub fn new(device: Device, taken: Vec<Taken>) -> Self {
        let reference = median(&taken.iter().filter_map(warm).collect::<Vec<_>>());
        let mut void = Vec::new();
        let count = |taken: &Taken| match wrong_with(taken, reference) {
            None => true,
            Some(why) => {
                void.push(Void { what: format!("{} {}", taken.probe, taken.cell), why });
                false
            }
        };
        let mut taken = taken;
        taken.retain(count);
        Evidence { device, taken, void }
    }

    /// The samples of a cell.
    pub fn cell(&self, probe: &str, cell: &str) -> impl Iterator<Item = &Taken> {
        let cell = cell_name(cell.split(", "));
        self.taken.iter().filter(move |t| t.probe == probe && t.cell == cell)
    }

    /// A number of each sample of a cell.
    pub fn numbers(
        &self,
        probe: &str,
        cell: &str,
        number: impl Fn(&Taken) -> Option<f64>,
    ) -> Vec<f64> {
        self.cell(probe, cell).filter_map(number).collect()
    }

    /// The same of several cells of a probe together.
    pub fn pooled(
        &self,
        probe: &str,
        cells: &[&str],
        number: impl Fn(&Taken) -> Option<f64> + Copy,
    ) -> Vec<f64> {
        cells.iter().flat_map(|cell| self.numbers(probe, cell, number)).collect()
    }
}

impl Taken {
    /// The step with this label.
    pub fn step(&self, label: &str) -> Option<&StepRun> {
        self.unit.steps.iter().find(|step| !step.background && step.label == label)
    }

    /// A dispatch of a step.
    pub fn dispatch(&self, label: &str, number: usize) -> Option<&Dispatch> {
        self.step(label)?.dispatches.get(number)
    }

    /// The burst, against this sample's own warm-up.
    pub fn burst(&self) -> Option<Burst> {
        let warm = warm(self)?;
        let step = self.step("burst")?;
        let [first, second, ..] = &step.dispatches[..] else { return None };
        let all = smoothed(&executions(step));
        let lost = all.iter().map(|one| one - warm).sum();
        let tail = median(&all[all.len() - all.len() / 10 - 1..])? / warm;
        let first = first.gpu_end.since(first.committed).as_ms() - execution(second);
        Some(Burst { lost, tail, first })
    }

    /// What the burst lost.
    pub fn lost(&self) -> Option<f64> {
        Some(self.burst()?.lost)
    }
}

/// Why a sample does not count.
fn wrong_with(taken: &Taken, reference: Option<f64>) -> Option<String> {
    let dispatches = || taken.unit.steps.iter().flat_map(|step| &step.dispatches);
    if let Some(late) = dispatches().filter_map(|d| d.late).find(|late| *late > LATE_MAX) {
        return Some(format!("the simulation was late by {late}"));
    }
    let (warm, reference) = (warm(taken)?, reference?);
    (warm > WARM_MAX * reference).then(|| {
        format!("the GPU was not warm before: {warm:.2} ms a kernel instead of {reference:.2}")
    })
}

/// Execution time of a kernel at the end of the sample's warm-up.
pub fn warm(taken: &Taken) -> Option<f64> {
    let all = executions(taken.step("warm")?);
    median(&all[all.len().saturating_sub(8)..])
}

/// Execution times of a step.
pub fn executions(step: &StepRun) -> Vec<f64> {
    step.dispatches.iter().map(execution).collect()
}

/// Start to end on the GPU.
pub fn execution(dispatch: &Dispatch) -> f64 {
    dispatch.execution().as_ms()
}

/// Commit to start, on two clocks that should be one.
pub fn start(dispatch: &Dispatch) -> f64 {
    dispatch.gpu_start.since(dispatch.committed).as_ms()
}

/// End until the host knows, likewise.
pub fn observed(dispatch: &Dispatch) -> f64 {
    dispatch.observed.since(dispatch.gpu_end).as_ms()
}

/// Each value as the median of those around it.
fn smoothed(values: &[f64]) -> Vec<f64> {
    let around = |n: usize| {
        let from = n.saturating_sub(SMOOTHED / 2);
        let to = (n + SMOOTHED / 2 + 1).min(values.len());
        median(&values[from..to]).expect("a value lies around itself")
    };
    (0..values.len()).map(around).collect()
}

/// Variables of a cell as its name.
pub fn name(variables: &BTreeMap<String, String>) -> String {
    cell_name(variables.values().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_smoothed_away_and_a_step_stays() {
        assert_eq!(smoothed(&[1.0, 1.0, 9.0, 1.0, 1.0]), [1.0; 5]);
        let step = smoothed(&[3.0, 3.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(step.iter().sum::<f64>(), 16.0);
    }
}
