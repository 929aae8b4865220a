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
//! always ends it; windows are only added by events, and at most [`WINDOWS_MAX`] are kept.
//!
//! Source: study 4 (mitigations 1, 2 and 4).

use super::{Params, Policy, Traffic, Wish};
use crate::Event;
use everwarm_units::{Instant, Span};

pub(super) const ABOUT: &str =
    "warms on hints and while a request is expected, rests during decode and else";

/// Nothing is lost for this long after work. Source: study 4.4.
const GRACE: Span = Span::ms(100);
/// A connection or a preflight without a request after this long was something else. Source: guess.
const ARRIVAL: Span = Span::ms(1000);
/// A hint is over this long after the request was expected. Source: guess (a pause in typing).
const PATIENCE: Span = Span::s(5);
/// A hint for later than this is waited for. Source: guess; the ramp itself takes half of it.
const LEAD: Span = Span::ms(1000);
/// Past this a running prefill keeps the clock up alone. Source: study 1 (440 ms at the slowest).
const PREFILL: Span = Span::ms(1000);
/// Less likely hints are not worth their energy. Source: guess.
const CONFIDENCE_MIN: f64 = 0.1;
/// No hint is believed further ahead than a day.
const AHEAD_MAX: Span = Span::s(24 * 3600);
/// So many connections in a row that brought no work, and the next one warms nothing by itself.
/// Source: guess; a browser opens two or three at once and uses one.
const FALSE_ALARMS_MAX: u32 = 4;
/// Windows kept; the one that ends first makes room.
const WINDOWS_MAX: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Arrival,
    Hint,
    Prefill,
    After,
}

#[derive(Clone, Copy)]
struct Window {
    why: Why,
    from: Instant,
    until: Instant,
    /// A kernel is due when it begins.
    prewarm: bool,
}

impl Window {
    fn covers(&self, now: Instant) -> bool {
        self.from <= now && now < self.until
    }
}

pub(super) struct Study {
    hold_for: Span,
    windows: Vec<Window>,
    /// The device worked (for us or for a request) at this instant.
    warmed: Option<Instant>,
    /// Arrivals since the last request that worked which were none.
    false_alarms: u32,
}

impl Study {
    pub(super) fn new(params: &Params) -> Self {
        Study { hold_for: params.hold_for, windows: Vec::new(), warmed: None, false_alarms: 0 }
    }

    fn add(&mut self, why: Why, from: Instant, until: Instant, prewarm: bool) {
        if until <= from {
            return;
        }
        // A window of the same kind that is on already only grows: key strokes come in rows.
        let on = self.windows.iter_mut().find(|w| w.why == why && w.covers(from));
        match on {
            Some(window) => window.until = window.until.max(until),
            None => self.windows.push(Window { why, from, until, prewarm }),
        }
        if self.windows.len() > WINDOWS_MAX {
            let first = (0..self.windows.len()).min_by_key(|i| self.windows[*i].until);
            self.windows.swap_remove(first.expect("there are windows"));
        }
    }

    fn drop_where(&mut self, gone: impl Fn(&Window) -> bool) {
        self.windows.retain(|w| !gone(w));
    }

    fn arrival(&mut self, now: Instant, traffic: Traffic) {
        // While a request runs its own work keeps the device warm, and its end opens a window.
        if traffic.forwarded == 0 {
            self.add(Why::Arrival, now, now + ARRIVAL, true);
        }
    }

    /// What was announced was a probe, or nothing.
    fn false_alarm(&mut self) {
        let before = self.windows.len();
        self.drop_where(|w| w.why == Why::Arrival);
        self.false_alarms += u32::from(self.windows.len() < before);
    }

    fn hint(&mut self, now: Instant, expected: Span, confidence: f64) {
        if confidence >= CONFIDENCE_MIN {
            let expected = expected.min(AHEAD_MAX);
            let from = now + expected.saturating_sub(LEAD);
            self.add(Why::Hint, from, now + expected + PATIENCE, true);
        }
    }

    fn forwarded(&mut self, now: Instant) {
        self.drop_where(|w| w.covers(now));
        self.add(Why::Prefill, now, now + PREFILL, false);
    }

    fn ended(&mut self, now: Instant, traffic: Traffic) {
        if traffic.requests > 0 {
            return;
        }
        self.drop_where(|w| matches!(w.why, Why::Prefill | Why::Arrival | Why::After));
        self.warmed = Some(now);
        self.add(Why::After, now + GRACE, now + self.hold_for, false);
    }
}

impl Policy for Study {
    fn on_event(&mut self, now: Instant, event: &Event, traffic: Traffic) {
        match *event {
            Event::ConnectionAccepted if self.false_alarms >= FALSE_ALARMS_MAX => {}
            Event::ConnectionAccepted | Event::ExpectContinue | Event::Preflight => {
                self.arrival(now, traffic);
            }
            Event::RequestHead { work: true } => {
                self.false_alarms = 0;
                self.arrival(now, traffic);
            }
            Event::RequestHead { work: false } => self.false_alarm(),
            Event::ConnectionClosed if traffic.connections == 0 => self.false_alarm(),
            Event::Hint { expected, confidence, .. } => {
                self.hint(now, expected.unwrap_or(Span::ZERO), confidence);
            }
            Event::RequestForwarded { work: true } => self.forwarded(now),
            Event::DecodeRunning => self.drop_where(|w| w.covers(now)),
            Event::ResponseFinished { work: true, .. }
            | Event::ResponseAborted { work: true, .. } => self.ended(now, traffic),
            Event::RequestForwarded { work: false }
            | Event::ResponseFinished { work: false, .. }
            | Event::ResponseAborted { work: false, .. }
            | Event::SessionKnown { .. }
            | Event::ModelsListed
            | Event::ConnectionClosed
            | Event::WarmingFailed
            | Event::WarmingRestored
            | Event::Energy(_)
            | Event::PowerLost
            | Event::PowerRestored => {}
        }
    }

    fn wish(&mut self, now: Instant, _traffic: Traffic) -> Wish {
        self.windows.retain(|w| now < w.until);
        let warm = self.warmed.is_some_and(|at| now.since(at) < GRACE);
        let mut prewarm = false;
        for window in self.windows.iter_mut().filter(|w| w.covers(now)) {
            prewarm |= std::mem::take(&mut window.prewarm);
        }
        prewarm &= !warm;
        if prewarm {
            self.warmed = Some(now);
        }
        Wish {
            prewarm,
            hold_until: self.windows.iter().filter(|w| w.covers(now)).map(|w| w.until).max(),
            look_again: self.windows.iter().map(|w| w.from).filter(|from| *from > now).min(),
        }
    }
}
