//! The host's own share: how late it wakes from a rest, and how fast its CPU then is.
//!
//! A request is served by threads that sleep until it comes. What they cost is measured without the
//! GPU: a rest, and a fixed piece of arithmetic right after it.

use everwarm_gpu::{Backend, Monotonic};
use everwarm_units::Span;
use std::hint::black_box;

/// A host after a rest. Unit: ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rested {
    /// How much later than asked it woke.
    pub late: f64,
    /// What a piece of work of about a millisecond then took; `None` where there is no CPU to ask.
    pub work: Option<f64>,
}

/// A host that can rest and work.
pub trait Host {
    /// Rests for `span` (not at all if that is zero), then works.
    fn rest(&mut self, backend: &mut dyn Backend, span: Span) -> Rested;
}

/// The host that this process runs on. On a device in virtual time it has no CPU: only its sleep
/// is looked at.
#[derive(Default)]
pub struct PlainHost {
    /// Rounds of the loop that take about a millisecond.
    rounds: Option<u64>,
}

/// How long a piece of work is to take.
const WORK: Span = Span::ms(1);

impl Host for PlainHost {
    fn rest(&mut self, backend: &mut dyn Backend, span: Span) -> Rested {
        if backend.device().virtual_time {
            let deadline = backend.now() + span;
            backend.sleep_until(deadline);
            return Rested { late: backend.now().since(deadline).as_ms(), work: None };
        }
        let rounds = *self.rounds.get_or_insert_with(rounds);
        let begin = Monotonic::now();
        if !span.is_zero() {
            std::thread::sleep(span.into());
        }
        let woken = Monotonic::now();
        work(rounds);
        Rested {
            late: woken.since(begin).saturating_sub(span).as_ms(),
            work: Some(Monotonic::now().since(woken).as_ms()),
        }
    }
}

/// Finds how many rounds take about a millisecond, on a CPU that has been made to work.
fn rounds() -> u64 {
    let mut rounds = 1_000;
    let begin = Monotonic::now();
    loop {
        let before = Monotonic::now();
        work(rounds);
        let took = Monotonic::now().since(before);
        if took < WORK / 2 {
            rounds *= 2;
        } else if Monotonic::now().since(begin) > WORK * 50 {
            return rounds;
        }
    }
}

/// A chain of multiplications, each of which needs the one before.
fn work(rounds: u64) {
    let mut x = black_box(1_u64);
    for n in 0..rounds {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(n);
    }
    black_box(x);
}

/// What a host showed, by the length of the rest before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rests {
    /// Without a rest.
    pub none: Vec<Rested>,
    /// After a millisecond.
    pub short: Vec<Rested>,
    /// After a long one.
    pub long: Vec<Rested>,
}

/// Long rests of an examination.
const ROUNDS: usize = 3;
/// Short ones to each of them; together they make a test at one percent possible.
const CONTROLS: usize = 3;

/// Lets the host rest and work by turns.
pub fn watch(host: &mut dyn Host, backend: &mut dyn Backend, long: Span) -> Rests {
    let mut rests = Rests::default();
    // The first piece of work is the first in every respect.
    host.rest(backend, Span::ZERO);
    for _ in 0..ROUNDS {
        rests.long.push(host.rest(backend, long));
        for _ in 0..CONTROLS {
            rests.short.push(host.rest(backend, Span::ms(1)));
        }
        for _ in 0..CONTROLS {
            rests.none.push(host.rest(backend, Span::ZERO));
        }
    }
    rests
}
