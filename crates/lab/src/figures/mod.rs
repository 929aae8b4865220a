//! Figures as data: curves that a device gives, over what a study says.
//!
//! A figures file (`figures/*.toml`) has panels with two axes. A curve is a measure of a scenario,
//! taken once for each value of a variable, or the course of one step over time. A mark is what is
//! held against it: a claim's expectation, or a point or range with its source. This module
//! computes numbers; it draws nothing.

mod figure;
mod file;

pub use figure::{Axis, Curve, Figure, Figures, Mark, Panel, Series};

use crate::data::RunData;
use crate::interpret;
use crate::measure::Unit;
use crate::scenario::Scenario;
use std::sync::Arc;

/// A point of a curve in the units of the axes.
pub type Point = (f64, f64);

/// Why a figure can't be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device does not carry out a scenario.
    #[error("figure `{figure}`: {error}")]
    Run {
        /// The figure's name.
        figure: String,
        /// What the device says.
        error: interpret::Error,
    },
    /// A curve can't be read off its run.
    #[error("figure `{figure}`, curve `{curve}`: {why}")]
    Measure {
        /// The figure's name.
        figure: String,
        /// The curve's label.
        curve: String,
        /// Why not.
        why: String,
    },
}

impl Figure {
    /// The points of each curve of each panel, on the device `id`.
    ///
    /// # Errors
    /// [`Error`] if a scenario does not run or a measure can't be taken.
    pub fn points(&self, id: &str) -> Result<Vec<Vec<Vec<Point>>>, Error> {
        let mut runs: Vec<(Arc<Scenario>, RunData)> = Vec::new();
        let mut panels = Vec::new();
        for panel in &self.panels {
            let mut curves = Vec::new();
            for curve in &panel.curves {
                let known = runs.iter().position(|(scenario, _)| *scenario == curve.scenario);
                let index = match known {
                    Some(index) => index,
                    None => {
                        let run = interpret::run(&curve.scenario, id);
                        let failed = |error| Error::Run { figure: self.name.clone(), error };
                        runs.push((curve.scenario.clone(), run.map_err(failed)?));
                        runs.len() - 1
                    }
                };
                let points = curve.points(&runs[index].1, panel).map_err(|why| Error::Measure {
                    figure: self.name.clone(),
                    curve: curve.label.clone(),
                    why,
                });
                curves.push(points?);
            }
            panels.push(curves);
        }
        Ok(panels)
    }
}

impl Curve {
    fn points(&self, run: &RunData, panel: &Panel) -> Result<Vec<Point>, String> {
        match &self.series {
            Series::Course { label } => course(run, label, panel),
            Series::Measures(all) => all
                .iter()
                .map(|(x, measure)| {
                    let measured = measure.take(run)?;
                    if measured.dimension != panel.y.unit.dimension {
                        let is = Unit::of(measured.dimension).name;
                        return Err(format!(
                            "its measure is in {is}, the axis in {}",
                            panel.y.unit.name
                        ));
                    }
                    let [value] = measured.values[..] else {
                        let n = measured.values.len();
                        return Err(format!("its measure gives {n} values at {x}; expected one"));
                    };
                    Ok((*x, value / panel.y.unit.size))
                })
                .collect(),
        }
    }
}

/// Rates of a step's command buffers by the time since the first began, in the last round.
fn course(run: &RunData, label: &str, panel: &Panel) -> Result<Vec<Point>, String> {
    let steps = run.units.iter().rev().flat_map(|unit| &unit.steps);
    let step = steps.into_iter().find(|step| step.label == label);
    let step = step.ok_or_else(|| format!("no step has the label `{label}`"))?;
    let Some(first) = step.dispatches.first() else {
        return Err(format!("the step `{label}` has no command buffers"));
    };
    let point = |one: &crate::Dispatch| {
        let work = one.kernel.flops().or(one.kernel.bytes());
        let work = work.ok_or_else(|| format!("the kernels of `{label}` have no rate"))?;
        let x = one.gpu_start.since(first.gpu_start).as_secs() / panel.x.unit.size;
        Ok((x, work / one.execution().as_secs() / panel.y.unit.size))
    };
    step.dispatches.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_figures_can_be_made() {
        for figure in Figures::built_in().figures {
            let panels = figure.points("sim:m2").unwrap_or_else(|error| panic!("{error}"));
            for (panel, curves) in figure.panels.iter().zip(panels) {
                assert!(!panel.marks.is_empty(), "{} has nothing to be held against", figure.name);
                assert!(curves.iter().all(|points| points.len() > 1), "{}", figure.name);
            }
        }
    }
}
