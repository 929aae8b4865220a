//! `devfreq`: GPUs of phones and boards (msm, panfrost, panthor, lima, and makers' own drivers).
//!
//! Source: the kernel's document sysfs-class-devfreq. The time at each clock counts while the device
//! is on; what is left of wall time is off.

use super::Sample;
use super::tree::{entries, name, number, text};
use everwarm_units::{Hertz, Span};
use std::path::{Path, PathBuf};

/// The folder of a device's own scaling.
pub fn folder_of(device: &Path) -> Option<PathBuf> {
    entries(&device.join("devfreq"), "").into_iter().next()
}

/// The one folder of the machine that is a GPU's by its name, for drivers that don't say where their
/// device lies; none if there are several.
pub fn only_gpu(root: &Path) -> Option<PathBuf> {
    let is_gpu = |path: &PathBuf| {
        let name = name(path);
        name.ends_with(".gpu") || name.ends_with(".mali") || name.contains("kgsl")
    };
    let mut found = entries(&root.join("class/devfreq"), "").into_iter().filter(is_gpu);
    found.next().filter(|_| found.next().is_none())
}

/// What it tells.
pub fn read(folder: &Path) -> Sample {
    Sample {
        clock: number(&folder.join("cur_freq")).filter(|hz| *hz > 0.0).map(Hertz::hz),
        at_clocks: text(&folder.join("trans_stat")).and_then(|text| times(&text)),
        ..Sample::default()
    }
}

/// The time at each clock, ascending. A line for each: a star at the present one, the clock in Hz, a
/// colon, counts of changes to each clock, and last the time in ms.
fn times(text: &str) -> Option<Vec<(Hertz, Span)>> {
    let line = |line: &str| {
        let (clock, rest) = line.trim().trim_start_matches('*').split_once(':')?;
        let (clock, ms): (u64, u64) =
            (clock.trim().parse().ok()?, rest.split_whitespace().last()?.parse().ok()?);
        Some((Hertz::hz(clock as f64), Span::ms(ms.min(u64::MAX / 1_000_000))))
    };
    let mut times: Vec<_> = text.lines().filter_map(line).collect();
    times.sort_by(|a, b| a.0.as_hz().total_cmp(&b.0.as_hz()));
    (!times.is_empty()).then_some(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_at_the_end_of_the_lines_of_clocks() {
        // Modelled on a Mali-G610 with panthor, after the document sysfs-class-devfreq.
        let text = "     From  :   To
           : 300000000 400000000 1000000000   time(ms)
* 300000000:         0        12         3    905120
  400000000:        11         0         4      4210
 1000000000:         3         4         0      9120
Total transition : 37
";
        let times = times(text).unwrap();
        let expected = [(300.0, 905_120), (400.0, 4_210), (1_000.0, 9_120)];
        assert_eq!(times, expected.map(|(mhz, ms)| (Hertz::mhz(mhz), Span::ms(ms))));
        assert_eq!(super::times("Not Supported."), None);
        assert_eq!(super::times("5: 99999999999999999999999"), None);
    }
}
