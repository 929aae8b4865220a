//! Whether the gap budget is kept, and if not, why and by how much.

use everwarm_units::Span;
use std::fmt::{Display, Formatter, Result};

/// What is known of the gap so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Too few gaps were seen, or a larger depth or chunk is being tried.
    Learning,
    /// Nine gaps in ten stay under the budget.
    Holds,
    /// They do not, and neither depth nor chunk size within the limits changes that.
    TooSlow(Shortfall),
}

/// How far a host is from keeping the budget, at the best that the limits allow.
///
/// As text it is a warning for people: what was measured, what was allowed, what would help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortfall {
    /// What stands in the way.
    pub why: Why,
    /// The queue gap that one in ten exceeds.
    pub gap: Span,
    /// The budget, [`crate::Limits::gap_max`].
    pub gap_max: Span,
    /// Time to encode a command buffer; one in ten takes longer.
    pub encode: Span,
    /// Time that a command buffer runs; one in ten runs shorter.
    pub kernel: Span,
    /// Units in a command buffer.
    pub chunk: u32,
    /// Command buffers in flight.
    pub in_flight: usize,
}

/// What stands in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Encoding a buffer takes longer than running it, by more than the budget, at every size
    /// allowed: no depth helps, since the queue drains faster than it is filled.
    Encode,
    /// The host would keep up, but its delays need more buffers in flight than allowed.
    InFlight,
    /// The same, but GPU time in flight is at its limit.
    Latency,
}

impl Shortfall {
    /// By how much the gap exceeds its budget.
    pub fn over(&self) -> Span {
        self.gap.saturating_sub(self.gap_max)
    }
}

impl Display for Shortfall {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Shortfall { gap, gap_max, encode, kernel, chunk, in_flight, .. } = self;
        let units = if *chunk == 1 { "unit" } else { "units" };
        write!(
            f,
            "the host is too slow: one queue gap in ten is longer than {gap}, {} over the budget of \
             {gap_max}, with {in_flight} command buffers of {chunk} {units} in flight, which take \
             {encode} to encode and {kernel} to run; ",
            self.over()
        )?;
        f.write_str(match self.why {
            Why::Encode => {
                "more in flight would not help: encode faster or on another thread, or allow larger chunks (chunk_max, latency_max) if encoding costs more a buffer than a unit"
            }
            Why::InFlight => "more in flight would help: raise in_flight_max",
            Why::Latency => "more in flight would help: raise latency_max",
        })
    }
}
