//! Queues of command buffers, and whose turn it is.
//!
//! A queue runs its buffers in order. Buffers of different queues share the GPU as far as they fit:
//! one that fills it runs alone but for slivers, and the queue that was served longest ago goes
//! first, so that two queues of full kernels take turns.

use crate::work::{Progress, Work};
use crate::{BufferId, QueueId};
use everwarm_units::PState;
use std::collections::VecDeque;

/// A need that is below any limit.
const RUNS: f64 = -1.0;

/// An instant that does not come.
pub(crate) const NEVER: u64 = u64::MAX;

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
    /// Its energy is counted up to the last change of rates.
    pub progress: Progress,
    pub end: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub id: QueueId,
    pub pending: VecDeque<Pending>,
    pub running: Option<Running>,
    /// Earliest start of the next buffer after the last one.
    pub free_at: u64,
    /// When what runs ends, or else the next buffer could start; [`NEVER`] if there is none. Kept up
    /// to date by [`Queue::settle`], as is `need`.
    pub next: u64,
    /// Share of the GPU that the next buffer needs to start; less than any while one runs.
    pub need: f64,
    /// The next buffer, while none runs.
    pub next_id: BufferId,
    /// Number of the turn in which it was last served.
    pub served: u64,
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
            next: NEVER,
            need: RUNS,
            next_id: BufferId(NEVER),
            served: 0,
            closed: false,
        }
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.running.is_none() && self.pending.is_empty()
    }

    /// Works out `next` and `need`; called after every change.
    pub(crate) fn settle(&mut self) {
        if let Some(running) = &self.running {
            (self.next, self.need) = (running.end, RUNS);
        } else if let Some(first) = self.pending.front() {
            (self.next, self.need) = (first.ready.max(self.free_at), first.work.occupancy);
            self.next_id = first.id;
        } else {
            (self.next, self.need) = (NEVER, RUNS);
        }
    }
}

/// The smaller of two numbers, neither of them NaN, with which `min` would take its time.
fn least(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// What may start beside what runs.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    beside_share: f64,
    /// Buffers that need no more may still start; what is kept back waits until another one ends.
    limit: f64,
    served: u64,
}

impl Turns {
    pub(crate) fn new(beside_share: f64) -> Turns {
        Turns { beside_share, limit: f64::INFINITY, served: 0 }
    }

    /// A buffer has ended: there may be room again.
    pub(crate) fn make_room(&mut self) {
        self.limit = f64::INFINITY;
    }

    /// The event that `queue` waits for.
    pub(crate) fn next_event(&self, queue: &Queue) -> u64 {
        if queue.need <= self.limit { queue.next } else { NEVER }
    }

    /// The queue to serve at `now`, if one's next buffer is ready and fits.
    ///
    /// A ready buffer that does not fit keeps back all but slivers, or a stream of half-sized
    /// kernels could starve it.
    pub(crate) fn choose(&mut self, queues: &mut [Queue], now: u64) -> Option<usize> {
        loop {
            let index = self.first_ready(queues, now)?;
            let need = queues[index].need;
            let running = queues.iter().filter_map(|q| q.running.as_ref());
            let used: f64 = running.map(|r| r.progress.occupancy()).sum();
            let room = 1.0 + self.beside_share - used;
            if need <= room {
                // What can't fit beside it is not even looked at.
                self.limit = least(self.limit, room - need);
                self.served += 1;
                queues[index].served = self.served;
                return Some(index);
            }
            // A sliver that does not fit keeps back those that are no smaller.
            self.limit = least(least(self.limit, self.beside_share), need.next_down());
        }
    }

    /// Of the queues whose next buffer is ready, the one that was served longest ago.
    fn first_ready(&self, queues: &[Queue], now: u64) -> Option<usize> {
        let may_start = |q: &Queue| q.next <= now && q.need <= self.limit && q.need != RUNS;
        let mut first = None;
        let mut turn = (NEVER, BufferId(NEVER));
        for (n, queue) in queues.iter().enumerate() {
            if may_start(queue) && (queue.served, queue.next_id) < turn {
                (first, turn) = (Some(n), (queue.served, queue.next_id));
            }
        }
        first
    }
}
