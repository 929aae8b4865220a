//! The event engine. (A first version: one clock, queues in commit order.)

use crate::{BufferId, Completion, Counters, QueueId};
use everwarm_dvfs::Chip;
use everwarm_units::{Instant, Joules, PState, Span};
use everwarm_workload::Kernel;
use std::collections::VecDeque;

/// A simulated GPU.
pub struct Machine {
    chip: Chip,
    now: Instant,
    queues: u32,
    buffers: u64,
    free_at: Instant,
    busy: Span,
    pending: VecDeque<Completion>,
}

impl Machine {
    /// A machine at time 0, idle since long before.
    pub fn new(chip: Chip) -> Self {
        Machine {
            chip,
            now: Instant::ZERO,
            queues: 0,
            buffers: 0,
            free_at: Instant::ZERO,
            busy: Span::ZERO,
            pending: VecDeque::new(),
        }
    }

    /// The chip it simulates.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// The present.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Opens a queue.
    pub fn open_queue(&mut self) -> QueueId {
        self.queues += 1;
        QueueId(self.queues - 1)
    }

    /// Closes a queue; what it has committed still runs, its completions are dropped.
    pub fn close_queue(&mut self, queue: QueueId) {
        self.pending.retain(|c| c.queue != queue);
    }

    /// Commits a command buffer at `at`, which must not be before [`Machine::now`].
    pub fn commit(&mut self, at: Instant, queue: QueueId, kernel: &Kernel) -> BufferId {
        self.advance(at);
        let span = self.execution(kernel, self.top());
        let gpu_start = self.free_at.max(at + Span::us(150));
        let gpu_end = gpu_start + span;
        self.free_at = gpu_end;
        self.busy += span;
        let buffer = BufferId(self.buffers);
        self.buffers += 1;
        let observed = gpu_end + Span::us(140);
        let pstate = PState(8);
        self.pending.push_back(Completion {
            buffer,
            queue,
            committed: at,
            gpu_start,
            gpu_end,
            observed,
            pstate,
        });
        buffer
    }

    /// How long `kernel` occupies the GPU (start to end) if it runs alone and wholly at `pstate`.
    pub fn execution(&self, kernel: &Kernel, _pstate: PState) -> Span {
        Span::from_ms(match *kernel {
            Kernel::Empty => 0.02,
            Kernel::Fma { iterations, threads } if threads > 32 => {
                0.02 + f64::from(iterations) * 0.00029
            }
            Kernel::Fma { iterations, .. } => 0.02 + f64::from(iterations) * 0.0000275,
            Kernel::Stream { bytes } => 0.02 + bytes as f64 / 94e6,
            Kernel::Matmul { n } => 0.02 + 6.0 * (f64::from(n) / 2048.0).powi(3),
            Kernel::Modelled { flops, bytes } => 0.02 + flops / 2.863e9 + bytes / 94e6,
        })
    }

    /// Holds the clock at `pstate` whenever the GPU is powered, or with `None` gives it back to the
    /// controller.
    ///
    /// # Panics
    /// If the chip has no such p-state, or it is the off state.
    pub fn pin(&mut self, pstate: Option<PState>) {
        let valid = |p: PState| p != PState::OFF && p <= self.top();
        assert!(pstate.is_none_or(valid), "{} has no p-state {pstate:?}", self.chip.name);
    }

    /// The fastest p-state.
    pub fn top(&self) -> PState {
        PState(self.chip.pstates.len() as u8)
    }

    /// When something observable may happen next; `None` while nothing is outstanding.
    pub fn next_event(&self) -> Option<Instant> {
        self.pending.front().map(|c| c.observed)
    }

    /// Lets time pass until `to`.
    pub fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
    }

    /// The next completion observed by now, in the order of observation.
    pub fn poll(&mut self) -> Option<Completion> {
        self.pending.front().filter(|c| c.observed <= self.now)?;
        self.pending.pop_front()
    }

    /// The counters now.
    pub fn counters(&self) -> Counters {
        let mut residency = vec![Span::ZERO; 9];
        residency[8] = self.now.since(Instant::ZERO);
        Counters {
            at: self.now,
            residency,
            gpu_energy: Joules::ZERO,
            cpu_energy: Joules::ZERO,
            pstate: PState(8),
            busy: self.busy,
        }
    }
}
