//! Quantities other than time, each an `f64` in its SI unit.

use crate::parse::{Kind, ParseError};
use crate::time::Span;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

macro_rules! quantity {
    (
        $(#[$doc:meta])* $name:ident, $kind:literal, $example:literal,
        [$(($unit:literal, $ctor:ident, $get:ident, $scale:expr)),+ $(,)?]
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        pub struct $name(f64);

        impl $name {
            const KIND: Kind = Kind {
                name: $kind,
                example: $example,
                units: &[$(($unit, $scale)),+],
            };
            /// None of it.
            pub const ZERO: $name = $name(0.0);
            $(
                #[doc = concat!("From a number in ", $unit, ".")]
                pub const fn $ctor(value: f64) -> Self { $name(value * $scale) }
                #[doc = concat!("As a number in ", $unit, ".")]
                pub const fn $get(self) -> f64 { self.0 / $scale }
            )+
        }

        impl Add for $name { type Output = $name; fn add(self, o: $name) -> $name { $name(self.0 + o.0) } }
        impl Sub for $name { type Output = $name; fn sub(self, o: $name) -> $name { $name(self.0 - o.0) } }
        impl AddAssign for $name { fn add_assign(&mut self, o: $name) { self.0 += o.0; } }
        impl Mul<f64> for $name { type Output = $name; fn mul(self, k: f64) -> $name { $name(self.0 * k) } }
        impl Div<f64> for $name { type Output = $name; fn div(self, k: f64) -> $name { $name(self.0 / k) } }
        impl Div for $name { type Output = f64; fn div(self, o: $name) -> f64 { self.0 / o.0 } }
        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = $name>>(all: I) -> $name { all.fold($name::ZERO, |a, b| a + b) }
        }
        impl std::str::FromStr for $name {
            type Err = ParseError;
            fn from_str(text: &str) -> Result<Self, ParseError> {
                match Self::KIND.parse(text)? {
                    v if v < 0.0 => Err(Self::KIND.range(text, "negative")),
                    v => Ok($name(v)),
                }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { Self::KIND.format(self.0, f) }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> { s.collect_str(self) }
        }
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

quantity! {
    /// A frequency. Unit: Hz.
    Hertz, "a frequency", "444 MHz",
    [("Hz", hz, as_hz, 1.0), ("kHz", khz, as_khz, 1e3), ("MHz", mhz, as_mhz, 1e6), ("GHz", ghz, as_ghz, 1e9)]
}
quantity! {
    /// A voltage. Unit: V.
    Volts, "a voltage", "603 mV", [("mV", mv, as_mv, 1e-3), ("V", v, as_v, 1.0)]
}
quantity! {
    /// Power. Unit: W.
    Watts, "a power", "80 mW", [("uW", uw, as_uw, 1e-6), ("mW", mw, as_mw, 1e-3), ("W", w, as_w, 1.0), ("kW", kw, as_kw, 1e3)]
}
quantity! {
    /// Energy. Unit: J; a watt-hour is 3,600 J.
    Joules, "an energy", "2 Wh",
    [("nJ", nj, as_nj, 1e-9), ("uJ", uj, as_uj, 1e-6), ("mJ", mj, as_mj, 1e-3), ("J", j, as_j, 1.0), ("Wh", wh, as_wh, 3600.0)]
}
quantity! {
    /// An amount of memory traffic. Unit: byte (decimal prefixes).
    Bytes, "an amount of data", "33.6 MB", [("B", b, as_b, 1.0), ("kB", kb, as_kb, 1e3), ("MB", mb, as_mb, 1e6), ("GB", gb, as_gb, 1e9)]
}
quantity! {
    /// A memory bandwidth. Unit: B/s.
    BytesPerSecond, "a bandwidth", "94 GB/s", [("B/s", b_s, as_b_s, 1.0), ("MB/s", mb_s, as_mb_s, 1e6), ("GB/s", gb_s, as_gb_s, 1e9)]
}
quantity! {
    /// Core clock cycles. Unit: cycle (`Mcycles`: a million).
    Cycles, "a number of cycles", "0.81 Mcycles", [("cycles", n, as_n, 1.0), ("Mcycles", m, as_m, 1e6)]
}

quantity! {
    /// A temperature. Unit: degree Celsius.
    Celsius, "a temperature", "61 degC", [("degC", c, as_c, 1.0)]
}

impl Mul<Span> for Watts {
    type Output = Joules;
    fn mul(self, span: Span) -> Joules {
        Joules::j(self.as_w() * span.as_secs())
    }
}

impl Div<Span> for Joules {
    type Output = Watts;
    fn div(self, span: Span) -> Watts {
        Watts::w(self.as_j() / span.as_secs())
    }
}

impl Mul<Span> for Hertz {
    type Output = Cycles;
    fn mul(self, span: Span) -> Cycles {
        Cycles::n(self.as_hz() * span.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physics_holds() {
        let check =
            |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 1e-12, "{got}");
        check((Watts::w(0.59) * Span::s(10)).as_j(), 5.9);
        check((Joules::wh(1.0) / Span::s(3600)).as_w(), 1.0);
        check((Hertz::mhz(1398.0) * Span::ms(1)).as_n(), 1_398_000.0);
    }

    #[test]
    fn text_reads_and_prints() {
        assert_eq!("444 MHz".parse::<Hertz>().unwrap(), Hertz::mhz(444.0));
        assert_eq!(Hertz::mhz(1398.0).to_string(), "1.398 GHz");
        assert_eq!(Hertz::mhz(1e300).to_string(), "1e297 GHz");
        assert_eq!("2 Wh".parse::<Joules>().unwrap().as_j(), 7200.0);
        assert_eq!("1e+3 kHz".parse::<Hertz>().unwrap(), Hertz::mhz(1.0));
        let error = "1e303 GHz".parse::<Hertz>().unwrap_err().to_string();
        assert_eq!(error, "`1e303 GHz` is too large; expected a frequency such as `444 MHz`");
        assert!("444 mhz".parse::<Hertz>().unwrap_err().to_string().contains("Hz, kHz, MHz, GHz"));
    }
}
