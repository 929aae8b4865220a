//! The GPU's node of the device tree (`sgx`): its controller's own parameters, as a chip file has
//! them.
//!
//! Properties are bytes: little-endian 32-bit numbers, or floats where a gain is one. They say what
//! this very machine runs with, which no published table does. A property that is missing, of
//! another size or out of range fills no key, and is told of.
//!
//! It does not know the control law: properties that the model has no meaning for (the second
//! filter, power and temperature loops) are listed by name and value, and used by nobody.
//! Source: names, types and units as Asahi's m1n1 reads them; none was seen by us on a Mac.

use super::machine::Machine;
use super::table::{self, Table};
use everwarm_units::{Hertz, Span, Volts};
use std::collections::BTreeMap;

/// Properties of a node, by name.
pub type Properties = BTreeMap<String, Vec<u8>>;

/// What a property holds and what it may be.
#[derive(Clone, Copy)]
enum Form {
    /// A 32-bit number.
    Number(u32, u32),
    /// A 32-bit float.
    Float(f32, f32),
    /// A 32-bit number of milliseconds.
    Milliseconds(u32, u32),
    /// A 32-bit number of ticks of the 24 MHz clock.
    Ticks(u32, u32),
}

/// Property, key of `[controller]`, form. Of two for one key the first that can be read counts.
const KEYS: [(&str, &str, Form); 11] = [
    // 200,000 on the M2 Pro and larger, whose other property still says 8 ms.
    ("gpu-pwr-sample-period-aic-clks", "sample_period", Form::Ticks(2_400, 24_000_000)),
    ("gpu-power-sample-period", "sample_period", Form::Milliseconds(1, 1_000)),
    ("gpu-idle-off-delay-ms", "idle_off_delay", Form::Milliseconds(1, 60_000)),
    ("gpu-perf-base-pstate", "base_pstate", Form::Number(1, 100)),
    ("gpu-perf-tgt-utilization", "target_utilization_pct", Form::Number(1, 100)),
    ("gpu-perf-filter-time-constant", "filter_periods", Form::Number(1, 1_000_000)),
    ("gpu-perf-proportional-gain", "proportional_gain", Form::Float(0.0, 1e4)),
    ("gpu-perf-integral-gain", "integral_gain", Form::Float(0.0, 1e4)),
    ("gpu-perf-reset-iters", "reset_periods", Form::Number(1, 1_000_000)),
    ("gpu-perf-boost-min-util", "boost_min_utilization_pct", Form::Number(1, 100)),
    ("gpu-perf-boost-ce-step", "boost_step_pct", Form::Number(0, 100)),
];

/// How the controllers' other properties begin; those of memory and firmware are nobody's business.
const LOOPS: [&str; 10] = [
    "gpu-perf-",
    "gpu-pwr-",
    "gpu-power-",
    "gpu-avg-power-",
    "gpu-ppm-",
    "gpu-se-",
    "gpu-fast-die0-",
    "gpu-idle-",
    "gpu-fender-",
    "gpu-fw-early-wake-",
];

/// A key of `[controller]` with what the device tree says for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The key in a chip file.
    pub key: &'static str,
    /// The value as it stands in a chip file.
    pub text: String,
    /// The property that it is from.
    pub property: &'static str,
}

/// What a GPU's node tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    /// Keys that could be filled, in a chip file's order.
    pub controller: Vec<Parameter>,
    /// The operating points of `perf-states`, or why there are none.
    pub table: Option<Result<Table, String>>,
    /// Other properties of the controllers. Shape: (name, value or bytes as text).
    pub others: Vec<(String, String)>,
    /// Properties that are there and could not be used, with the reason.
    pub refused: Vec<String>,
}

/// Every property that fills a key, with its key.
pub fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    KEYS.iter().map(|(property, key, _)| (*property, *key))
}

/// Reads the node.
pub fn parameters(node: &Properties) -> Parameters {
    let mut out = Parameters::default();
    for (property, key, form) in KEYS {
        if out.controller.iter().any(|known| known.key == key) {
            continue;
        }
        match node.get(property).map(|bytes| value(bytes, form)) {
            Some(Ok(text)) => out.controller.push(Parameter { key, text, property }),
            Some(Err(why)) => out.refused.push(format!("`{property}` {why}")),
            None => {}
        }
    }
    out.table = node.get("perf-states").map(|bytes| perf_states(node, bytes));
    if let Some(Err(why)) = &out.table {
        out.refused.push(format!("`perf-states` {why}"));
    }
    let used = |name: &str| KEYS.iter().any(|(property, ..)| *property == name);
    let loops = |name: &str| LOOPS.iter().any(|start| name.starts_with(start));
    let others = node.iter().filter(|(name, _)| loops(name) && !used(name));
    out.others = others.map(|(name, bytes)| (name.clone(), shown(bytes))).collect();
    out
}

/// The first of the tables in `perf-states`, which has one a cluster on the larger chips.
fn perf_states(node: &Properties, bytes: &[u8]) -> Result<Table, String> {
    let count = node.get("perf-state-count").and_then(|bytes| word(bytes).ok());
    let length = count.and_then(|count| usize::try_from(count).ok()?.checked_mul(8));
    match length {
        Some(0) => Err("is said to have no states".to_owned()),
        Some(length) => match bytes.get(..length) {
            Some(first) => table::read(first),
            None => Err(format!("has {} bytes, expected at least {length}", bytes.len())),
        },
        None => table::read(bytes),
    }
}

fn word(bytes: &[u8]) -> Result<u32, String> {
    let bytes: [u8; 4] = bytes
        .try_into()
        .map_err(|_| format!("has {} bytes, expected a number of 4", bytes.len()))?;
    Ok(u32::from_le_bytes(bytes))
}

fn value(bytes: &[u8], form: Form) -> Result<String, String> {
    let word = word(bytes)?;
    let whole = |least: u32, most: u32| match (least..=most).contains(&word) {
        true => Ok(word),
        false => Err(format!("is {word}, expected {least} to {most}")),
    };
    match form {
        Form::Number(least, most) => whole(least, most).map(|n| n.to_string()),
        Form::Milliseconds(least, most) => {
            whole(least, most).map(|n| format!("\"{}\"", Span::ms(u64::from(n))))
        }
        Form::Ticks(least, most) => {
            whole(least, most).map(|n| format!("\"{:.3} ms\"", f64::from(n) / 24_000.0))
        }
        Form::Float(least, most) => {
            let float = f32::from_bits(word);
            // A whole number's bits are a float next to nothing.
            match (least..=most).contains(&float) && !float.is_subnormal() {
                true => Ok(float.to_string()),
                false => Err(format!("is {float:e} as a float, expected {least} to {most}")),
            }
        }
    }
}

/// A property that nobody uses, for people: a number if it is likely one, a float likewise.
fn shown(bytes: &[u8]) -> String {
    let Ok(word) = word(bytes) else {
        let hex = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
        let more = if bytes.len() > 16 { "…" } else { "" };
        return format!("{hex}{more} ({} bytes)", bytes.len());
    };
    let float = f32::from_bits(word);
    match float.is_normal() && (1e-4..1e7).contains(&float.abs()) {
        true => float.to_string(),
        false => (word as i32).to_string(),
    }
}

/// A chip file of this machine: what the device tree and `pmgr` tell, and for all else the built-in
/// chip that it is most like. `points` are those of `pmgr`, if `sgx` has none.
///
/// # Errors
/// Says so when there is nothing to write.
pub fn chip_file(
    machine: &Machine,
    found: &Parameters,
    points: Option<&Table>,
) -> Result<String, String> {
    let own = found.table.as_ref().and_then(|table| table.as_ref().ok());
    let (table, origin) = match own {
        Some(table) => (Some(table), "device tree: perf-states"),
        None => (points, "device tree: pmgr's voltage-states"),
    };
    let points = table.and_then(Table::by_voltage).filter(|points| !points.is_empty());
    if points.is_none() && found.controller.is_empty() {
        return Err("the device tree tells neither clocks nor parameters".to_owned());
    }
    let name = machine.name().replace(['"', '\\', '\n', '\r'], "");
    let name: String = name.chars().filter(|c| !c.is_control()).collect();
    let like = machine.like();
    let mut out =
        format!("# What this Mac's device tree says of its GPU; all else as in {like}.\n");
    out += &format!("like = \"{like}\"\nid = \"this-mac\"\nname = \"{name}\"\n");
    if let Some(cores) = machine.gpu_cores {
        out += &format!("cores = {cores} # IORegistry: gpu-core-count\n");
    }
    let base = found.controller.iter().find(|p| p.key == "base_pstate");
    let base = base.and_then(|p| p.text.parse::<usize>().ok());
    let base = base.and_then(|base| base_in(table?, points.as_deref()?, base));
    if let Some(points) = &points {
        out += &pstates(points, table.map_or(0, |table| table.points.len()), origin);
    }
    let mut keys = String::new();
    for Parameter { key, text, property } in &found.controller {
        let text = match (*key, base) {
            ("base_pstate", Some(base)) => base.to_string(),
            // It counts states of a table that nobody read.
            ("base_pstate", None) => continue,
            _ => text.clone(),
        };
        keys += &format!("{key} = {text} # device tree: {property}\n");
    }
    if !keys.is_empty() {
        out += &format!("\n[controller]\n{keys}");
    }
    Ok(out)
}

fn pstates(points: &[(Hertz, Volts)], all: usize, origin: &str) -> String {
    let note = match all > points.len() {
        true => format!("{origin}, the highest clock of each voltage ({all} states)"),
        false => origin.to_owned(),
    };
    let line = |(clock, voltage): &(Hertz, Volts)| {
        let (mhz, mv) = (clock.as_mhz(), voltage.as_mv().round());
        format!("  {{ clock = \"{mhz} MHz\", voltage = \"{mv} mV\" }}, # {note}\n")
    };
    format!("pstates = [\n{}]\n", points.iter().map(line).collect::<String>())
}

/// Where the firmware's base p-state stands among the points that a chip file keeps.
fn base_in(table: &Table, points: &[(Hertz, Volts)], base: usize) -> Option<usize> {
    let base = table.points.get(base.checked_sub(1)?)?;
    points.iter().position(|(clock, _)| *clock >= base.clock).map(|place| place + 1)
}
