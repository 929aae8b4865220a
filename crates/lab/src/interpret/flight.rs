//! One actor's queue on a device: what is in flight, and whose it is.

use super::actor::{Actor, Place};
use everwarm_gpu::{Backend, Completion, Error, Queue, Ticket};
use everwarm_workload::Kernel;
use std::collections::VecDeque;

/// A queue and its buffers in flight, in commit order.
pub struct Flight {
    pub queue: Queue,
    outstanding: VecDeque<(Ticket, Place, Kernel)>,
}

impl Flight {
    /// Opens a queue.
    pub fn open(backend: &mut dyn Backend) -> Result<Self, Error> {
        Ok(Flight { queue: backend.queue()?, outstanding: VecDeque::new() })
    }

    /// How many are in flight.
    pub fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Commits, which the device must have room for.
    pub fn commit(
        &mut self,
        backend: &mut dyn Backend,
        kernel: Kernel,
        place: Place,
    ) -> Result<(), Error> {
        let ticket = backend.commit(self.queue, &kernel)?;
        self.outstanding.push_back((ticket, place, kernel));
        Ok(())
    }

    /// Tells the actor of a completion in this queue.
    pub fn land(&mut self, actor: &mut Actor, completion: &Completion) {
        let at = self.outstanding.iter().position(|(ticket, ..)| *ticket == completion.ticket);
        // What an earlier round left behind belongs to nobody.
        if let Some((_, place, kernel)) = at.and_then(|at| self.outstanding.remove(at)) {
            actor.on_completion(place, &kernel, completion);
        }
    }
}
