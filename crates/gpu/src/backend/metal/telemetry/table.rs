//! The GPU's table of operating points, from bytes of the IORegistry.
//!
//! `pmgr` has `voltage-states9` (on some chips only other `voltage-states…` hold it) and `sgx` its
//! own copy `perf-states`: pairs of little-endian 32-bit numbers, frequency and millivolts, the
//! first one for the off state. Frequencies are in Hz, or in kHz as the CPU's tables of newer
//! generations; which of the two is read off their size, as no GPU clock fits both.
//!
//! It does not know what two states with one clock or one voltage are for: M3 and later have them,
//! and their clocks do not ascend.

use everwarm_units::{Hertz, Volts};
use std::collections::BTreeMap;

/// Names of the table in `pmgr`, the best first; others that begin with `voltage-states` follow.
const NAMES: [&str; 2] = ["voltage-states9", "voltage-states9-sram"];
/// A GPU clock is at least this and at most that. Source: guess (?), a decade around 338 to 1578 MHz.
const PLAUSIBLE: (f64, f64) = (100e6, 4e9);

/// One operating point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Core clock.
    pub clock: Hertz,
    /// Core voltage; `None` where the table has 0.
    pub voltage: Option<Volts>,
}

/// A table whose unit is known. Shape: the firmware's order, P1 first, without off states.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its operating points.
    pub points: Vec<Point>,
    /// True if the bytes were in kHz.
    pub in_khz: bool,
}

impl Table {
    fn same_clocks(&self, other: &Table) -> bool {
        let clocks = |table: &Table| table.points.iter().map(|p| p.clock).collect::<Vec<_>>();
        clocks(self) == clocks(other)
    }

    /// The highest clock of each voltage, both ascending: what a chip file can hold of a table in
    /// which several states share a voltage. `None` if a voltage is missing.
    pub fn by_voltage(&self) -> Option<Vec<(Hertz, Volts)>> {
        let mut points = Vec::new();
        for point in &self.points {
            points.push((point.clock, point.voltage?));
        }
        points.sort_by(|(_, a), (_, b)| a.as_v().total_cmp(&b.as_v()));
        let mut out: Vec<(Hertz, Volts)> = Vec::new();
        for (clock, voltage) in points {
            match out.last_mut() {
                Some(last) if last.1 == voltage => {
                    if clock > last.0 {
                        last.0 = clock;
                    }
                }
                _ => out.push((clock, voltage)),
            }
        }
        // More voltage for no more clock is no state that anybody would use.
        let mut top = Hertz::ZERO;
        out.retain(|(clock, _)| {
            let more = *clock > top;
            if more {
                top = *clock;
            }
            more
        });
        Some(out)
    }
}

/// Reads a table.
///
/// # Errors
/// Says what the bytes are, where they can't be a GPU's table.
pub fn read(bytes: &[u8]) -> Result<Table, String> {
    if bytes.is_empty() || !bytes.len().is_multiple_of(8) {
        return Err(format!("has {} bytes, expected pairs of 4 + 4", bytes.len()));
    }
    let word = |at: &[u8]| at.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    let pairs = bytes.chunks_exact(8).map(|pair| (word(&pair[..4]), word(&pair[4..])));
    let pairs: Vec<(u32, u32)> = pairs.collect();
    let top = f64::from(pairs.iter().map(|(frequency, _)| *frequency).max().unwrap_or(0));
    let (least, most) = PLAUSIBLE;
    let in_khz = top * 1e3 >= least && top * 1e3 <= most;
    if !in_khz && !(least..=most).contains(&top) {
        return Err(format!("has {top} as its highest frequency, no GPU's in Hz or kHz"));
    }
    let scale = if in_khz { 1e3 } else { 1.0 };
    let mut points = Vec::new();
    for (frequency, millivolts) in pairs {
        let hertz = f64::from(frequency) * scale;
        // Off states are 0 Hz, or a placeholder of a few.
        if hertz < 1e6 && points.is_empty() {
            continue;
        }
        if hertz < least {
            return Err(format!("has {frequency} among its frequencies, too low beside {top}"));
        }
        let voltage = (millivolts > 0).then(|| Volts::mv(f64::from(millivolts)));
        points.push(Point { clock: Hertz::hz(hertz), voltage });
    }
    Ok(Table { points, in_khz })
}

/// Finds the GPU's table among properties of `pmgr`: by name, else the only other one that has as
/// many states as the GPU.
///
/// # Errors
/// Says what was looked for and found.
pub fn find(
    properties: &BTreeMap<String, Vec<u8>>,
    states: Option<usize>,
) -> Result<(String, Table), String> {
    let fits = |table: &Table| states.is_none_or(|states| table.points.len() == states);
    let mut refused = Vec::new();
    for name in NAMES {
        match properties.get(name).map(|bytes| read(bytes)) {
            Some(Ok(table)) if fits(&table) => return Ok((name.to_owned(), table)),
            Some(Ok(table)) => refused.push(format!("`{name}` has {} states", table.points.len())),
            Some(Err(why)) => refused.push(format!("`{name}` {why}")),
            None => refused.push(format!("there is no `{name}`")),
        }
    }
    let others = properties.iter().filter(|(name, _)| name.starts_with("voltage-states"));
    let others = others.filter_map(|(name, bytes)| Some((name.clone(), read(bytes).ok()?)));
    let others = others.filter(|(_, table)| states.is_some() && fits(table));
    let mut others = others.fold(Vec::new(), |mut known: Vec<(String, Table)>, other| {
        // Two names for the same clocks are no doubt.
        if !known.iter().any(|(_, table)| table.same_clocks(&other.1)) {
            known.push(other);
        }
        known
    });
    match (others.len(), others.pop()) {
        (1, Some(found)) => Ok(found),
        (n, _) => {
            let wanted = states.map_or(String::new(), |n| format!(" of {n} states"));
            let refused = refused.join(", ");
            Err(format!("no table{wanted} is surely the GPU's: {refused}, {n} others fit"))
        }
    }
}

/// The clocks of the p-states, and which of the firmware's numbers is which in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Clocks {
    /// Shape: ascending; (the firmware's number, its clock).
    order: Vec<(u8, Hertz)>,
}

impl Clocks {
    /// The clocks of a table; `None` for one with more states than there are numbers.
    pub fn of(table: &Table) -> Option<Clocks> {
        let numbered = table.points.iter().enumerate();
        let numbered = numbered.map(|(n, point)| Some((u8::try_from(n + 1).ok()?, point.clock)));
        let mut order = numbered.collect::<Option<Vec<_>>>()?;
        order.sort_by(|(_, a), (_, b)| a.as_hz().total_cmp(&b.as_hz()));
        Some(Clocks { order })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// All of them, ascending, with the firmware's numbers.
    pub fn ascending(&self) -> impl Iterator<Item = (u8, Hertz)> + '_ {
        self.order.iter().copied()
    }

    /// Where the firmware's `number` stands in ascending order, from 1.
    pub fn place(&self, number: u8) -> Option<usize> {
        self.order.iter().position(|(known, _)| *known == number).map(|place| place + 1)
    }

    /// True if the firmware's numbers ascend with the clock, as they do up to M2.
    pub fn in_firmware_order(&self) -> bool {
        self.order.iter().enumerate().all(|(n, (number, _))| usize::from(*number) == n + 1)
    }
}
