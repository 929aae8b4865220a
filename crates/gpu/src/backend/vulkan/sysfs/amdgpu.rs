//! AMD: `device/{pp_dpm_sclk,pp_dpm_mclk,gpu_metrics}` and sensors.
//!
//! Source: the kernel's amdgpu documents (thermal and power management). It does not know p-states:
//! the levels of newer chips are a range whose middle one follows the clock.

use super::tree::{bytes, text};
use super::{Sample, hwmon, metrics};
use everwarm_units::Hertz;
use std::path::Path;

/// What the driver tells. Sensors go before the table, which is renewed less often.
pub fn read(device: &Path) -> Sample {
    let level = |file: &str| text(&device.join(file)).and_then(|text| starred(&text));
    let levels = Sample {
        clock: level("pp_dpm_sclk"),
        memory_clock: level("pp_dpm_mclk"),
        ..Sample::default()
    };
    let table = bytes(&device.join("gpu_metrics")).map(|table| metrics::decode(&table));
    hwmon::read(device).or(levels).or(table.unwrap_or_default())
}

/// The clock of the level with the star: lines such as `1: 1800Mhz *`, `S: 19Mhz *` in deep sleep.
fn starred(text: &str) -> Option<Hertz> {
    let line = text.lines().find(|line| line.trim_end().ends_with('*'))?;
    let (_, value) = line.split_once(':')?;
    let digits: String = value.trim().chars().take_while(char::is_ascii_digit).collect();
    Some(Hertz::mhz(digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_with_the_star_counts() {
        let check = |text: &str, mhz: Option<f64>| {
            assert_eq!(starred(text), mhz.map(Hertz::mhz), "{text}");
        };
        check("0: 500Mhz\n1: 1800Mhz *\n2: 2475Mhz\n", Some(1_800.0));
        check("S: 19Mhz *\n0: 615Mhz\n", Some(19.0));
        check("0: 500Mhz\n1: 2475Mhz\n", None);
        check("*", None);
        check("0: *", None);
    }
}
