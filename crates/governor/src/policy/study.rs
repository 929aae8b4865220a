//! Warm when a request is expected, rest when it is not: the study's own recommendation.
//!
//! The trade-off. Holding costs some 0.6 W on an M2; not holding costs the next request 15 to
//! 50 ms once half a second has passed. So hold only while a request is likely, and never beside
//! work that keeps the clock up by itself.
//!
//! The rule. *After a request* nothing is lost for 100 ms: rest for that long (the grace), then
//! hold for `hold_for`, then let go. *On a hint* (a key stroke, a connection, a request's head,
//! `Expect`, a preflight) submit one kernel at once and hold until the request comes or a time-out;
//! a hint for later waits until a second before. *Through a prefill* a hold that is already on
//! stays, because the server tokenises first and its host gaps would let the clock fall; it ends
//! at the first content, since decode neither needs nor feels the clock. A connection or a head
//! that turns out to be a probe withdraws what it announced, and after a few of them in a row
//! connections alone are not believed until a request that works has come.
//!
//! The proof. Every hold lies in a window with an end that no clock tick moves, so time alone
//! always ends it; windows are only added by events, and only so many are kept (`around.rs`).
//!
//! Source: study 4 (mitigations 1, 2 and 4).

use super::around::{Around, Why};
use super::{Params, Policy, Traffic, Wish};
use crate::Event;
use everwarm_units::{Instant, Span};

pub(super) const ABOUT: &str =
    "warms on hints and while a request is expected, rests during decode and else";

/// Nothing is lost for this long after work. Source: study 4.4.
const GRACE: Span = Span::ms(100);
/// A hint is over this long after the request was expected. Source: guess (a pause in typing).
const PATIENCE: Span = Span::s(5);
/// A hint for later than this is waited for. Source: guess; the ramp itself takes half of it.
const LEAD: Span = Span::ms(1000);
/// Less likely hints are not worth their energy. Source: guess.
const CONFIDENCE_MIN: f64 = 0.1;
/// No hint is believed further ahead than a day.
const AHEAD_MAX: Span = Span::s(24 * 3600);

pub(super) struct Study {
    hold_for: Span,
    around: Around,
}

impl Study {
    pub(super) fn new(params: &Params) -> Self {
        Study { hold_for: params.hold_for, around: Around::new(GRACE) }
    }

    fn hint(&mut self, now: Instant, expected: Span, confidence: f64) {
        if confidence >= CONFIDENCE_MIN {
            let expected = expected.min(AHEAD_MAX);
            let from = now + expected.saturating_sub(LEAD);
            self.around.add(Why::Hint, from, now + expected + PATIENCE, true);
        }
    }
}

impl Policy for Study {
    fn on_event(&mut self, now: Instant, event: &Event, traffic: Traffic) {
        self.around.on_signs(now, event, traffic);
        if let Event::Hint { expected, confidence, .. } = *event {
            self.hint(now, expected.unwrap_or(Span::ZERO), confidence);
        }
        if self.around.on_request(now, event, traffic) {
            self.around.add(Why::After, now + GRACE, now + self.hold_for, false);
        }
    }

    fn wish(&mut self, now: Instant, _traffic: Traffic) -> Wish {
        self.around.wish(now)
    }
}
