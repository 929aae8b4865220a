//! amdgpu's `gpu_metrics`: a binary table that the power controller fills, in the layout that its
//! first four bytes name.
//!
//! Source: the kernel's kgd_pp_interface.h, versions 1.0 to 1.4 (cards) and 2.0 to 2.4 (processors
//! with graphics); offsets follow from the types there, in the byte order of the machine. Words of
//! only ones mean "not told". Cards count power in W, processors in mW and temperatures in
//! 1/100 degC. Later versions are not known here and tell nothing.

use super::Sample;
use everwarm_units::{Celsius, Hertz, Joules, Watts};

/// One step of the energy counter: 2^-16 J (the header says 15.259 uJ). Unit: J.
const ENERGY_STEP: f64 = 1.0 / 65_536.0;

/// Where values lie. Unit: B from the start of the table.
struct Layout {
    temperature: usize,
    /// Unit of the temperature. Unit: degC.
    degree: f64,
    power: usize,
    /// Unit of the power. Unit: W.
    watt: f64,
    /// The energy counter, 64 bits long.
    energy: Option<usize>,
    clock: usize,
    memory_clock: usize,
    /// Limits in the coding that is the same for all chips, 64 bits long.
    limits: Option<usize>,
}

/// The layout of a version.
fn layout(format: u8, content: u8) -> Option<Layout> {
    let card = |energy, limits| Layout {
        temperature: 4,
        degree: 1.0,
        power: 22,
        watt: 1.0,
        energy: Some(energy),
        clock: 54,
        memory_clock: 58,
        limits,
    };
    let processor = |limits| Layout {
        temperature: 4,
        degree: 0.01,
        power: 40,
        watt: 0.001,
        energy: None,
        clock: 76,
        memory_clock: 80,
        limits,
    };
    Some(match (format, content) {
        (1, 0) => Layout { temperature: 16, power: 34, energy: None, ..card(0, None) },
        (1, 1 | 2) => card(24, None),
        (1, 3) => card(24, Some(112)),
        (1, 4) => Layout { power: 10, clock: 240, memory_clock: 280, ..card(24, None) },
        (2, 0) => {
            Layout { temperature: 16, power: 44, clock: 80, memory_clock: 84, ..processor(None) }
        }
        (2, 1) => processor(None),
        (2, 2..=4) => processor(Some(120)),
        _ => return None,
    })
}

/// What a table says.
pub fn decode(table: &[u8]) -> Sample {
    let header = word::<2>(table, 0).map(u16::from_ne_bytes);
    let (Some(size), Some(&[format, content])) = (header, table.get(2..4).and_then(pair)) else {
        return Sample::default();
    };
    let Some(layout) = layout(format, content) else { return Sample::default() };
    // Nothing beyond what the table says of its own length, nor beyond what was read.
    let table = &table[..table.len().min(usize::from(size))];
    let short =
        |at| word::<2>(table, at).map(u16::from_ne_bytes).filter(|v| *v != u16::MAX).map(f64::from);
    let long = |at| word::<8>(table, at).map(u64::from_ne_bytes).filter(|v| *v != u64::MAX);
    let told = |at| short(at).filter(|value| *value > 0.0);
    Sample {
        temperature: told(layout.temperature).map(|v| Celsius::c(v * layout.degree)),
        power: told(layout.power).map(|v| Watts::w(v * layout.watt)),
        energy: layout.energy.and_then(long).map(|v| Joules::j(v as f64 * ENERGY_STEP)),
        clock: told(layout.clock).map(Hertz::mhz),
        memory_clock: told(layout.memory_clock).map(Hertz::mhz),
        limited_by: layout.limits.and_then(long).map(limits),
        ..Sample::default()
    }
}

fn pair(bytes: &[u8]) -> Option<&[u8; 2]> {
    bytes.try_into().ok()
}

fn word<const N: usize>(table: &[u8], at: usize) -> Option<[u8; N]> {
    table.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Limits in plain words. Source: the bits of SMU_THROTTLER_* in the kernel's amdgpu_smu.h: power
/// from 0, currents from 16, temperatures from 32, others from 56.
fn limits(bits: u64) -> Vec<String> {
    let kinds = [
        (0..16, "power cap"),
        (16..32, "current"),
        (32..56, "temperature"),
        (56..64, "another limit"),
    ];
    let set = |range: &std::ops::Range<u32>| range.clone().any(|bit| bits >> bit & 1 == 1);
    kinds.iter().filter(|(range, _)| set(range)).map(|(_, name)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A table of a version with values at their places.
    fn table(format: u8, content: u8, size: u16, values: &[(usize, u64, usize)]) -> Vec<u8> {
        let mut table = vec![0xff; usize::from(size)];
        table[..2].copy_from_slice(&size.to_ne_bytes());
        table[2..4].copy_from_slice(&[format, content]);
        for (at, value, length) in values {
            // In the byte order of the machine, as the kernel writes it.
            match length {
                2 => table[*at..at + 2].copy_from_slice(&(*value as u16).to_ne_bytes()),
                _ => table[*at..at + 8].copy_from_slice(&value.to_ne_bytes()),
            }
        }
        table
    }

    #[test]
    fn tables_of_cards_and_processors_are_told_apart() {
        // Modelled on a Radeon RX 6800 (1.3): 46 degC, 203 W, 2,310 MHz, memory 998 MHz.
        let card = [(4, 46, 2), (22, 203, 2), (24, 65_536_000, 8), (54, 2_310, 2), (58, 998, 2)];
        let limited = [&card[..], &[(112, 1 << 36 | 1, 8)]].concat();
        let got = decode(&table(1, 3, 120, &limited));
        assert_eq!(got.temperature, Some(Celsius::c(46.0)));
        assert_eq!(got.power, Some(Watts::w(203.0)));
        assert_eq!(got.energy, Some(Joules::j(1_000.0)));
        assert_eq!(got.clock, Some(Hertz::mhz(2_310.0)));
        assert_eq!(got.memory_clock, Some(Hertz::mhz(998.0)));
        assert_eq!(got.limited_by.unwrap(), ["power cap", "temperature"]);
        let older = decode(&table(1, 1, 96, &card));
        assert_eq!((older.power, older.limited_by), (Some(Watts::w(203.0)), None));
        // Modelled on a Ryzen 7 6800U (2.2): 51.25 degC, 14.5 W, 1,900 MHz.
        let processor = [(4, 5_125, 2), (40, 14_500, 2), (76, 1_900, 2), (120, 0, 8)];
        let got = decode(&table(2, 2, 128, &processor));
        assert_eq!(got.temperature, Some(Celsius::c(51.25)));
        assert_eq!(got.power, Some(Watts::w(14.5)));
        assert_eq!((got.clock, got.memory_clock), (Some(Hertz::mhz(1_900.0)), None));
        assert_eq!(got.limited_by, Some(Vec::new()));
        assert_eq!(decode(&table(9, 9, 120, &card)), Sample::default());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_something(bytes: Vec<u8>, format in 0u8..4, content in 0u8..6) {
            decode(&bytes);
            let mut bytes = bytes;
            if let Some(head) = bytes.get_mut(2..4) {
                head.copy_from_slice(&[format, content]);
                decode(&bytes);
            }
        }
    }
}
