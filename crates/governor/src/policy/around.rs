//! What policies do around a request, and the windows of time in which they wish for a hold.
//!
//! Of a request itself: its head warms the device at once; a hold that is on stays through the
//! prefill, because the server tokenises first and its host gaps would let the clock fall; it ends at
//! the first content, since decode neither needs nor feels the clock. Of the signs of one: a
//! connection, `Expect` or a preflight warms like a head; one that turns out to be a probe withdraws
//! what it announced, and after a few in a row connections alone are not believed until a request
//! that works has come.
//!
//! Every window has an end that no clock tick moves, so time alone always ends a hold; windows are
//! only added by events, and at most [`WINDOWS_MAX`] are kept. It does not know what the time after a
//! request is worth: that is what policies differ in.

use super::{Traffic, Wish};
use crate::Event;
use everwarm_units::{Instant, Span};

/// A connection or a preflight without a request after this long was something else. Source: guess.
const ARRIVAL: Span = Span::ms(1000);
/// Past this a running prefill keeps the clock up alone. Source: study 1 (440 ms at the slowest).
const PREFILL: Span = Span::ms(1000);
/// So many connections in a row that brought no work, and the next one warms nothing by itself.
/// Source: guess; a browser opens two or three at once and uses one.
const FALSE_ALARMS_MAX: u32 = 4;
/// Windows kept; the one that ends first makes room.
const WINDOWS_MAX: usize = 16;

/// What a window is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
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

/// Windows, and what is known of the request that is coming or running.
pub(super) struct Around {
    grace: Span,
    windows: Vec<Window>,
    /// The device worked (for us or for a request) at this instant.
    warmed: Option<Instant>,
    /// Arrivals since the last request that worked which were none.
    false_alarms: u32,
}

impl Around {
    /// Within `grace` after work a kernel would take nothing away.
    pub(super) fn new(grace: Span) -> Self {
        Around { grace, windows: Vec::new(), warmed: None, false_alarms: 0 }
    }

    /// Wishes for a hold from `from` to `until`.
    pub(super) fn add(&mut self, why: Why, from: Instant, until: Instant, prewarm: bool) {
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

    /// Takes back what was wished for that reason.
    pub(super) fn withdraw(&mut self, why: Why) {
        self.drop_where(|w| w.why == why);
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
        self.withdraw(Why::Arrival);
        self.false_alarms += u32::from(self.windows.len() < before);
    }

    /// Signs that a request is about to come.
    pub(super) fn on_signs(&mut self, now: Instant, event: &Event, traffic: Traffic) {
        match *event {
            Event::ConnectionAccepted if self.false_alarms >= FALSE_ALARMS_MAX => {}
            Event::ConnectionAccepted | Event::Preflight => self.arrival(now, traffic),
            Event::RequestHead { work: true } => self.false_alarms = 0,
            Event::RequestHead { work: false } => self.false_alarm(),
            Event::ConnectionClosed if traffic.connections == 0 => self.false_alarm(),
            _ => {}
        }
    }

    /// A request itself. True when the last one that ran has ended.
    pub(super) fn on_request(&mut self, now: Instant, event: &Event, traffic: Traffic) -> bool {
        match *event {
            Event::RequestHead { work: true } | Event::ExpectContinue => {
                self.arrival(now, traffic);
            }
            Event::RequestForwarded { work: true } => {
                self.drop_where(|w| w.covers(now));
                self.add(Why::Prefill, now, now + PREFILL, false);
            }
            Event::DecodeRunning => self.drop_where(|w| w.covers(now)),
            Event::ResponseFinished { work: true, .. }
            | Event::ResponseAborted { work: true, .. }
                if traffic.requests == 0 =>
            {
                self.drop_where(|w| w.why != Why::Hint);
                self.warmed = Some(now);
                return true;
            }
            _ => {}
        }
        false
    }

    /// The wish at `now`.
    pub(super) fn wish(&mut self, now: Instant) -> Wish {
        self.windows.retain(|w| now < w.until);
        let warm = self.warmed.is_some_and(|at| now.since(at) < self.grace);
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
