//! Command buffers in flight, and how the host learns that they have landed.
//!
//! Metal calls a block on a thread of its own when a command buffer has ended. The block reads the
//! stamps and leaves them in a channel that is never full, so that it never waits; the caller's
//! thread takes them out and puts them into commit order. One block serves a whole queue: which
//! command buffer has ended is known by its address, which is its own as long as it is in flight.

use super::encode::Outputs;
use crate::{Completion, Error, Monotonic, Queue, Ticket};
use block2::RcBlock;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLCommandBuffer, MTLCommandBufferError, MTLCommandBufferStatus, MTLCommandQueue,
};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::mpsc::SyncSender;

/// A command buffer.
pub type Buffer = Retained<ProtocolObject<dyn MTLCommandBuffer>>;

/// What Metal calls at the end of one.
pub type Block = RcBlock<dyn Fn(NonNull<ProtocolObject<dyn MTLCommandBuffer>>)>;

/// A queue and what is in flight there.
pub struct Lane {
    /// Metal's queue.
    pub queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    /// What its kernels write to.
    pub outputs: Outputs,
    /// What is called when one of its buffers has ended.
    pub block: Block,
    flights: VecDeque<Flight>,
}

/// A command buffer that the caller has not heard of again.
struct Flight {
    ticket: Ticket,
    committed: Monotonic,
    buffer: Buffer,
    landing: Option<Landing>,
}

/// The end of a command buffer, as the block saw it.
pub struct Landing {
    lane: usize,
    address: usize,
    /// Unit: s on the host's clock.
    stamps: [f64; 2],
    observed: Monotonic,
    failure: Option<Failure>,
}

/// Why a command buffer did not do its work.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    code: MTLCommandBufferError,
    text: String,
}

impl Failure {
    /// True if another kernel may well run.
    fn is_passing(&self) -> bool {
        self.code == MTLCommandBufferError::OutOfMemory
    }

    /// As a caller of the backend gets it.
    pub fn error(&self) -> Error {
        let device = super::ID.to_owned();
        match self.is_passing() {
            true => Error::Memory { device, what: format!("a command buffer ({})", self.text) },
            false => Error::Lost { device, why: self.text.clone() },
        }
    }
}

/// A block that reports to `reports` what ends in lane `lane`.
pub fn block(lane: usize, reports: SyncSender<Landing>) -> Block {
    RcBlock::new(move |buffer: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
        let observed = Monotonic::now();
        let address = buffer.as_ptr().cast::<()>() as usize;
        // SAFETY: Metal passes the command buffer that has ended, which lives through the call.
        let buffer = unsafe { buffer.as_ref() };
        let stamps = [buffer.GPUStartTime(), buffer.GPUEndTime()];
        let failed = buffer.status() != MTLCommandBufferStatus::Completed;
        let failure = failed.then(|| failure(buffer));
        // Nobody listens when the handle is gone already.
        let _ = reports.try_send(Landing { lane, address, stamps, observed, failure });
    })
}

fn failure(buffer: &ProtocolObject<dyn MTLCommandBuffer>) -> Failure {
    match buffer.error() {
        Some(error) => Failure {
            code: MTLCommandBufferError(error.code().unsigned_abs()),
            text: format!("{} (code {})", error.localizedDescription(), error.code()),
        },
        None => Failure {
            code: MTLCommandBufferError::Internal,
            text: format!("a command buffer ended with status {}", buffer.status().0),
        },
    }
}

/// A stamp of Metal's on the host's clock. A double holds whole nanoseconds of 104 days; those of
/// a machine that has run for longer are off by two.
fn on_host_clock(seconds: f64) -> Monotonic {
    Monotonic((seconds * 1e9).round().max(0.0) as u64)
}

impl Lane {
    /// A lane without anything in flight.
    pub fn new(
        queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
        outputs: Outputs,
        block: Block,
    ) -> Self {
        Lane { queue, outputs, block, flights: VecDeque::new() }
    }

    /// Command buffers that the caller has not heard of again.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Notes that `buffer` has been committed.
    pub fn took_off(&mut self, ticket: Ticket, committed: Monotonic, buffer: Buffer) {
        self.flights.push_back(Flight { ticket, committed, buffer, landing: None });
    }

    /// When the host learned that the first in flight has ended, if it has.
    pub fn next(&self) -> Option<Monotonic> {
        Some(self.flights.front()?.landing.as_ref()?.observed)
    }

    /// Takes the first in flight, which has ended, out of it.
    ///
    /// # Errors
    /// Why it failed.
    pub fn land(&mut self, queue: Queue, epoch: Monotonic) -> Result<Completion, Failure> {
        let flight = self.flights.pop_front().expect("something is in flight");
        let landing = flight.landing.expect("it has ended");
        match landing.failure {
            Some(failure) => Err(failure),
            None => Ok(Completion {
                ticket: flight.ticket,
                queue,
                committed: flight.committed.on_base(epoch),
                gpu_start: on_host_clock(landing.stamps[0]).on_base(epoch),
                gpu_end: on_host_clock(landing.stamps[1]).on_base(epoch),
                observed: landing.observed.on_base(epoch),
                pstate: None,
                clock: None,
                late: None,
            }),
        }
    }
}

/// Puts a landing where it belongs.
pub fn report(lanes: &mut [Lane], landing: Landing) {
    let flights = &mut lanes[landing.lane].flights;
    let is_it = |flight: &&mut Flight| {
        flight.landing.is_none()
            && Retained::as_ptr(&flight.buffer).cast::<()>() as usize == landing.address
    };
    // What commit could not follow up is not among them.
    if let Some(flight) = flights.iter_mut().find(is_it) {
        flight.landing = Some(landing);
    }
}
