//! What a chip's values become when another chip is like it: the rules, written once.
//!
//! A rule changes a value only if the file of the new chip does not give it. What has no rule is
//! taken over as it is; the boosts that the p-states stand for follow from the clocks by themselves.

use crate::Chip;
use everwarm_units::{BytesPerSecond, Watts};

/// One rule.
pub struct Rule {
    /// The value that is scaled, as `section.key`.
    pub key: &'static str,
    /// What it is proportional to, in words.
    pub by: &'static str,
    /// Keys of the new chip's file that change it.
    pub(crate) drivers: &'static [&'static str],
    /// How much more of it the new chip (second) has.
    pub(crate) factor: fn(&Chip, &Chip) -> f64,
    pub(crate) kind: Kind,
}

/// What a scaled value is, so that it can be written again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Number,
    Watts,
    Bandwidth,
}

/// All rules.
pub const RULES: &[Rule] = &[
    Rule {
        key: "kernels.flops_per_cycle",
        by: "cores",
        drivers: &["cores"],
        factor: cores,
        kind: Kind::Number,
    },
    Rule {
        key: "kernels.fma_threads_per_cycle",
        by: "cores",
        drivers: &["cores"],
        factor: cores,
        kind: Kind::Number,
    },
    Rule {
        key: "kernels.bandwidth",
        by: "memory_peak",
        drivers: &["memory_peak"],
        factor: memory,
        kind: Kind::Bandwidth,
    },
    Rule {
        key: "power.idle",
        by: "cores x clock x voltage^2 of the top p-state",
        drivers: &["pstates", "cores"],
        factor: power,
        kind: Kind::Watts,
    },
    Rule {
        key: "power.full",
        by: "cores x clock x voltage^2 of the top p-state",
        drivers: &["pstates", "cores"],
        factor: power,
        kind: Kind::Watts,
    },
];

fn cores(from: &Chip, to: &Chip) -> f64 {
    match (from.cores, to.cores) {
        (Some(from), Some(to)) => f64::from(to) / f64::from(from),
        _ => 1.0,
    }
}

fn memory(from: &Chip, to: &Chip) -> f64 {
    match (from.memory_peak, to.memory_peak) {
        (Some(from), Some(to)) => to / from,
        _ => 1.0,
    }
}

fn power(from: &Chip, to: &Chip) -> f64 {
    let switching = |chip: &Chip| {
        let top = chip.pstates[chip.pstates.len() - 1];
        top.clock.as_hz() * top.voltage.as_v().powi(2)
    };
    cores(from, to) * switching(to) / switching(from)
}

impl Kind {
    /// `value`, as it stands in a file, times `factor`, as it may stand in a file.
    pub(crate) fn scaled(self, value: &str, factor: f64) -> Option<String> {
        // Enough digits for any purpose, and no 0.30000000000000004.
        let rounded = |value: f64| format!("{:.6e}", value).parse::<f64>().unwrap_or(value);
        let text = value.trim_matches(['"', '\'']);
        Some(match self {
            Kind::Number => {
                rounded(text.replace('_', "").parse::<f64>().ok()? * factor).to_string()
            }
            Kind::Watts => {
                let watts = text.parse::<Watts>().ok()?.as_w();
                format!("\"{}\"", Watts::w(rounded(watts * factor)))
            }
            Kind::Bandwidth => {
                let rate = text.parse::<BytesPerSecond>().ok()?.as_gb_s();
                format!("\"{}\"", BytesPerSecond::gb_s(rounded(rate * factor)))
            }
        })
    }
}
