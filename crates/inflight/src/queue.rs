//! A runtime's own queue behind a trait, and the loop around it: no thread, no clock of its own.
//!
//! The runtime keeps its thread and its encoder. [`turn`] is one step of that thread's loop.

use crate::machine::{Action, Chunk, Done, InFlight, Landed};
use everwarm_units::Instant;

/// What the helper needs of a runtime's command queue: one queue, whose buffers run in order.
pub trait Queue {
    /// What can go wrong with it.
    type Error;

    /// The present, on the clock of all instants in [`Done`].
    fn now(&mut self) -> Instant;

    /// Encodes a chunk as one command buffer and commits it, without waiting for it.
    ///
    /// # Errors
    /// Whatever the runtime has to say; the chunk is then asked for again.
    fn commit(&mut self, chunk: &Chunk) -> Result<(), Self::Error>;

    /// How the oldest buffer in flight ended. With `block` it waits for that; without it looks
    /// only. `None` if it has not ended, or if something else woke the wait (a new request).
    ///
    /// # Errors
    /// Whatever the runtime has to say.
    fn completion(&mut self, block: bool) -> Result<Option<Done>, Self::Error>;
}

/// What a [`turn`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Encoded and committed a chunk.
    Committed(Chunk),
    /// Learned of a chunk's end.
    Landed(Landed),
    /// Waited and was woken by something else.
    Woken,
    /// There is nothing to do until the next request.
    Idle,
}

/// Does the next thing: learns of a completion that is there, or commits a chunk, or waits.
///
/// # Errors
/// Those of the queue. No work is lost: a chunk that was not committed is asked for again.
pub fn turn<Q: Queue + ?Sized>(ahead: &mut InFlight, queue: &mut Q) -> Result<Turn, Q::Error> {
    if ahead.in_flight() > 0
        && let Some(done) = queue.completion(false)?
    {
        return Ok(Turn::Landed(ahead.on_completion(done)));
    }
    match ahead.poll(queue.now()) {
        Action::WaitForRequest => Ok(Turn::Idle),
        Action::WaitForCompletion => Ok(match queue.completion(true)? {
            Some(done) => Turn::Landed(ahead.on_completion(done)),
            None => Turn::Woken,
        }),
        Action::Encode(chunk) => match queue.commit(&chunk) {
            Ok(()) => {
                ahead.on_commit(queue.now());
                Ok(Turn::Committed(chunk))
            }
            Err(error) => {
                ahead.on_refusal();
                Err(error)
            }
        },
    }
}

/// A [`Queue`] of three closures, for a runtime that would rather not name a type.
///
/// ```
/// use everwarm_inflight::{Callbacks, Done, InFlight, Limits, Turn, turn};
/// use everwarm_units::{Instant, Span};
/// use std::cell::{Cell, RefCell};
///
/// let (clock, ends) = (Cell::new(Instant::ZERO), RefCell::new(std::collections::VecDeque::new()));
/// let mut queue = Callbacks {
///     now: || clock.get(),
///     commit: |_chunk: &_| {
///         let idle_from = ends.borrow().back().copied().unwrap_or_default();
///         ends.borrow_mut().push_back(clock.get().max(idle_from) + Span::us(600));
///         Ok::<(), std::convert::Infallible>(())
///     },
///     completion: |block| {
///         let Some(&end) = ends.borrow().front() else { return Ok(None) };
///         if block { clock.set(clock.get().max(end)) }
///         if end > clock.get() { return Ok(None) }
///         ends.borrow_mut().pop_front();
///         Ok(Some(Done { observed: clock.get(), gpu: None })) // no times from the GPU here
///     },
/// };
/// let mut ahead = InFlight::new(Limits::for_gap(Span::us(500)));
/// ahead.submit(10).unwrap();
/// while turn(&mut ahead, &mut queue)? != Turn::Idle {}
/// assert_eq!(clock.get(), Instant::ZERO + Span::ms(6));
/// # Ok::<(), std::convert::Infallible>(())
/// ```
pub struct Callbacks<Now, Commit, Completion> {
    /// As [`Queue::now`].
    pub now: Now,
    /// As [`Queue::commit`].
    pub commit: Commit,
    /// As [`Queue::completion`].
    pub completion: Completion,
}

impl<E, Now, Commit, Completion> Queue for Callbacks<Now, Commit, Completion>
where
    Now: FnMut() -> Instant,
    Commit: FnMut(&Chunk) -> Result<(), E>,
    Completion: FnMut(bool) -> Result<Option<Done>, E>,
{
    type Error = E;

    fn now(&mut self) -> Instant {
        (self.now)()
    }

    fn commit(&mut self, chunk: &Chunk) -> Result<(), E> {
        (self.commit)(chunk)
    }

    fn completion(&mut self, block: bool) -> Result<Option<Done>, E> {
        (self.completion)(block)
    }
}
