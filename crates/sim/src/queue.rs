//! Queues of command buffers, and whose turn it is.
//!
//! A queue runs its buffers in order. Buffers of different queues share the GPU as far as they fit:
//! one that fills it runs alone but for slivers, and the queue that was served longest ago goes
//! first, so that two queues of full kernels take turns.

use crate::work::{Progress, Work};
use crate::{BufferId, QueueId};
use everwarm_units::PState;
use std::collections::VecDeque;

/// A committed buffer that has not begun. Unit of times: ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub id: BufferId,
    pub committed: u64,
    /// When the firmware knows of it.
    pub known: u64,
    /// When it could start on an idle GPU.
    pub ready: u64,
    pub work: Work,
}

/// The buffer that a queue runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub id: BufferId,
    pub committed: u64,
    pub start: u64,
    pub pstate: PState,
    pub occupancy: f64,
    pub progress: Progress,
    /// Time up to which its energy is counted.
    pub metered: u64,
    pub end: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub id: QueueId,
    pub pending: VecDeque<Pending>,
    pub running: Option<Running>,
    /// Earliest start of the next buffer after the last one.
    pub free_at: u64,
    /// Number of the turn in which it was last served.
    pub served: u64,
    /// Its next buffer is ready but did not fit; nothing to try before another one ends.
    pub blocked: bool,
    /// No completions are wanted any more.
    pub closed: bool,
}

impl Queue {
    pub(crate) fn new(id: QueueId) -> Queue {
        Queue {
            id,
            pending: VecDeque::new(),
            running: None,
            free_at: 0,
            served: 0,
            blocked: false,
            closed: false,
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.running.is_none() && self.pending.is_empty()
    }

    /// When the next buffer could start as far as this queue is concerned.
    pub(crate) fn start_at(&self) -> Option<u64> {
        if self.running.is_some() {
            return None;
        }
        self.pending.front().map(|p| p.ready.max(self.free_at))
    }

    /// The event that this queue waits for.
    pub(crate) fn next_event(&self) -> Option<u64> {
        match &self.running {
            Some(running) => Some(running.end),
            None if self.blocked => None,
            None => self.start_at(),
        }
    }
}

/// The queue to serve at `now`, if one's next buffer is ready and fits.
///
/// A ready buffer that does not fit marks its queue blocked and keeps back all but slivers, or a
/// stream of half-sized kernels could starve it.
pub(crate) fn choose(queues: &mut [Queue], now: u64, beside_share: f64) -> Option<usize> {
    let used: f64 = queues.iter().filter_map(|q| q.running.map(|r| r.occupancy)).sum();
    let mut waiting = None;
    loop {
        let ready = |q: &Queue| !q.blocked && q.start_at().is_some_and(|t| t <= now);
        let candidates = queues.iter().enumerate().filter(|(_, q)| ready(q));
        let (index, queue) = candidates.min_by_key(|(_, q)| (q.served, q.pending[0].id))?;
        let occupancy = queue.pending.front().map_or(0.0, |p| p.work.occupancy);
        let sliver = occupancy <= beside_share;
        let fits = used + occupancy <= 1.0 + beside_share;
        if fits && (sliver || waiting.is_none()) {
            return Some(index);
        }
        queues[index].blocked = true;
        waiting = Some(index);
    }
}
