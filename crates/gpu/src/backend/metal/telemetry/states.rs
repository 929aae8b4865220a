//! Names of GPU states: which are off, which is which p-state.
//!
//! `GPUPH` lists `OFF` and `P1` upwards. Other state channels, and other macOS versions, have
//! `IDLE_OFF`, `SW_OFF`, `DOWN`, `IDLE`, `SW_P1` or the CPU's form `V0P5`. A name that is neither
//! is kept as it is: its time must not be counted as clocked or as off.

/// What a state's name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without power or clock.
    Off,
    /// A p-state, by the firmware's own number, from 1.
    P(u8),
    /// A name that says neither.
    Unknown,
}

/// Reads a state's name.
pub fn kind(name: &str) -> Kind {
    let name = name.trim();
    let bare = name.strip_prefix("SW_").unwrap_or(name);
    match bare {
        "OFF" | "IDLE_OFF" | "IDLE" | "DOWN" => return Kind::Off,
        _ => {}
    }
    // `V0P5`: voltage step, then performance step.
    let bare = match bare.strip_prefix('V').and_then(|rest| rest.split_once('P')) {
        Some((volts, _)) if is_number(volts) => &bare[volts.len() + 1..],
        _ => bare,
    };
    match bare.strip_prefix('P').filter(|digits| is_number(digits)).map(str::parse) {
        Some(Ok(0)) => Kind::Unknown,
        Some(Ok(number)) => Kind::P(number),
        _ => Kind::Unknown,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_generations_are_read() {
        let check = |name: &str, expected: Kind| assert_eq!(kind(name), expected, "{name}");
        for off in ["OFF", "IDLE_OFF", "SW_OFF", "DOWN", "IDLE", " OFF "] {
            check(off, Kind::Off);
        }
        check("P1", Kind::P(1));
        check("P15", Kind::P(15)); // M4
        check("SW_P10", Kind::P(10));
        check("V7P3", Kind::P(3));
        for unknown in ["", "P", "P0", "P256", "PERF", "P1x", "p1", "NO_CLTM", "VP1", "S3", "P１"]
        {
            check(unknown, Kind::Unknown);
        }
    }
}
