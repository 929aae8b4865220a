//! From a GPU's own timer to the clock of the host.
//!
//! A GPU stamps with its own counter, which began at another moment and runs at its own speed. A
//! [`Reading`] says what that counter showed between two looks at the host's clock; of many, the one
//! whose looks lay closest together says it best. Readings far apart say how the speeds differ.
//! Pure arithmetic: who reads, and how, is the backend's business.

use crate::Monotonic;
use everwarm_units::Span;

/// What the GPU's timer showed between two looks at the host's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// The host's clock before.
    pub before: Monotonic,
    /// The GPU's timer. Unit: ticks.
    pub ticks: u64,
    /// The host's clock after.
    pub after: Monotonic,
}

impl Reading {
    /// How far apart the two looks were.
    fn width(&self) -> Span {
        self.after.since(self.before)
    }

    /// The host's clock at the reading, as well as it is known. Unit: ns.
    fn host_ns(&self) -> f64 {
        self.before.0 as f64 + self.width().as_nanos() as f64 / 2.0
    }
}

/// Puts stamps of a GPU's timer on the host's clock.
#[derive(Clone, Debug)]
pub struct Timebase {
    /// Bits of the counter that count; it wraps after them.
    bits: u32,
    /// Nominal length of a tick. Unit: ns.
    tick: f64,
    /// Length of a tick of the host's clock, as far as readings have shown. Unit: ns.
    measured: f64,
    /// The best reading of the first burst, which the speed is measured from.
    first: Reading,
    /// The best reading of the last burst, which stamps are counted from.
    anchor: Reading,
}

/// No crystal is off by more. Source: guess; typical parts are specified to 50 ppm, two of them
/// differ by 100 ppm.
const DRIFT_MAX: f64 = 1e-3;

/// Readings closer together than this say nothing of the speed. Source: at 1 us of error such an
/// interval shows 3 ppm, a tenth of what crystals differ by.
const FAR_APART: Span = Span::ms(300);

impl Timebase {
    /// The time base of a counter of `bits` bits whose ticks are `tick` ns long, from a burst of
    /// readings; `None` without one.
    pub fn new(bits: u32, tick: f64, burst: &[Reading]) -> Option<Self> {
        let best = best(burst)?;
        Some(Timebase { bits, tick, measured: tick, first: best, anchor: best })
    }

    /// Takes in a later burst: stamps are counted from it, and the speed is measured up to it.
    ///
    /// Stamps move by at most the sum of both errors. The speed is taken only from readings far
    /// enough apart, and only if it is within what a crystal can be off.
    pub fn update(&mut self, burst: &[Reading]) {
        let Some(best) = best(burst) else { return };
        self.anchor = best;
        let passed = best.host_ns() - self.first.host_ns();
        if passed >= FAR_APART.as_nanos() as f64 {
            let tick = passed / self.ticks_between(self.first.ticks, best.ticks);
            if (tick / self.tick - 1.0).abs() <= DRIFT_MAX {
                self.measured = tick;
            }
        }
    }

    /// The host's clock at the GPU's `ticks`, which may lie before or after the readings by less
    /// than half of the counter's range.
    pub fn at(&self, ticks: u64) -> Monotonic {
        let ns = self.ticks_between(self.anchor.ticks, ticks) * self.measured;
        Monotonic((self.anchor.host_ns() + ns).max(0.0).round() as u64)
    }

    /// How wrong [`Timebase::at`] may be near its last burst: half of the time that the best
    /// reading took, and a tick.
    pub fn error(&self) -> Span {
        let ns = self.anchor.width().as_nanos() as f64 / 2.0 + self.tick;
        Span::from_nanos_f64(ns)
    }

    /// By how much the GPU's timer is slower than the host's clock. Unit: 1 (1e-6 is a ppm).
    pub fn drift(&self) -> f64 {
        self.measured / self.tick - 1.0
    }

    /// Time since the last burst at the host's `now`.
    pub fn age(&self, now: Monotonic) -> Span {
        now.since(self.anchor.after)
    }

    /// From one stamp to another, either may be the later one. Unit: ticks.
    fn ticks_between(&self, from: u64, to: u64) -> f64 {
        // The difference in the counter's own width, with its sign.
        let unused = 64 - self.bits.clamp(1, 64);
        let difference = (to.wrapping_sub(from) << unused) as i64 >> unused;
        difference as f64
    }
}

/// The reading whose looks at the host's clock were closest together.
fn best(burst: &[Reading]) -> Option<Reading> {
    burst.iter().copied().min_by_key(Reading::width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A counter that began long ago, ticks every 32 ns and is 40 ppm too slow.
    fn ticks_at(host_ns: f64, start: u64, bits: u32) -> u64 {
        let ticks = (host_ns / 32.0 * (1.0 - 40e-6)) as u64;
        start.wrapping_add(ticks) & (u64::MAX >> (64 - bits))
    }

    proptest! {
        #[test]
        fn stamps_land_within_the_error(
            start: u64,
            bits in 36u32..=64,
            widths in prop::collection::vec((200u64..20_000, 0.0f64..1.0), 1..8),
            at in 0u64..20_000_000_000,
        ) {
            let burst = |from: u64| -> Vec<Reading> {
                widths.iter().enumerate().map(|(n, &(width, place))| {
                    let before = from + n as u64 * 50_000;
                    let read = before as f64 + width as f64 * place;
                    Reading {
                        before: Monotonic(before),
                        ticks: ticks_at(read, start, bits),
                        after: Monotonic(before + width),
                    }
                }).collect()
            };
            let mut base = Timebase::new(bits, 32.0, &burst(1_000_000_000)).unwrap();
            base.update(&burst(10_000_000_000));
            // The speed is known to both errors over nine seconds.
            prop_assert!((base.drift() - 40e-6).abs() < 20_100.0 / 9e9 + 1e-7, "{}", base.drift());
            let got = base.at(ticks_at(at as f64, start, bits)).0 as f64;
            // Twice the error at the burst, and as much again for each nine seconds away from it.
            let bound = base.error().as_nanos() as f64 * (2.0 + 2.0 * 10.0 / 9.0) + 20_100.0;
            prop_assert!((got - at as f64).abs() < bound, "{got} for {at}");
        }
    }

    #[test]
    fn the_closest_look_counts_and_a_wild_speed_does_not() {
        let reading = |before, ticks, after| Reading {
            before: Monotonic(before),
            ticks,
            after: Monotonic(after),
        };
        assert!(Timebase::new(64, 1.0, &[]).is_none());
        let burst = [reading(1_000, 900, 9_000), reading(10_000, 100, 10_200)];
        let mut base = Timebase::new(64, 1.0, &burst).unwrap();
        assert_eq!(base.at(100), Monotonic(10_100));
        assert_eq!(base.at(50), Monotonic(10_050), "before the reading too");
        assert_eq!(base.error(), Span::ns(101));
        // A counter that seems to have stood still is one that was reset, not a slow one.
        base.update(&[reading(5_000_000_000, 200, 5_000_000_200)]);
        assert_eq!(base.drift(), 0.0);
        assert_eq!(base.at(200), Monotonic(5_000_000_100));
    }
}
