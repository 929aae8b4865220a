//! Quantities that know their unit, and the run's own clock.
//!
//! Every crate speaks of time, frequency, power and energy through these types, so that a bare
//! number can't be passed in the wrong unit. They are built by unit (`Hertz::mhz(444.0)`,
//! `Span::ms(8)`), and only physical arithmetic is defined (`Watts * Span -> Joules`).
//!
//! Time is integer nanoseconds ([`Instant`], [`Span`]), counted from the start of the run: no wall
//! clock is read here, an instant can be a literal in a test, and two runs can be compared.
//! Everything else is an `f64` in its SI unit.
//!
//! As text every quantity is a number, a space and a unit: `0.58 ms`, `444 MHz`, `6.3 mJ`. The
//! same form is read from scenario and chip files, and an error says which units are known.

#![forbid(unsafe_code)]

mod parse;
mod quantity;
mod time;

pub use parse::ParseError;
pub use quantity::{Bytes, BytesPerSecond, Celsius, Cycles, Hertz, Joules, Volts, Watts};
pub use time::{Instant, Span};

/// A performance state: an index into a chip's table of operating points, ascending with speed.
///
/// `PState::OFF` (0) is the powered-off state. Vendors that count downwards (NVML's P0 is the
/// fastest) are converted where their numbers enter.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct PState(pub u8);

impl PState {
    /// Powered off: no clock.
    pub const OFF: PState = PState(0);

    /// The state's place in a table that has the off state at index 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl std::fmt::Display for PState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == PState::OFF { f.write_str("OFF") } else { write!(f, "P{}", self.0) }
    }
}
