//! How late the real-time simulation ran.
//!
//! A sample is the wall-clock time at which something was carried out less the instant at which
//! the simulation has it. The simulated times themselves stay right; what a client measures by the
//! wall clock is off by about as much.

use everwarm_units::Span;
use hdrhistogram::Histogram;

/// Samples of lateness, in constant memory.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    samples: Histogram<u64>,
    max: Span,
}

impl Default for Lateness {
    fn default() -> Self {
        // Two digits: a quantile is within 1 % of a sample.
        let samples = Histogram::new(2).expect("two digits are a valid precision");
        Lateness { samples, max: Span::ZERO }
    }
}

impl Lateness {
    /// Adds a sample.
    pub(crate) fn note(&mut self, late: Span) {
        // An hour is as bad as anything longer, and keeps the histogram small.
        let ns = late.min(Span::s(3600)).as_nanos();
        self.samples.record(ns).expect("the histogram grows as needed");
        self.max = self.max.max(late);
    }

    /// Adds the samples of `other`.
    pub(crate) fn add(&mut self, other: &Lateness) {
        self.samples.add(&other.samples).expect("the histogram grows as needed");
        self.max = self.max.max(other.max);
    }

    /// The latest one; 0 of none.
    pub(crate) fn max(&self) -> Span {
        self.max
    }

    /// The lateness that 99 of 100 samples stay under; 0 of none.
    pub(crate) fn p99(&self) -> Span {
        Span::ns(self.samples.value_at_quantile(0.99)).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_samples() {
        let mut lateness = Lateness::default();
        assert_eq!((lateness.p99(), lateness.max()), (Span::ZERO, Span::ZERO));
        (1..=1000).for_each(|n| lateness.note(Span::us(n)));
        assert!((980.0..=1000.0).contains(&lateness.p99().as_us()), "{}", lateness.p99());
        lateness.note(Span::MAX);
        assert_eq!(lateness.max(), Span::MAX);
        assert!(lateness.p99() < Span::MAX, "one in a thousand");
    }
}
