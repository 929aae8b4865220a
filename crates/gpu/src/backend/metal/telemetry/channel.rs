//! IOReport channels as values: what one sample holds, and which of it is the GPU's.
//!
//! IOReport is a private interface of macOS without documentation. A sample is a list of channels,
//! each with a group, a subgroup, a name and a unit label; a channel is either one integer or a
//! list of named states with the time spent in each. All values are totals since some start of the
//! driver's, not since we subscribed.
//!
//! It does not know which chip a list is from: names are matched, and what is absent is said.
//! Source: names and labels as macmon 0.10, mactop and socpowerbud read them.

use everwarm_units::{Joules, Span};

/// Group and subgroup of the GPU's p-states.
pub const STATES_GROUP: (&str, &str) = ("GPU Stats", "GPU Performance States");
/// The p-states that the hardware was in, among the channels of that subgroup.
pub const STATES_CHANNEL: &str = "GPUPH";
/// The group of energy counters; it has no subgroup.
pub const ENERGY_GROUP: &str = "Energy Model";
/// Names of the GPU's energy counter, the finest first. `GPU0` and `GPU0_0` are the names on the
/// larger chips of the first two generations; the last one may be that of one die alone.
pub const ENERGY_CHANNELS: [&str; 4] = ["GPU Energy", "GPU", "GPU0", "GPU0_0"];

/// One channel of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// The driver's group.
    pub group: String,
    /// Within the group; may be empty.
    pub subgroup: String,
    /// Within the subgroup.
    pub name: String,
    /// The unit's label, such as `24Mticks` or `nJ`; may be padded with blanks.
    pub unit: String,
    /// What it counted.
    pub value: Value,
}

/// What a channel counted since the driver's start.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// One total, in the channel's unit.
    Simple(i64),
    /// The time in each state, in the channel's unit. Shape: in the driver's order.
    States(Vec<(String, i64)>),
}

/// A state channel whose unit is understood.
#[derive(Clone, Debug, PartialEq)]
pub struct States {
    /// The length of one tick. Unit: ns.
    pub tick_ns: f64,
    /// Total ticks in each state. Shape: in the driver's order.
    pub ticks: Vec<(String, i64)>,
}

/// An energy channel whose unit is understood.
#[derive(Clone, Debug, PartialEq)]
pub struct Energy {
    /// The channel's name.
    pub name: String,
    /// What one count stands for.
    pub unit: Joules,
    /// Total count.
    pub count: i64,
}

/// What a sample says of the GPU; each part, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Time in each p-state.
    pub states: Result<States, String>,
    /// Energy of the GPU rail.
    pub energy: Result<Energy, String>,
}

impl Sample {
    /// Picks the GPU's channels.
    pub fn of(channels: &[Channel]) -> Sample {
        Sample { states: states_of(channels), energy: energy_of(channels) }
    }

    /// A sample without anything in it, for the same reason.
    pub fn none(why: &str) -> Sample {
        Sample { states: Err(why.to_owned()), energy: Err(why.to_owned()) }
    }
}

fn states_of(channels: &[Channel]) -> Result<States, String> {
    let (group, subgroup) = STATES_GROUP;
    let ours = |c: &&Channel| c.group == group && c.subgroup == subgroup;
    let found = channels.iter().filter(ours).find(|c| c.name == STATES_CHANNEL);
    let found = found.ok_or_else(|| {
        format!("IOReport has no channel `{group}`/`{subgroup}`/`{STATES_CHANNEL}`")
    })?;
    let Value::States(ticks) = &found.value else {
        return Err(format!("`{STATES_CHANNEL}` has no states, expected a list of them"));
    };
    if ticks.is_empty() {
        return Err(format!("`{STATES_CHANNEL}` has an empty list of states"));
    }
    let tick_ns = tick(&found.unit).ok_or_else(|| {
        format!("`{STATES_CHANNEL}` counts in `{}`; expected a unit such as 24Mticks", found.unit)
    })?;
    Ok(States { tick_ns, ticks: ticks.clone() })
}

fn energy_of(channels: &[Channel]) -> Result<Energy, String> {
    let named = |name: &&str| channels.iter().find(|c| c.group == ENERGY_GROUP && c.name == **name);
    let found = ENERGY_CHANNELS.iter().find_map(named);
    let found = found.ok_or_else(|| {
        let names = ENERGY_CHANNELS.join("`, `");
        format!("IOReport has no channel `{ENERGY_GROUP}` with one of the names `{names}`")
    })?;
    let Value::Simple(count) = found.value else {
        return Err(format!("`{}` is a list of states, expected one number", found.name));
    };
    let unit = energy_unit(&found.unit).ok_or_else(|| {
        format!("`{}` counts in `{}`; expected nJ, uJ, mJ or J", found.name, found.unit)
    })?;
    Ok(Energy { name: found.name.clone(), unit, count })
}

/// The length of a tick by its unit's label. Unit: ns.
///
/// Labels are a number, a decimal prefix and `ticks` (`24Mticks`: a clock of 24 MHz), or a unit of
/// time. `None` for anything else: a tick of unknown length measures nothing.
pub fn tick(label: &str) -> Option<f64> {
    let label = label.trim();
    match label {
        "ns" => return Some(1.0),
        "us" => return Some(1e3),
        "ms" => return Some(1e6),
        "s" => return Some(1e9),
        _ => {}
    }
    let clock = label.strip_suffix("ticks")?;
    let digits = clock.trim_end_matches(|c: char| !c.is_ascii_digit());
    let scale = match &clock[digits.len()..] {
        "" => 1.0,
        "K" | "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return None,
    };
    let hertz = digits.parse::<u32>().ok().filter(|n| *n > 0)?;
    Some(1e9 / (f64::from(hertz) * scale))
}

/// What one count of an energy counter stands for, by its unit's label.
pub fn energy_unit(label: &str) -> Option<Joules> {
    match label.trim() {
        "nJ" => Some(Joules::nj(1.0)),
        "uJ" | "µJ" => Some(Joules::uj(1.0)),
        "mJ" => Some(Joules::mj(1.0)),
        "J" => Some(Joules::j(1.0)),
        _ => None,
    }
}

/// So many ticks as a span; `None` if there are fewer than none.
pub fn span(ticks: i64, tick_ns: f64) -> Option<Span> {
    let ns = u64::try_from(ticks).ok()? as f64 * tick_ns;
    (ns.is_finite() && ns >= 0.0).then(|| Span::from_nanos_f64(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_understood_or_refused() {
        let check = |label: &str, expected: Option<f64>| {
            let got = tick(label);
            let same = match (got, expected) {
                (Some(a), Some(b)) => (a / b - 1.0_f64).abs() < 1e-12,
                (a, b) => a == b,
            };
            assert!(same, "{label}: {got:?}");
        };
        check("24Mticks", Some(1e9 / 24e6));
        check(" 24Mticks ", Some(1e9 / 24e6));
        check("1Gticks", Some(1.0));
        check("32768ticks", Some(1e9 / 32768.0));
        check("us", Some(1e3));
        for label in [
            "", "ticks", "Mticks", "0Mticks", "24Xticks", "HWticks", "events", "24 ticks", "²ticks",
        ] {
            check(label, None);
        }
        assert_eq!(energy_unit("mJ "), Some(Joules::mj(1.0)));
        assert_eq!(energy_unit("uJ"), Some(Joules::uj(1.0)));
        assert_eq!(energy_unit("nJ"), Some(Joules::nj(1.0)));
        assert_eq!(energy_unit("mW"), None);
    }

    #[test]
    fn a_second_is_24_million_ticks() {
        let tick_ns = tick("24Mticks").unwrap();
        assert_eq!(span(24_000_000, tick_ns), Some(Span::s(1)));
        assert_eq!(span(-1, tick_ns), None);
        assert!(span(i64::MAX, 1e9).is_some());
    }

    #[test]
    fn what_is_missing_or_of_another_kind_is_told() {
        let channel = |group: &str, subgroup: &str, name: &str, unit: &str, value: Value| Channel {
            group: group.into(),
            subgroup: subgroup.into(),
            name: name.into(),
            unit: unit.into(),
            value,
        };
        let check = |channels: &[Channel], states: &str, energy: &str| {
            let sample = Sample::of(channels);
            let told = |text: &Result<(), String>, expected: &str| match text {
                Ok(()) => assert_eq!(expected, ""),
                Err(why) => assert!(!expected.is_empty() && why.contains(expected), "{why}"),
            };
            told(&sample.states.map(drop), states);
            told(&sample.energy.map(drop), energy);
        };
        let (group, sub) = STATES_GROUP;
        let one = || Value::States(vec![("OFF".to_owned(), 1)]);
        check(&[], "no channel `GPU Stats`", "one of the names `GPU Energy`");
        let states = |unit, value| channel(group, sub, "GPUPH", unit, value);
        let energy = |name, unit, value| channel(ENERGY_GROUP, "", name, unit, value);
        check(&[states("24Mticks", one())], "", "no channel");
        check(&[states("moons", one()), energy("GPU", "mJ", Value::Simple(1))], "in `moons`", "");
        check(&[states("ns", Value::Simple(3))], "has no states", "no channel");
        check(&[states("ns", Value::States(vec![]))], "empty list", "no channel");
        check(&[energy("GPU", "W", Value::Simple(3))], "no channel", "in `W`");
        check(&[energy("GPU", "mJ", one())], "no channel", "a list of states");
        let both =
            [energy("GPU", "mJ", Value::Simple(1)), energy("GPU Energy", "nJ", Value::Simple(2))];
        assert_eq!(Sample::of(&both).energy.unwrap().count, 2);
    }
}
