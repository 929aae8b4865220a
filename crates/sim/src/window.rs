//! What the controller is told of a sampling window: how long the firmware had work.
//!
//! Occupied is the time with at least one buffer known to the firmware, queued or running, over all
//! queues. An empty stretch is credited (counts as busy for the boost) if it is shorter than the
//! chip's `credited_gap`; whether it is, is known only at its end or once it has become too long,
//! so what crosses the end of a window is charged to the window in which that is decided.

use everwarm_dvfs::Sample;
use everwarm_units::Span;

/// The window that is being filled. Unit of all fields: ns.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    credited_gap: u64,
    start: u64,
    occupied_since: Option<u64>,
    occupied: u64,
    /// The longest stretch without a gap that ended in this window.
    stretch: u64,
    /// Start of the current empty stretch.
    empty_since: u64,
    /// Up to where the current empty stretch is charged.
    charged_to: u64,
    charged: u64,
}

impl Window {
    pub(crate) fn new(credited_gap: Span) -> Window {
        Window {
            credited_gap: credited_gap.as_nanos(),
            start: 0,
            occupied_since: None,
            occupied: 0,
            stretch: 0,
            empty_since: 0,
            charged_to: 0,
            charged: 0,
        }
    }

    pub(crate) fn is_occupied(&self) -> bool {
        self.occupied_since.is_some()
    }

    /// The GPU is awake at `at`, from where the first window counts: a wake is nobody's idleness.
    pub(crate) fn open(&mut self, at: u64) {
        *self = Window { start: at, empty_since: at, charged_to: at, ..self.clone() };
        (self.occupied, self.stretch, self.charged, self.occupied_since) = (0, 0, 0, None);
    }

    /// The firmware has work from `at` on.
    pub(crate) fn occupy(&mut self, at: u64) {
        let at = at.max(self.empty_since);
        self.charge(at);
        self.occupied_since = Some(at);
    }

    /// The firmware has no more work.
    pub(crate) fn vacate(&mut self, now: u64) {
        if let Some(since) = self.occupied_since.take() {
            self.occupied += now - since.max(self.start);
            self.stretch = self.stretch.max(now - since);
        }
        (self.empty_since, self.charged_to) = (now, now);
    }

    /// Ends the window at `now` and begins the next.
    pub(crate) fn close(&mut self, now: u64) -> Sample {
        match self.occupied_since {
            Some(since) => {
                self.occupied += now - since.max(self.start);
                self.stretch = self.stretch.max(now - since);
            }
            None => self.charge(now),
        }
        let length = now - self.start;
        let sample = Sample {
            window: Span::ns(length),
            occupied: Span::ns(self.occupied),
            credited: Span::ns(length.saturating_sub(self.charged)),
            stretch: Span::ns(self.stretch),
        };
        (self.start, self.occupied, self.stretch, self.charged) = (now, 0, 0, 0);
        sample
    }

    /// Charges the empty stretch up to `now` if it is too long to be credited.
    fn charge(&mut self, now: u64) {
        if now - self.empty_since > self.credited_gap {
            self.charged += now - self.charged_to;
            self.charged_to = now;
        }
    }
}
