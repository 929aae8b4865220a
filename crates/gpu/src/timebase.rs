//! From a GPU's own timer to the clock of the host.
//!
//! A GPU stamps with its own counter, which began at another moment and runs at its own speed. A
//! [`Reading`] says what that counter showed between two looks at the host's clock; of many, the one
//! whose looks lay closest together says it best. Readings far apart say how the speeds differ.
//! Pure arithmetic: who reads, and how, is the backend's business.
//!
//! A [`Keeper`] says when to read again and whether what was read is worth taking in, so that a time base
//! stays good for as long as its handle lives; [`within`] puts a stamp's error where it shows least.

use crate::Monotonic;
use everwarm_units::{Instant, Span};

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

/// A reading serves for so long where reading again disturbs nothing. Source: crystals differ by
/// 100 ppm at most, and less than 1 ppm once the speed is known.
const AGE_MAX: Span = Span::s(1);

/// And where the device is at work, which may keep the answer back. Source: a handle that was never
/// idle and did not read again drifted by 12.6 ppm (H200); so it is off by 25 us at the most.
const AGE_BUSY: Span = Span::s(2);

/// A bad burst is tried again after so long, after the next one twice as long, and so on.
const RETRY: Span = Span::ms(100);

/// How often that doubles.
const DOUBLINGS: u32 = 5;

/// A burst this many times wider than the narrowest is not worth the drift that it would end.
const WIDER_MAX: u64 = 3;

/// How long bad bursts are done without. Source: at a drift of 20 ppm that is not known yet, 200 us.
const PATIENCE: Span = Span::s(10);

/// A time base that is kept up to date.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    base: Timebase,
    /// The narrowest reading so far.
    narrowest: Span,
    /// Nothing is read before.
    next: Monotonic,
    /// Bursts in a row that were no good.
    bad: u32,
}

impl Keeper {
    /// Keeps `base`, which has just been made.
    pub fn new(base: Timebase) -> Self {
        Keeper { narrowest: base.anchor.width(), next: base.anchor.after, bad: 0, base }
    }

    /// Whether it is time to read again; `free` if that disturbs nothing and is answered at once.
    pub fn is_due(&self, now: Monotonic, free: bool) -> bool {
        now >= self.next && self.base.age(now) > if free { AGE_MAX } else { AGE_BUSY }
    }

    /// Takes in a burst of `now`, unless what has drifted meanwhile is less wrong than it.
    pub fn take(&mut self, burst: &[Reading], now: Monotonic) {
        let width = best(burst).map(|reading| reading.width());
        let good = width.is_some_and(|w| w <= self.narrowest * WIDER_MAX + Span::us(1));
        if good || self.base.age(now) > PATIENCE {
            self.base.update(burst);
        }
        self.narrowest = self.narrowest.min(width.unwrap_or(Span::MAX));
        self.bad = if good { 0 } else { (self.bad + 1).min(DOUBLINGS) };
        self.next = Monotonic(now.0 + (RETRY * (1 << self.bad.saturating_sub(1))).as_nanos());
    }

    /// Goes on with the speed that an older time base of the same device has found.
    pub fn continues(&mut self, older: Timebase) {
        let anchor = std::mem::replace(&mut self.base, older);
        self.base.update(&[anchor.anchor]);
    }

    /// The time base.
    pub fn base(&self) -> &Timebase {
        &self.base
    }
}

/// Moves a stretch of time so that it lies between two instants, and keeps its length if it can: what
/// sticks out is an error of the time base, and that is the same at both ends.
pub(crate) fn within(
    (start, end): (Instant, Instant),
    earliest: Instant,
    latest: Instant,
) -> (Instant, Instant) {
    let length = end.since(start);
    let start = match end > latest {
        true => latest - length,
        false => start,
    };
    let start = start.clamp(earliest, latest);
    (start, (start + length).min(latest))
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

    #[test]
    fn a_stretch_is_moved_before_it_is_cut() {
        let check = |stretch: (u64, u64), expected: (u64, u64)| {
            let at = |(a, b)| (Instant::from_nanos(a), Instant::from_nanos(b));
            let got = within(at(stretch), Instant::from_nanos(100), Instant::from_nanos(200));
            assert_eq!(got, at(expected), "{stretch:?}");
        };
        check((120, 180), (120, 180));
        check((90, 150), (100, 160));
        check((150, 240), (110, 200));
        check((50, 350), (100, 200));
        check((0, 50), (100, 150));
        check((300, 310), (190, 200));
    }

    const MS: u64 = 1_000_000;

    /// A burst of one reading at `at`, as wide as told, of a timer that is 10 ppm too slow.
    fn burst(at: u64, width: u64) -> [Reading; 1] {
        let ticks = (at + width / 2) - (at + width / 2) / 100_000;
        [Reading { before: Monotonic(at), ticks, after: Monotonic(at + width) }]
    }

    #[test]
    fn a_busy_handle_reads_again_and_bad_bursts_are_tried_ever_less_often() {
        let begin = 1_000 * MS;
        let mut keeper = Keeper::new(Timebase::new(64, 1.0, &burst(begin, 2_000)).unwrap());
        let due = |keeper: &Keeper, ms: u64, free| keeper.is_due(Monotonic(begin + ms * MS), free);
        assert!(!due(&keeper, 900, true) && due(&keeper, 1_100, true));
        assert!(!due(&keeper, 1_900, false) && due(&keeper, 2_100, false));
        // Wide ones, and one without an answer: after 100, 200, 400 ms.
        let mut at = 2_100;
        for (n, wait) in [100, 200, 400].into_iter().enumerate() {
            let found = burst(begin + at * MS, 100_000);
            let found = if n == 1 { &found[..0] } else { &found[..] };
            keeper.take(found, Monotonic(begin + at * MS + 100_000));
            assert!(!due(&keeper, at + wait - 10, true) && due(&keeper, at + wait + 10, true));
            at += wait + 10;
        }
        assert_eq!(keeper.base().drift(), 0.0, "none of them was taken in");
        keeper.take(&burst(begin + at * MS, 2_000), Monotonic(begin + at * MS + 2_000));
        assert!((keeper.base().drift() - 10e-6).abs() < 1e-6, "{}", keeper.base().drift());
        // What is bad for ever is better than nothing.
        at += 11_000;
        keeper.take(&burst(begin + at * MS, 100_000), Monotonic(begin + at * MS + 100_000));
        assert!(keeper.base().age(Monotonic(begin + at * MS + 100_000)).is_zero());
    }

    #[test]
    fn a_later_handle_knows_the_speed() {
        let mut first = Timebase::new(64, 1.0, &burst(0, 2_000)).unwrap();
        first.update(&burst(1_000 * MS, 2_000));
        let mut second = Keeper::new(Timebase::new(64, 1.0, &burst(2_000 * MS, 2_000)).unwrap());
        assert_eq!(second.base().drift(), 0.0);
        second.continues(first);
        assert!((second.base().drift() - 10e-6).abs() < 1e-6, "{}", second.base().drift());
        assert!(second.base().age(Monotonic(2_001 * MS)) < Span::ms(1), "and its own reading");
    }
}
