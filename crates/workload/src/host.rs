//! A host thread as a state machine.
//!
//! Contract: after creation and after every [`Host::on_completion`], call [`Host::poll`] until it
//! returns [`Action::WaitUntil`], [`Action::WaitForCompletion`] or [`Action::Done`]. Each
//! [`Action::Commit`] must be carried out at once and in order; its completion is reported with
//! the same running number (0, 1, 2 …).

use crate::Kernel;
use everwarm_units::{Instant, Span};

/// One thing a host thread does.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Busy or asleep for this long.
    Pass(Span),
    /// Busy or asleep until this instant.
    PassUntil(Instant),
    /// Commit a command buffer to the program's own queue, without waiting for it.
    Commit(Kernel),
    /// Block until at most this many of the program's command buffers are outstanding.
    ///
    /// `Wait(0)` is `waitUntilCompleted`; `Wait(n - 1)` before a commit keeps n in flight.
    Wait(usize),
    /// Nothing on the device: tells the caller that the program got here.
    Mark(&'static str),
    /// The program has ended.
    End,
}

/// What a host thread has seen of one of its own command buffers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Running number of the commit within the program.
    pub number: u64,
    /// When the host committed it.
    pub committed: Instant,
    /// When the GPU began it, on the common time base.
    pub gpu_start: Instant,
    /// When the GPU ended it.
    pub gpu_end: Instant,
    /// When the host learned of its end.
    pub observed: Instant,
}

/// A host program: what one thread does, one [`Op`] at a time.
pub trait Program: Send {
    /// The next thing to do. `now` is when it begins; `seen` is the last completion observed.
    fn next(&mut self, now: Instant, seen: Option<&Seen>) -> Op;

    /// Told of each completion when it is observed, for a program that learns from all of them.
    fn on_completion(&mut self, _seen: &Seen) {}
}

/// What the caller must do for a [`Host`].
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Commit this to the program's queue now.
    Commit(Kernel),
    /// The program passed a mark.
    Mark(&'static str),
    /// Call [`Host::poll`] again at this instant (completions may be reported meanwhile).
    WaitUntil(Instant),
    /// Call [`Host::poll`] again after the next completion.
    WaitForCompletion,
    /// The program has ended; buffers may still be outstanding.
    Done,
}

/// Steps one [`Program`].
pub struct Host {
    program: Box<dyn Program>,
    blocked: Blocked,
    committed: u64,
    outstanding: usize,
    seen: Option<Seen>,
}

enum Blocked {
    No,
    Until(Instant),
    Outstanding(usize),
    Ended,
}

impl Host {
    /// A host that will run `program` from its first operation.
    pub fn new(program: Box<dyn Program>) -> Self {
        Host { program, blocked: Blocked::No, committed: 0, outstanding: 0, seen: None }
    }

    /// Command buffers committed and not yet reported complete.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// The next action at `now`; see the module's contract.
    pub fn poll(&mut self, now: Instant) -> Action {
        loop {
            match self.blocked {
                Blocked::Ended => return Action::Done,
                Blocked::Until(t) if now < t => return Action::WaitUntil(t),
                Blocked::Outstanding(most) if self.outstanding > most => {
                    return Action::WaitForCompletion;
                }
                Blocked::No | Blocked::Until(_) | Blocked::Outstanding(_) => {
                    self.blocked = Blocked::No
                }
            }
            match self.program.next(now, self.seen.as_ref()) {
                Op::Pass(span) => self.blocked = Blocked::Until(now + span),
                Op::PassUntil(t) => self.blocked = Blocked::Until(t),
                Op::Wait(most) => self.blocked = Blocked::Outstanding(most),
                Op::End => self.blocked = Blocked::Ended,
                Op::Mark(name) => return Action::Mark(name),
                Op::Commit(kernel) => {
                    self.committed += 1;
                    self.outstanding += 1;
                    return Action::Commit(kernel);
                }
            }
        }
    }

    /// Reports a completion of one of this program's command buffers.
    ///
    /// # Panics
    /// If nothing is outstanding.
    pub fn on_completion(&mut self, seen: Seen) {
        assert!(self.outstanding > 0, "a completion was reported with nothing outstanding");
        self.outstanding -= 1;
        self.program.on_completion(&seen);
        self.seen = Some(seen);
    }
}
