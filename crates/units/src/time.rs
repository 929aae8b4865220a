//! The run's own time: integer nanoseconds since the run began.

use crate::parse::{Kind, ParseError};
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

const SPAN: Kind = Kind {
    name: "a duration",
    example: "8 ms",
    units: &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 60e9), ("h", 3600e9)],
};

/// A point in time, in nanoseconds since the run began.
///
/// Unit: ns. It says nothing of the wall clock; a manifest notes when the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A length of time, never negative.
///
/// Unit: ns. Two instants in the wrong order are 0 apart ([`Instant::since`]); where a sign
/// matters, subtract `as_ms()` values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Instant {
    /// The start of the run.
    pub const ZERO: Instant = Instant(0);
    /// Later than anything that happens.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The instant `ns` nanoseconds into the run.
    pub const fn from_nanos(ns: u64) -> Self {
        Instant(ns)
    }

    /// Nanoseconds since the run began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds since the run began.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The time from `earlier` to `self`; 0 if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);
    /// Longer than any run.
    pub const MAX: Span = Span(u64::MAX);

    /// `n` nanoseconds.
    pub const fn ns(n: u64) -> Self {
        Span(n)
    }

    /// `n` microseconds.
    pub const fn us(n: u64) -> Self {
        Span(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn ms(n: u64) -> Self {
        Span(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn s(n: u64) -> Self {
        Span(n * 1_000_000_000)
    }

    /// `n` milliseconds, rounded to the nearest nanosecond.
    ///
    /// # Panics
    /// If `n` is negative or not finite.
    pub fn from_ms(n: f64) -> Self {
        Self::from_nanos_f64(n * 1e6)
    }

    /// `n` seconds, rounded to the nearest nanosecond.
    ///
    /// # Panics
    /// If `n` is negative or not finite.
    pub fn from_secs(n: f64) -> Self {
        Self::from_nanos_f64(n * 1e9)
    }

    /// `n` nanoseconds, rounded.
    ///
    /// # Panics
    /// If `n` is negative or not finite.
    pub fn from_nanos_f64(n: f64) -> Self {
        assert!(n.is_finite() && n >= 0.0, "a span can't be {n} ns");
        Span(n.round() as u64)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Microseconds.
    pub fn as_us(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Milliseconds.
    pub fn as_ms(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Seconds.
    pub fn as_secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// True for a span of no length.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self - other`, or 0 where that would be negative.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }

    /// This span as a share of `whole`; 0 of nothing.
    pub fn share_of(self, whole: Span) -> f64 {
        if whole.is_zero() { 0.0 } else { self.0 as f64 / whole.0 as f64 }
    }
}

impl Add<Span> for Instant {
    type Output = Instant;
    fn add(self, span: Span) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Instant {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Instant {
    type Output = Instant;
    fn sub(self, span: Span) -> Instant {
        Instant(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl SubAssign for Span {
    fn sub_assign(&mut self, other: Span) {
        *self = self.saturating_sub(other);
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, n: u64) -> Span {
        Span(self.0 / n)
    }
}

impl std::iter::Sum for Span {
    fn sum<I: Iterator<Item = Span>>(spans: I) -> Span {
        spans.fold(Span::ZERO, |a, b| a + b)
    }
}

impl From<std::time::Duration> for Span {
    fn from(d: std::time::Duration) -> Span {
        Span(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> std::time::Duration {
        std::time::Duration::from_nanos(span.0)
    }
}

impl std::str::FromStr for Span {
    type Err = ParseError;
    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text.trim() == "0" {
            return Ok(Span::ZERO); // the one number that needs no unit
        }
        let ns = SPAN.parse(text)?;
        match ns {
            ns if ns < 0.0 => Err(SPAN.range(text, "negative")),
            ns if ns >= u64::MAX as f64 => Err(SPAN.range(text, "too large")),
            ns => Ok(Span(ns.round() as u64)),
        }
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        SPAN.format(self.0 as f64, f)
    }
}

impl std::fmt::Display for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "t+{}", Span(self.0))
    }
}

impl serde::Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_and_prints() {
        let check = |text: &str, expected: Span, printed: &str| {
            let span: Span = text.parse().unwrap();
            assert_eq!(span, expected, "{text}");
            assert_eq!(span.to_string(), printed);
        };
        check("0.58 ms", Span::us(580), "580 us");
        check("8ms", Span::ms(8), "8 ms");
        check("2 s", Span::s(2), "2 s");
        check("1e3 us", Span::ms(1), "1 ms");
        check("0", Span::ZERO, "0 ns");
        check("10 min", Span::s(600), "10 min");
    }

    #[test]
    fn bad_text_says_what_was_expected() {
        let check = |text: &str, expected: &str| {
            assert_eq!(text.parse::<Span>().unwrap_err().to_string(), expected);
        };
        check("-1 ms", "`-1 ms` is negative; expected a duration such as `8 ms`");
        check(
            "8",
            "`8` has no unit; expected a duration in one of ns, us, ms, s, min, h, such as `8 ms`",
        );
        check("soon", "`soon` does not start with a number; expected a duration such as `8 ms`");
    }
}
