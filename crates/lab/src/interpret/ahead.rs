//! The host program of a `run` step whose depth the in-flight helper finds.
//!
//! A kernel of the step is a unit, the host's delay before a commit is what encoding takes. It
//! marks when the helper finds the host too slow, and when no longer.

use crate::scenario::{Run, Until};
use everwarm_inflight::{Action, Done, InFlight, Limits, Verdict};
use everwarm_units::Instant;
use everwarm_workload::{Kernel, Op, Program, Seen};

/// Commits one kernel again and again, as far ahead as the helper says.
pub struct Ahead {
    run: Run,
    /// So many of the step's kernels in one command buffer.
    kernel: Box<dyn Fn(u32) -> Kernel + Send>,
    ahead: InFlight,
    began: Option<Instant>,
    units: u64,
    at: At,
    too_slow: bool,
}

/// What comes next.
enum At {
    Ask,
    Commit(u32),
    Drain,
    End,
}

impl Ahead {
    /// A run under `limits`.
    pub fn new(run: Run, limits: Limits, kernel: Box<dyn Fn(u32) -> Kernel + Send>) -> Self {
        let mut ahead = InFlight::new(limits);
        let units = match run.until {
            Until::Times(n) => u64::from(n),
            Until::Elapsed(_) => u64::MAX, // time ends it
        };
        ahead.submit(units).expect("the first request finds room");
        Ahead { run, kernel, ahead, began: None, units: 0, at: At::Ask, too_slow: false }
    }

    /// What the helper's verdict has changed to, for the record.
    fn news(&mut self) -> Option<Op> {
        let too_slow = matches!(self.ahead.verdict(), Verdict::TooSlow(_));
        let changed = std::mem::replace(&mut self.too_slow, too_slow) != too_slow;
        changed.then_some(Op::Mark(if too_slow { "host too slow" } else { "host fast enough" }))
    }

    fn ask(&mut self, now: Instant) -> Option<Op> {
        let began = *self.began.get_or_insert(now);
        if self.run.until.is_over(self.units, now.since(began)) {
            self.at = At::Drain;
            return None;
        }
        match self.ahead.poll(now) {
            Action::Encode(chunk) => {
                self.at = At::Commit(chunk.units);
                (!self.run.delay.is_zero()).then_some(Op::Pass(self.run.delay))
            }
            Action::WaitForCompletion => Some(Op::Wait(self.ahead.in_flight() - 1)),
            Action::WaitForRequest => unreachable!("a run is over when its units are"),
        }
    }
}

impl Program for Ahead {
    fn next(&mut self, now: Instant, _seen: Option<&Seen>) -> Op {
        if let Some(mark) = self.news() {
            return mark;
        }
        loop {
            match self.at {
                At::Ask => {
                    if let Some(op) = self.ask(now) {
                        return op;
                    }
                }
                At::Commit(units) => {
                    self.at = At::Ask;
                    self.ahead.on_commit(now);
                    self.units += u64::from(units);
                    return Op::Commit((self.kernel)(units));
                }
                At::Drain => {
                    self.at = At::End;
                    if self.run.drain {
                        return Op::Wait(0);
                    }
                }
                At::End => return Op::End,
            }
        }
    }

    fn on_completion(&mut self, seen: &Seen) {
        let gpu = Some((seen.gpu_start, seen.gpu_end));
        self.ahead.on_completion(Done { observed: seen.observed, gpu });
    }
}
