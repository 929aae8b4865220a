//! What a runtime grants the helper, and what it must keep.

use everwarm_units::Span;

/// What must be kept, and what may be used for it.
///
/// The trade-off is the user who changes their mind: what is committed runs to its end. A request
/// that is cancelled, and a more urgent one that arrives, wait for everything in flight, about
/// [`crate::Plan::in_flight`] times the kernel time of a chunk. So no more is put in flight than
/// hides the host's work, and never more than these limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The queue gap to stay under: from the end of one buffer to the start of the next, on the
    /// GPU's timeline, while there is work.
    ///
    /// 0.5 ms on an Apple M2 (source: study 4.3).
    pub gap_max: Span,
    /// Command buffers in flight, at most.
    pub in_flight_max: usize,
    /// GPU time in flight, at most: what a cancelled request still costs. A single buffer is always
    /// allowed, and a second one until it is known how long one runs.
    pub latency_max: Span,
    /// Units in a command buffer, at least (but at a request's end).
    pub chunk_min: u32,
    /// Units in a command buffer, at most.
    pub chunk_max: u32,
    /// Requests that may wait or run, at most.
    pub requests_max: usize,
    /// From the end of a buffer to the start of the next one when the host waits for the first and
    /// commits the second at once, until it has been measured.
    pub round_trip: Span,
}

impl Limits {
    /// Limits for a device whose gap budget is `gap_max`, with chunks of one unit.
    pub const fn for_gap(gap_max: Span) -> Self {
        Limits {
            gap_max,
            // More than a host needs that keeps up at all: four hide a delay of half a
            // millisecond behind kernels of 0.58 ms (source: study 4.3).
            in_flight_max: 16,
            // A display's frame or three. Source: guess.
            latency_max: Span::ms(50),
            chunk_min: 1,
            chunk_max: 1,
            requests_max: 64,
            round_trip: Span::us(310), // source: study 4.3, 0.28-0.34 ms
        }
    }

    /// # Panics
    /// If nothing could run under these limits.
    pub(crate) fn check(&self) {
        assert!(!self.gap_max.is_zero(), "a gap_max of 0 can't be kept; expected e.g. 500 us");
        assert!(self.in_flight_max > 0, "in_flight_max is 0; expected at least 1, better 2");
        assert!(self.requests_max > 0, "requests_max is 0; expected at least 1");
        assert!(
            0 < self.chunk_min && self.chunk_min <= self.chunk_max,
            "chunks of {} to {} units; expected 1 or more, the smaller number first",
            self.chunk_min,
            self.chunk_max
        );
    }

    /// The sizes that are tried: the smallest, twice that, and so on up to the largest.
    pub(crate) fn chunks(&self) -> Vec<u32> {
        let doubled =
            |n: &u32| (*n < self.chunk_max).then(|| n.saturating_mul(2).min(self.chunk_max));
        std::iter::successors(Some(self.chunk_min), doubled).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_double_up_to_the_largest() {
        let check = |chunk_min, chunk_max, expected: &[u32]| {
            let limits = Limits { chunk_min, chunk_max, ..Limits::for_gap(Span::us(500)) };
            assert_eq!(limits.chunks(), expected);
        };
        check(1, 1, &[1]);
        check(1, 8, &[1, 2, 4, 8]);
        check(3, 10, &[3, 6, 10]);
        check(u32::MAX - 1, u32::MAX, &[u32::MAX - 1, u32::MAX]);
    }
}
