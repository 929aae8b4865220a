//! What is known of the buffers of one size, and what follows from it.
//!
//! The gap before a buffer, with `n` in flight. The host may begin to encode it when the `n`-th
//! buffer before it is seen to have ended, and until it starts the `n - 1` between run on; `r` is
//! the round trip from that end, by way of the host, to the start of what it commits then:
//!
//! ```text
//! gap <= r + encode - (n - 1) kernel        (or the device's own gap, if that is longer)
//! ```
//!
//! That is the worst case, in which long gaps fall together. It falls with `n`. What does not: a host thread encodes one buffer at a time, so if encoding
//! takes longer than running, the queue drains and the gap is `encode - kernel` at any depth. Only
//! a larger chunk helps then, and only if encoding has a cost for each buffer. Both follow from the
//! slow encodes (p90) and the fast kernels (p10), which are those at the clock that is to be held.

use crate::window::{Longest, Window};
use everwarm_units::Span;

/// Share of samples that count as usual; the others may exceed what is planned.
const USUAL: f64 = 0.9;

/// Samples from which quantiles are taken for true.
const ENOUGH: usize = 4;

/// Depth before anything is known: the least that keeps the queue from running empty each time.
const DEPTH_FIRST: usize = 2;

/// Buffers of one size.
#[derive(Clone, Debug, Default)]
pub struct Estimate {
    pub units: u32,
    pub encode: Window,
    pub kernel: Window,
    pub gap: Window,
    pub kernel_longest: Longest,
}

impl Estimate {
    pub fn new(units: u32) -> Self {
        Estimate { units, ..Estimate::default() }
    }

    /// A slow encode. Zero before the first.
    pub fn encode_slow(&self) -> Span {
        self.encode.quantile(USUAL).unwrap_or_default()
    }

    /// A fast kernel. Zero before the first.
    pub fn kernel_fast(&self) -> Span {
        self.kernel.quantile(1.0 - USUAL).unwrap_or_default()
    }

    /// A long gap, once enough were seen.
    pub fn gap_long(&self) -> Option<Span> {
        (self.gap.len() >= ENOUGH).then(|| self.gap.quantile(USUAL).unwrap_or_default())
    }

    /// True if the host encodes as fast as the GPU runs, but for less than `gap_max`.
    pub fn keeps_up(&self, gap_max: Span) -> bool {
        self.encode_slow() <= self.kernel_fast() + gap_max
    }

    /// The depth that hides all that the host does; unbounded. The budget alone would often do with
    /// less, but then the GPU stands still for as long, each time.
    pub fn depth(&self, round_trip: Span) -> usize {
        if self.encode.len() < ENOUGH || self.kernel.len() < ENOUGH {
            return DEPTH_FIRST;
        }
        depth_for(self.encode_slow(), self.kernel_fast(), round_trip)
    }

    /// True if half the size keeps the budget for certain. It encodes no slower than this one, and
    /// runs at least half as long.
    pub fn half_would_do(&self, gap_max: Span) -> bool {
        let known = self.encode.len() >= ENOUGH && self.kernel.len() >= ENOUGH;
        known && self.encode_slow() <= self.kernel_fast() / 2 + gap_max / 2
    }
}

fn depth_for(encode: Span, kernel: Span, round_trip: Span) -> usize {
    let buffers = (round_trip + encode).as_nanos().div_ceil(kernel.as_nanos().max(1));
    usize::try_from(buffers).map_or(usize::MAX, |n| n.saturating_add(1)).max(DEPTH_FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_hides_what_the_host_takes() {
        let check = |encode, kernel, expected| {
            let depth = depth_for(Span::us(encode), Span::us(kernel), Span::us(310));
            assert_eq!(depth, expected, "{encode} {kernel}");
        };
        check(0, 580, 2);
        check(270, 580, 2);
        check(271, 580, 3);
        check(100, 50, 10); // 410 in eight and a bit
        check(100, 0, 410_001);
    }

    #[test]
    fn a_few_slow_encodes_do_not_count() {
        let mut size = Estimate::new(1);
        for n in 0..60 {
            size.encode.push(if n % 20 == 0 { Span::ms(9) } else { Span::us(100) });
            size.kernel.push(Span::us(600));
        }
        assert_eq!(size.encode_slow(), Span::us(100));
        assert!(size.keeps_up(Span::us(500)));
        assert_eq!(size.depth(Span::us(310)), 2);
    }
}
