//! A GPU as a deterministic discrete-event machine.
//!
//! It sees command buffers and time, nothing else: no experiment, no policy, no wall clock. Queues
//! share the cores, the performance controller of [`everwarm_dvfs`] sets the p-state, idle power
//! gating and wake costs are its own, energy and residencies are integrated exactly between events.
//!
//! Contract: `commit` and `advance` take instants that never go back. [`Machine::next_event`] says
//! when something observable may happen; a caller that advances there misses nothing, one that
//! advances further gets the same machine.

#![forbid(unsafe_code)]

mod machine;
mod meter;
mod queue;
mod window;
mod work;

pub use machine::Machine;

use everwarm_units::{Instant, Joules, PState, Span};

/// A queue of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(pub u32);

/// A command buffer of a machine; numbers ascend in commit order over all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u64);

/// A command buffer that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Completion {
    /// Which one.
    pub buffer: BufferId,
    /// Its queue.
    pub queue: QueueId,
    /// When the host committed it.
    pub committed: Instant,
    /// When the GPU began it.
    pub gpu_start: Instant,
    /// When the GPU ended it.
    pub gpu_end: Instant,
    /// When the host learns of it: `gpu_end` and the host's side of the round trip.
    pub observed: Instant,
    /// The true p-state at `gpu_start`.
    pub pstate: PState,
}

/// Cumulative counters since the machine began.
#[derive(Clone, Debug, PartialEq)]
pub struct Counters {
    /// When they were read.
    pub at: Instant,
    /// Time in each p-state. Shape: index 0 is off, then P1 upwards. They sum to `at`.
    pub residency: Vec<Span>,
    /// Energy of the GPU rail.
    pub gpu_energy: Joules,
    /// Energy of the CPU spent on submission.
    pub cpu_energy: Joules,
    /// The p-state now ([`PState::OFF`] when gated).
    pub pstate: PState,
    /// Time with work running (union over queues).
    pub busy: Span,
}
