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
    /// Only whole numbers.
    pub whole: bool,
}

const fn real(key: &'static str, unit: &'static str, min: f64, max: f64) -> Searched {
    Searched { key, unit, min, max, whole: false }
}

const fn whole(key: &'static str, min: f64, max: f64) -> Searched {
    Searched { key, unit: "", min, max, whole: true }
}

/// Those with the largest effects first. A key that a chip's file does not have is passed over.
pub(super) const SEARCHED: [Searched; 20] = [
    real("controller.sample_period", "ms", 1.0, 40.0),
    real("controller.boost_periods", "", 0.0, 40.0),
    real("controller.boost_periods_burst", "", 0.0, 40.0),
    real("controller.boost_step_pct", "", 1.0, 100.0),
    real("controller.filter_periods", "", 1.0, 60.0),
    real("controller.credited_gap", "ms", 0.05, 5.0),
    real("controller.lasting_boost_periods", "", 0.0, 400.0),
    real("controller.output_limit_pct", "", 100.0, 20000.0),
    real("controller.target_utilization_pct", "", 50.0, 97.0),
    real("controller.lasting_boost_periods_burst", "", 0.0, 200.0),
    real("controller.filter_start_pct", "", 0.1, 99.0),
    real("controller.proportional_gain", "", 0.5, 60.0),
    real("controller.integral_gain", "", 0.1, 60.0),
    real("controller.burst", "ms", 0.3, 30.0),
    whole("controller.reset_periods", 1.0, 60.0),
    real("controller.forget_after", "s", 0.05, 5.0),
    real("controller.boost_min_utilization_pct", "", 50.0, 99.0),
    real("host.commit_to_firmware", "ms", 0.001, 2.0),
    real("controller.boost_rise", "", 0.05, 1.0),
    real("controller.boost_fade", "", 0.1, 0.999),
];

impl Searched {
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
