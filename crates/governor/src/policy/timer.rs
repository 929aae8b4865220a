//! A kernel every so often, whatever happens.
//!
//! The trade-off, not made: this is the keep-alive ping that scripts send and that others propose. It
//! uses the same energy by night as by day, and helps only where its pause is shorter than the time
//! in which the clock is forgotten. It is the baseline that a policy which looks has to beat.
//!
//! The rule. A kernel every `tick`, counted from the last one or from the last request's end: work is
//! as good as a kernel. While a request runs there is nothing to do.
//!
//! The proof. It never wishes for a hold; in any time there are at most as many kernels as ticks, and
//! one.

use super::{Params, Policy, Traffic, Wish};
use crate::Event;
use everwarm_units::{Instant, Span};

pub(super) const ABOUT: &str = "a kernel every --tick, day and night: the baseline";

/// Faster than the device's own waking there is nothing to tick for. Source: guess.
const TICK_MIN: Span = Span::ms(10);

pub(super) struct Timer {
    tick: Span,
    /// When the device last worked; `None` until it was first looked at.
    worked: Option<Instant>,
}

impl Timer {
    pub(super) fn new(params: &Params) -> Self {
        Timer { tick: params.tick.max(TICK_MIN), worked: None }
    }
}

impl Policy for Timer {
    fn on_event(&mut self, now: Instant, event: &Event, _traffic: Traffic) {
        if let Event::ResponseFinished { work: true, .. } = event {
            self.worked = Some(now);
        }
    }

    fn wish(&mut self, now: Instant, traffic: Traffic) -> Wish {
        if traffic.forwarded > 0 {
            // Its end is an event.
            return Wish::default();
        }
        let due = self.worked.map_or(now, |worked| worked + self.tick);
        let prewarm = due <= now;
        if prewarm {
            self.worked = Some(now);
        }
        let next = if prewarm { now + self.tick } else { due };
        Wish { prewarm, look_again: Some(next), ..Wish::default() }
    }
}
