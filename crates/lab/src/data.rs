//! What a run of a scenario has recorded, before any metric is taken.

use crate::scenario::Part;
use everwarm_gpu::{Counters, Device};
use everwarm_units::{Hertz, Instant, PState, Span};
use everwarm_workload::Kernel;
use std::collections::BTreeMap;

/// Everything that one run of a scenario recorded.
#[derive(Clone, Debug)]
pub struct RunData {
    /// The scenario's name.
    pub scenario: String,
    /// The device it ran on.
    pub device: Device,
    /// The seed of its jitter.
    pub seed: u64,
    /// The variables of each cell.
    pub cells: Vec<BTreeMap<String, String>>,
    /// One entry for each time a cell ran, in order.
    pub units: Vec<Unit>,
}

/// One round of one cell.
#[derive(Clone, Debug, Default)]
pub struct Unit {
    /// Index of the cell.
    pub cell: usize,
    /// Which round.
    pub round: u32,
    /// When it began.
    pub begin: Instant,
    /// When the last foreground actor ended.
    pub end: Instant,
    /// The steps that ran, of all actors, in the order in which they began (per actor).
    pub steps: Vec<StepRun>,
    /// Cumulative counters, if telemetry was on.
    pub samples: Vec<Counters>,
}

/// One step as it was carried out.
#[derive(Clone, Debug)]
pub struct StepRun {
    /// The actor's name.
    pub actor: String,
    /// The actor runs in the background.
    pub background: bool,
    /// The step's label.
    pub label: String,
    /// Index of the step in the actor's list.
    pub index: usize,
    /// When it began.
    pub begin: Instant,
    /// When it ended: with the last completion, where it waits for that.
    pub end: Instant,
    /// Its command buffers in commit order.
    pub dispatches: Vec<Dispatch>,
    /// What of a model's work it was, if it was.
    pub model: Option<Part>,
    /// Marks that its program passed.
    pub marks: Vec<(&'static str, Instant)>,
}

/// One command buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dispatch {
    /// Its work.
    pub kernel: Kernel,
    /// When the host committed it.
    pub committed: Instant,
    /// When the GPU began it.
    pub gpu_start: Instant,
    /// When the GPU ended it.
    pub gpu_end: Instant,
    /// When the host learned of it.
    pub observed: Instant,
    /// The p-state at `gpu_start`, where the device tells.
    pub pstate: Option<PState>,
    /// The mean core clock while it ran, where the work itself could count cycles.
    pub clock: Option<Hertz>,
    /// How late a real-time simulation was with it.
    pub late: Option<Span>,
}

impl Dispatch {
    /// Time between start and end on the GPU.
    pub fn execution(&self) -> Span {
        self.gpu_end.since(self.gpu_start)
    }
}
