//! A queue: a stream of the driver, and a slot for the stamps of each command buffer in flight.
//!
//! What a command buffer asks of memory is made ready before its first kernel is launched, so that a
//! refusal leaves nothing half done. The kernels of a stream run one after the other, so buffers end
//! in commit order, and a ring of slots is enough.

use super::driver::{Answer, Handle, Launch, Pinned};
use super::shared::{Ring, Shared};
use super::stamps::{SLOT_WORDS, Stamps};
use super::timer::address;
use crate::{Monotonic, Part, Ticket};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Command buffers that may be in flight in one queue.
///
/// Source: guess; it is Metal's default. The driver takes about a thousand launches into a stream
/// before a launch blocks; a buffer of several parts counts as several.
pub const IN_FLIGHT_MAX: usize = 64;

/// Words of device memory that a slot's kernels count in. Unit: 32 bits.
const COUNTER_WORDS: usize = 16;

/// Threads of a block.
const BLOCK: u32 = 256;

/// Blocks of a streaming read for each multiprocessor: as many as fit at 256 threads each.
const READERS: u32 = 8;

/// This is the first kernel of its command buffer. Source: `kernels.ptx`.
const FIRST: u32 = 1;
/// This is the last kernel of its command buffer.
const LAST: u32 = 2;

/// A command buffer that the driver has.
#[derive(Clone, Copy, Debug)]
pub struct Flying {
    pub ticket: Ticket,
    pub committed: Monotonic,
    slot: usize,
}

/// A part of a command buffer with the memory that it reads.
pub enum Ready {
    Empty,
    Fma { iterations: u32, threads: u32 },
    Stream { ring: Ring, pieces: u64 },
    Matmul { n: u32, memory: u64 },
}

/// A queue.
pub struct Lane {
    shared: Arc<Shared>,
    stream: Handle,
    slots: Pinned,
    counters: u64,
    flight: VecDeque<Flying>,
    next: usize,
    /// Where the next streaming read begins: each goes on where the last one ended. Unit: 16 B.
    read: u64,
}

impl Lane {
    /// A new queue; the context is current.
    pub fn open(shared: &Arc<Shared>) -> Answer<Lane> {
        let driver = shared.driver;
        let stream = driver.stream_create()?;
        let slots = driver.host_alloc(IN_FLIGHT_MAX * SLOT_WORDS);
        let counters = driver.memory_alloc(IN_FLIGHT_MAX * COUNTER_WORDS * 4);
        let (slots, counters) = match (slots, counters) {
            (Ok(slots), Ok(counters)) => (slots, counters),
            (slots, counters) => {
                let _ = slots.as_ref().map(|slots| driver.host_free(*slots));
                let _ = counters.as_ref().map(|counters| driver.memory_free(*counters));
                let _ = driver.stream_destroy(stream);
                return Err(slots.err().or(counters.err()).expect("one of them was refused"));
            }
        };
        let flight = VecDeque::with_capacity(IN_FLIGHT_MAX);
        let shared = Arc::clone(shared);
        let lane = Lane { shared, stream, slots, counters, flight, next: 0, read: 0 };
        driver.memory_fill(counters, 0, IN_FLIGHT_MAX * COUNTER_WORDS, stream)?;
        Ok(lane)
    }

    /// Command buffers that the host has not seen end.
    pub fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// The one that ends next.
    pub fn oldest(&self) -> Option<&Flying> {
        self.flight.front()
    }

    /// The driver's view: true if all that was launched has ended.
    pub fn is_idle(&self) -> Answer<bool> {
        self.shared.driver.stream_is_idle(self.stream)
    }

    /// Gets the memory for a part.
    pub fn ready(&self, part: &Part) -> Answer<Ready> {
        Ok(match *part {
            Part::Fma { iterations, threads } => Ready::Fma { iterations, threads },
            Part::Stream { bytes } => {
                Ready::Stream { ring: self.shared.ring(self.stream)?, pieces: bytes.div_ceil(16) }
            }
            Part::Matmul { n } => {
                Ready::Matmul { n, memory: self.shared.scratch(matmul_bytes(n), self.stream)? }
            }
        })
    }

    /// Launches the parts of one command buffer, at least one; there is room for it.
    pub fn commit(&mut self, ticket: Ticket, parts: &[Ready]) -> Answer<()> {
        let slot = self.next;
        Stamps::clear(self.slot(slot));
        let last = parts.len() - 1;
        let committed = Monotonic::now();
        for (n, part) in parts.iter().enumerate() {
            let first = if n == 0 { FIRST } else { 0 };
            let flags = first | if n == last { LAST } else { 0 };
            self.launch(slot, ticket, flags, part)?;
        }
        self.next = (self.next + 1) % IN_FLIGHT_MAX;
        self.flight.push_back(Flying { ticket, committed, slot });
        Ok(())
    }

    /// True if the oldest one has ended.
    pub fn has_landed(&self) -> bool {
        self.flight.front().is_some_and(|flying| Stamps::read(self.slot(flying.slot)).is_some())
    }

    /// The oldest one with its stamps, if it has ended; it has landed then.
    pub fn land(&mut self) -> Option<(Flying, Stamps)> {
        let flying = *self.flight.front()?;
        let stamps = Stamps::read(self.slot(flying.slot))?;
        self.flight.pop_front();
        Some((flying, stamps))
    }

    fn launch(&mut self, slot: usize, ticket: Ticket, flags: u32, part: &Ready) -> Answer<()> {
        let mut words = self.slots.device + (slot * SLOT_WORDS * 8) as u64;
        let mut counters = self.counters + (slot * COUNTER_WORDS * 4) as u64;
        // Counters begin at 0, and two uses of a slot never are 2^32 tickets apart.
        let mut claim = (ticket.0 as u32).wrapping_add(1);
        let (mut flags, mut sink) = (flags, self.shared.sink);
        let head =
            [address(&mut words), address(&mut counters), address(&mut claim), address(&mut flags)];
        let kernels = &self.shared.kernels;
        match part {
            Ready::Empty => self.start(kernels.empty, 1, 1, head, []),
            Ready::Fma { iterations, threads } => {
                let (mut iterations, mut threads) = (*iterations, *threads);
                let block = BLOCK.min(threads);
                let blocks = threads.div_ceil(block);
                let tail = [address(&mut iterations), address(&mut threads), address(&mut sink)];
                self.start(kernels.fma, blocks, block, head, tail)
            }
            Ready::Stream { ring, pieces } => {
                let (mut data, mut mask) = (ring.address, ring.pieces - 1);
                let (mut first, mut count) = (self.read, *pieces);
                let most = READERS * self.shared.about.multiprocessors;
                let blocks = pieces.div_ceil(u64::from(BLOCK)).min(u64::from(most)) as u32;
                let tail = [
                    address(&mut data),
                    address(&mut mask),
                    address(&mut first),
                    address(&mut count),
                    address(&mut sink),
                ];
                self.start(kernels.stream, blocks, BLOCK, head, tail)?;
                self.read = (self.read + pieces) & (ring.pieces - 1);
                Ok(())
            }
            Ready::Matmul { n, memory } => {
                let (mut n, matrix) = (*n, matmul_bytes(*n) / 3);
                let (mut a, mut b, mut c) = (*memory, memory + matrix, memory + 2 * matrix);
                let tiles = n.div_ceil(16);
                let tail = [address(&mut a), address(&mut b), address(&mut c), address(&mut n)];
                self.start(kernels.matmul, tiles * tiles, BLOCK, head, tail)
            }
        }
    }

    fn start<const N: usize>(
        &self,
        function: Handle,
        blocks: u32,
        threads: u32,
        head: [*mut c_void; 4],
        tail: [*mut c_void; N],
    ) -> Answer<()> {
        let mut parameters = [std::ptr::null_mut(); 9];
        let count = head.len() + N;
        parameters[..head.len()].copy_from_slice(&head);
        parameters[head.len()..count].copy_from_slice(&tail);
        let parameters = &mut parameters[..count];
        let launch = Launch { function, blocks, threads, stream: self.stream, parameters };
        // SAFETY: `launch` gives each kernel the parameters that `kernels.ptx` declares for it, as
        // variables of its own; slots and counters stay until `drop` has waited for the stream, and
        // ring, scratch and sink until the context ends after that.
        unsafe { self.shared.driver.launch(launch) }
    }

    fn slot(&self, slot: usize) -> &[AtomicU64] {
        // SAFETY: `IN_FLIGHT_MAX` slots were allocated there, aligned, for as long as `self` lives;
        // host and device write their words whole.
        unsafe {
            std::slice::from_raw_parts(self.slots.host.add(slot * SLOT_WORDS).cast(), SLOT_WORDS)
        }
    }
}

impl Drop for Lane {
    /// Waits for the work in flight, which writes into memory that goes away.
    fn drop(&mut self) {
        // A device that is gone refuses all of this; there is nobody to tell.
        let _ = self.shared.make_current();
        let driver = self.shared.driver;
        let _ = driver.stream_wait(self.stream);
        let _ = driver.stream_destroy(self.stream);
        let _ = driver.host_free(self.slots);
        let _ = driver.memory_free(self.counters);
    }
}

/// Memory of a product: three matrices. Unit: B.
pub fn matmul_bytes(n: u32) -> u64 {
    u64::from(n).saturating_mul(12 * u64::from(n))
}
