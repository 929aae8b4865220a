//! Runs any scenario on any device; it never knows an experiment's name.
//!
//! The actors of a scenario are state machines (`actor.rs`). Two drivers carry out what they want:
//! one loop in virtual time, or a thread and a handle each by the wall clock. Which one, the device
//! decides.

mod actor;
mod ahead;
mod flight;
mod program;
mod virtual_time;
mod wall_clock;

use crate::data::{RunData, Unit};
use crate::scenario::{Depth, Order, Run, Scenario, StepKind, Work};
use everwarm_dvfs::Chip;
use everwarm_gpu::{Backend, Device};
use everwarm_units::Span;
use std::ops::ControlFlow;
use virtual_time::VirtualDevice;
use wall_clock::WallDevice;

/// Why a scenario could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device refused or is gone.
    #[error(transparent)]
    Device(#[from] everwarm_gpu::Error),
    /// Nothing will happen any more, or nothing but repetition.
    #[error("the scenario is stuck: {0}")]
    Stuck(String),
    /// It does not end within what a run may last or record.
    #[error("the scenario is too long: {0}")]
    Long(String),
    /// A kernel that the device can't be given.
    #[error(
        "the step `{label}` asks for a kernel of {asked}; one of {threads} threads takes at most {most} on {device}"
    )]
    Kernel {
        /// The step's label.
        label: String,
        /// Execution time at the top clock.
        asked: Span,
        /// Its threads.
        threads: u32,
        /// The longest of so many threads.
        most: Span,
        /// The device's id.
        device: String,
    },
}

impl Error {
    /// True if the device can't be given this scenario at all, however often one tries.
    pub fn cannot(&self) -> bool {
        use everwarm_gpu::Error::Unsupported;
        matches!(self, Error::Kernel { .. } | Error::Device(Unsupported { .. }))
    }
}

/// Runs `scenario` on a fresh handle of the device `id`.
///
/// # Errors
/// [`Error`] when the device can't do it; what ran before is lost.
pub fn run(scenario: &Scenario, id: &str) -> Result<RunData, Error> {
    run_told(scenario, id, |_| ControlFlow::Continue(()))
}

/// Runs `scenario` as [`run`] does, and tells what there is each time that something was added: once
/// before the first round of a cell, then after each. `told` says whether to go on; a run that was
/// asked to stop ends with what there is.
///
/// # Errors
/// As [`run`]; what ran before has been told.
pub fn run_told(
    scenario: &Scenario,
    id: &str,
    mut told: impl FnMut(&RunData) -> ControlFlow<()>,
) -> Result<RunData, Error> {
    run_on(scenario, id, everwarm_gpu::open(id)?, &mut told)
}

/// Runs `scenario` on a simulated GPU in virtual time with `chip`, which need not stand in a file.
///
/// # Errors
/// As [`run`].
pub fn run_on_chip(scenario: &Scenario, chip: &Chip) -> Result<RunData, Error> {
    run_on_backend(scenario, everwarm_gpu::backend::simulate(chip.clone()))
}

/// Runs `scenario` on a device that was opened elsewhere, such as one behind an instrument.
///
/// # Errors
/// As [`run`].
pub fn run_on_backend(scenario: &Scenario, backend: Box<dyn Backend>) -> Result<RunData, Error> {
    let id = backend.device().id.clone();
    run_on(scenario, &id, backend, &mut |_| ControlFlow::Continue(()))
}

fn run_on(
    scenario: &Scenario,
    id: &str,
    backend: Box<dyn Backend>,
    told: &mut dyn FnMut(&RunData) -> ControlFlow<()>,
) -> Result<RunData, Error> {
    let mut session = Session::new(id, backend);
    fits(scenario, session.device())?;
    let order = order(scenario);
    let cells = scenario.cells.iter().map(|cell| cell.variables.clone()).collect();
    let (name, seed) = (scenario.name.clone(), scenario.seed);
    let units = Vec::with_capacity(order.len());
    let device = session.device().clone();
    let mut run = RunData { scenario: name, device, seed, cells, units };
    for (cell, round) in order {
        if told(&run).is_break() {
            return Ok(run);
        }
        run.units.push(session.driver.run(scenario, cell, round)?);
    }
    // Nothing is left that could be stopped.
    let _ = told(&run);
    Ok(run)
}

/// A device on which rounds of cells run one at a time, of one scenario or of several, in an order
/// that is the caller's.
pub struct Session {
    device: Device,
    driver: Driver,
}

impl Session {
    /// Takes the handle of the device `id`.
    pub fn new(id: &str, backend: Box<dyn Backend>) -> Self {
        let mut device = backend.device().clone();
        if !device.simulated {
            // A clock that is kept down by heat, or to save power, is another clock.
            device.facts.extend(everwarm_gpu::Environment::read().facts());
        }
        let driver = match device.virtual_time {
            true => Driver::Virtual(VirtualDevice::new(backend)),
            false => Driver::Wall(WallDevice::new(id, backend)),
        };
        Session { device, driver }
    }

    /// The device and the state of the machine that it was found in.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs one round of the cell number `cell` of `scenario`.
    ///
    /// # Errors
    /// [`Error`] when the device can't do it.
    ///
    /// # Panics
    /// If the scenario has no such cell.
    pub fn run(&mut self, scenario: &Scenario, cell: usize, round: u32) -> Result<Unit, Error> {
        fits(scenario, &self.device)?;
        self.driver.run(scenario, cell, round)
    }
}

/// Holds the scenario's kernels against what the device can be given, before anything runs.
fn fits(scenario: &Scenario, device: &Device) -> Result<(), Error> {
    let actors = scenario.cells.iter().flat_map(|cell| &cell.actors);
    for step in actors.flat_map(|actor| &actor.steps) {
        let StepKind::Run(Run { work, in_flight, .. }) = step.kind else { continue };
        let chunk = match in_flight {
            Depth::Auto(limits) => limits.chunk_max,
            Depth::Fixed(_) => 1,
        };
        if let Some(Work::FmaTime { time, threads }) = work.times(chunk) {
            let most = device.fma_longest(threads);
            if time > most {
                let (label, device) = (step.label.clone(), device.id.clone());
                return Err(Error::Kernel { label, asked: time, threads, most, device });
            }
        }
    }
    Ok(())
}

enum Driver {
    Virtual(VirtualDevice),
    Wall(WallDevice),
}

impl Driver {
    fn run(&mut self, plan: &Scenario, cell: usize, round: u32) -> Result<Unit, Error> {
        match self {
            Driver::Virtual(device) => device.run(plan, cell, round),
            Driver::Wall(device) => device.run(plan, cell, round),
        }
    }
}

/// Cells and rounds in the order in which they run.
fn order(scenario: &Scenario) -> Vec<(usize, u32)> {
    let cells = 0..scenario.cells.len();
    match scenario.order {
        Order::Interleaved => (0..scenario.rounds)
            .flat_map(|round| cells.clone().map(move |cell| (cell, round)))
            .collect(),
        Order::CellByCell => {
            cells.flat_map(|cell| (0..scenario.rounds).map(move |round| (cell, round))).collect()
        }
    }
}

/// A seed for one round of one cell, from the scenario's.
fn seed_of(seed: u64, cell: usize, round: u32) -> u64 {
    let mix = |a: u64, b: u64| (a ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    mix(mix(seed, cell as u64), u64::from(round))
}
