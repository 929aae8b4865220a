//! How many buffers to keep in flight, and how large: the estimate first, then what it came to.
//!
//! The depth is what `estimate.rs` predicts. Every [`JUDGED`] gaps that were the host's to keep
//! short, a ruling says whether that was enough. If it was not: deeper, where the host encodes as
//! fast as the GPU runs on the whole; else larger, as long as a unit costs the host less than it
//! runs; else there is nothing left, and the verdict says so. After a while all is tried again,
//! since hosts change. If it was enough for long: smaller, where that is safe by
//! what was measured, and one less in flight where depth was added. It sees spans of time only.

use crate::estimate::Estimate;
use crate::limits::Limits;
use crate::verdict::{Shortfall, Verdict, Why};
use crate::window::Window;
use everwarm_units::Span;

/// Gaps between two rulings.
const JUDGED: u32 = 32;

/// So many of them may be long: a tenth.
const LATE_MAX: u32 = JUDGED / 10;

/// Good rulings in a row after which less is tried.
const GOOD_FOR_SMALLER: u32 = 8;

/// Bad rulings after giving up until all is tried again.
const BAD_UNTIL_RETRY: u32 = 64;

/// The choice, and what it rests on.
#[derive(Debug)]
pub struct Chooser {
    limits: Limits,
    sizes: Vec<Estimate>,
    at: usize,
    /// Depth beyond the predicted one.
    extra: usize,
    /// Number of the current choice of size and depth.
    setting: u64,
    seen: u32,
    late: u32,
    good: u32,
    bad: u32,
    round_trip: Window,
    pub verdict: Verdict,
}

impl Chooser {
    pub fn new(limits: Limits) -> Self {
        Chooser {
            limits,
            sizes: limits.chunks().into_iter().map(Estimate::new).collect(),
            at: 0,
            extra: 0,
            setting: 0,
            seen: 0,
            late: 0,
            good: 0,
            bad: 0,
            round_trip: Window::default(),
            verdict: Verdict::Learning,
        }
    }

    /// The size that is chosen, by its number.
    pub fn size(&self) -> usize {
        self.at
    }

    /// Units of a size.
    pub fn units(&self, size: usize) -> u32 {
        self.sizes[size].units
    }

    /// The choice that a buffer is committed under; it counts for no other.
    pub fn setting(&self) -> u64 {
        self.setting
    }

    pub fn estimate(&self) -> &Estimate {
        &self.sizes[self.at]
    }

    pub fn round_trip(&self) -> Span {
        self.round_trip.quantile(0.9).unwrap_or(self.limits.round_trip)
    }

    /// Buffers to keep in flight, [`Limits::latency_max`] aside.
    pub fn depth(&self) -> usize {
        let predicted = self.estimate().depth(self.round_trip());
        predicted.saturating_add(self.extra).min(self.limits.in_flight_max)
    }

    /// The longest that a buffer of so many units is known to take; `None` before any was seen.
    pub fn longest(&self, units: u32) -> Option<Span> {
        let known = || self.sizes.iter().filter_map(|s| Some((s.units, s.kernel_longest.get()?)));
        let larger = known().find(|(n, _)| *n >= units).map(|(_, longest)| longest);
        let scaled = |(n, longest): (u32, Span)| longest * u64::from(units.div_ceil(n));
        larger.or_else(|| known().next_back().map(scaled))
    }

    pub fn on_encode(&mut self, size: usize, took: Span) {
        self.watch_depth(|it| it.sizes[size].encode.push(took));
    }

    pub fn on_kernel(&mut self, size: usize, took: Span) {
        self.watch_depth(|it| {
            it.sizes[size].kernel.push(took);
            it.sizes[size].kernel_longest.push(took);
        });
    }

    pub fn on_round_trip(&mut self, took: Span) {
        self.watch_depth(|it| it.round_trip.push(took));
    }

    /// A gap that was the host's to keep short, before a buffer committed under `setting`.
    pub fn on_gap(&mut self, size: usize, setting: u64, gap: Span) {
        self.sizes[size].gap.push(gap);
        if setting != self.setting {
            return;
        }
        self.seen += 1;
        self.late += u32::from(gap > self.limits.gap_max);
        if self.seen < JUDGED {
            return;
        }
        let late = self.late > LATE_MAX;
        (self.seen, self.late) = (0, 0);
        match late {
            true => self.rule_late(),
            false => self.rule_good(),
        }
    }

    /// Learns something; if that asks for more depth, what came before is no evidence against it.
    fn watch_depth(&mut self, learn: impl FnOnce(&mut Self)) {
        let before = self.depth();
        learn(self);
        if self.depth() > before {
            self.begin_setting();
        }
    }

    fn begin_setting(&mut self) {
        self.setting += 1;
        (self.seen, self.late, self.good) = (0, 0, 0);
    }

    fn resize(&mut self, at: usize) {
        self.at = at;
        self.extra = 0;
        // What was seen of this size at another time says little of now.
        self.sizes[at].gap.clear();
        self.begin_setting();
    }

    fn rule_good(&mut self) {
        self.verdict = Verdict::Holds;
        (self.good, self.bad) = (self.good + 1, 0);
        if self.good < GOOD_FOR_SMALLER {
            return;
        }
        self.good = 0;
        // A queue that is never empty shows no round trip, and the old ones may be over.
        self.round_trip.forget_one();
        if self.at > 0 && self.estimate().half_would_do(self.limits.gap_max) {
            self.resize(self.at - 1);
        } else {
            self.extra = self.extra.saturating_sub(1);
        }
    }

    fn rule_late(&mut self) {
        self.good = 0;
        let given_up = matches!(self.verdict, Verdict::TooSlow(_)) && self.bad > 0;
        if given_up && self.bad < BAD_UNTIL_RETRY {
            self.bad += 1;
            self.verdict = Verdict::TooSlow(self.shortfall());
        } else if self.keeps_up_on_the_whole() && self.deeper_is_allowed() {
            self.bad = 0;
            // Twice as much more each time: the limit is near, and each step costs long gaps.
            self.extra = (2 * self.extra).max(1);
            self.begin_setting();
        } else if self.larger_is_allowed() && self.size_helps() {
            self.bad = 0;
            self.resize(self.at + 1);
        } else {
            let shortfall = self.shortfall();
            self.bad = 1;
            if !self.size_helps() {
                self.resize(0);
            }
            self.verdict = Verdict::TooSlow(shortfall);
        }
    }

    /// True if more in flight can help: encoding is as fast as running, usually or at the median.
    fn keeps_up_on_the_whole(&self) -> bool {
        let size = self.estimate();
        size.keeps_up(self.limits.gap_max)
            || size.encode.quantile(0.5).unwrap_or_default()
                <= size.kernel.quantile(0.5).unwrap_or_default()
    }

    fn deeper_is_allowed(&self) -> bool {
        let depth = self.depth();
        depth < self.limits.in_flight_max && self.fits(depth as u64 + 1, self.estimate().units)
    }

    fn larger_is_allowed(&self) -> bool {
        let larger = self.sizes.get(self.at + 1);
        larger.is_some_and(|larger| self.fits(2, larger.units))
    }

    /// True unless a further unit costs the host more than it runs, as far as that is known: gaps
    /// then grow with the size. Gaps themselves can't tell, since the clock follows them.
    fn size_helps(&self) -> bool {
        let Some(smaller) = self.at.checked_sub(1).map(|at| &self.sizes[at]) else { return true };
        let larger = self.estimate();
        let usual = |size: &Estimate| size.encode.quantile(0.5);
        let (Some(before), Some(now)) = (usual(smaller), usual(larger)) else { return true };
        let unit = now.saturating_sub(before) / u64::from(larger.units - smaller.units);
        // At the fastest clock seen with any size.
        let kernels = self.sizes.iter().filter(|size| size.kernel.len() > 0);
        let kernel = kernels.map(|size| size.kernel_fast() / u64::from(size.units)).min();
        kernel.is_none_or(|kernel| unit < kernel)
    }

    /// True if so many buffers may be in flight by the longest seen.
    fn fits(&self, buffers: u64, units: u32) -> bool {
        self.longest(units).is_none_or(|longest| longest * buffers <= self.limits.latency_max)
    }

    fn shortfall(&self) -> Shortfall {
        let size = self.estimate();
        let why = match size.keeps_up(self.limits.gap_max) {
            false => Why::Encode,
            true if self.depth() >= self.limits.in_flight_max => Why::InFlight,
            true => Why::Latency,
        };
        Shortfall {
            why,
            gap: size.gap_long().unwrap_or_default(),
            gap_max: self.limits.gap_max,
            encode: size.encode_slow(),
            kernel: size.kernel_fast(),
            chunk: size.units,
            in_flight: self.depth(),
        }
    }
}
