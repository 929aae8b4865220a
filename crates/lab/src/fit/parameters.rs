//! The parameters that are searched for, as data: one line each.

use everwarm_units::Span;
use toml::Value;

/// A number of the chip file that simulation finds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Searched {
    /// Its dotted key.
    pub key: &'static str,
    /// The unit it stands with in the file; a bare number without.
    pub unit: &'static str,
    /// The least that is tried.
    pub min: f64,
    /// The most that is tried.
    pub max: f64,
    /// How far from where the search begins the value may well be, as a share of it.
    pub spread: f64,
    /// Only whole numbers.
    pub whole: bool,
}

const fn real(key: &'static str, unit: &'static str, min: f64, max: f64, spread: f64) -> Searched {
    Searched { key, unit, min, max, spread, whole: false }
}

const fn whole(key: &'static str, min: f64, max: f64, spread: f64) -> Searched {
    Searched { key, unit: "", min, max, spread, whole: true }
}

/// All of them. A key that a chip's file does not have is passed over, and so is one that could be
/// read off.
pub(super) const SEARCHED: [Searched; 21] = [
    real("controller.sample_period", "ms", 1.0, 40.0, 0.3),
    real("controller.boost_periods", "", 1.0, 40.0, 0.4),
    real("controller.boost_periods_burst", "", 1.0, 40.0, 0.4),
    real("controller.boost_step_pct", "", 1.0, 100.0, 0.3),
    real("controller.filter_periods", "", 1.0, 60.0, 0.4),
    real("controller.credited_gap", "ms", 0.05, 5.0, 0.2),
    real("controller.lasting_boost_periods", "", 0.1, 400.0, 0.5),
    real("controller.output_limit_pct", "", 100.0, 20000.0, 0.6),
    real("controller.target_utilization_pct", "", 50.0, 97.0, 0.06),
    real("controller.lasting_boost_periods_burst", "", 0.1, 200.0, 0.5),
    real("controller.filter_start_pct", "", 0.1, 99.0, 0.5),
    real("controller.proportional_gain", "", 0.5, 60.0, 0.3),
    real("controller.integral_gain", "", 0.1, 60.0, 0.3),
    real("controller.burst", "ms", 0.3, 30.0, 0.3),
    whole("controller.reset_periods", 1.0, 60.0, 0.4),
    real("controller.forget_after", "s", 0.05, 5.0, 0.4),
    real("controller.boost_min_utilization_pct", "", 50.0, 99.0, 0.05),
    real("controller.boost_rise", "", 0.05, 1.0, 0.2),
    real("controller.boost_fade", "", 0.1, 0.999, 0.05),
    real("host.commit_to_firmware", "ms", 0.001, 2.0, 0.4),
    real("wake.deep_idle_stall", "ms", 0.01, 20.0, 0.1),
];

impl Searched {
    /// The value at a coordinate of the search, on which 1 is its spread.
    pub fn at(&self, coordinate: f64) -> f64 {
        (coordinate * self.spread).exp().clamp(self.min, self.max)
    }

    /// The coordinate of a value.
    pub fn coordinate(&self, value: f64) -> f64 {
        value.clamp(self.min, self.max).ln() / self.spread
    }

    /// As it stands in a chip file.
    pub fn value(&self, number: f64) -> Value {
        match (self.unit, self.whole) {
            ("", true) => Value::Integer(number.round() as i64),
            ("", false) => format!("{number:.5}").parse::<f64>().unwrap_or(number).into(),
            (unit, _) => format!("{number:.5} {unit}").into(),
        }
    }

    /// The number that stands in a chip file, in this parameter's unit.
    pub fn number(&self, value: &Value) -> Option<f64> {
        match value {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            Value::String(text) => {
                let span: Span = text.parse().ok()?;
                Some(if self.unit == "s" { span.as_ms() / 1e3 } else { span.as_ms() })
            }
            _ => None,
        }
    }
}
