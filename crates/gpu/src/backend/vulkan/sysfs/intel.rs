//! Intel: i915 below `card*/`, xe below `card*/device/tile0/`, and sensors.
//!
//! Of several tiles and units the first is read, which has the render and compute engines. Source:
//! the kernel's documents sysfs-driver-intel-i915-hwmon and sysfs-driver-intel-xe-hwmon, and the
//! drivers' own sysfs files (i915: intel_gt_sysfs_pm.c; xe: xe_gt_freq.c, xe_gt_idle.c,
//! xe_gt_throttle.c).

use super::tree::{entries, name, number};
use super::{Sample, hwmon};
use everwarm_units::{Hertz, Span};
use std::path::Path;

/// What i915 tells.
pub fn i915(card: &Path) -> Sample {
    let unit = card.join("gt/gt0");
    let first = |files: [&Path; 2]| files.into_iter().find_map(number);
    let old = card.join("gt_act_freq_mhz");
    let clock = first([&unit.join("rps_act_freq_mhz"), &old]);
    let off = first([&unit.join("rc6_residency_ms"), &card.join("power/rc6_residency_ms")]);
    Sample {
        // The clock of a unit that is off is told as 0.
        clock: clock.filter(|mhz| *mhz > 0.0).map(Hertz::mhz),
        off: off.map(Span::from_ms),
        limited_by: limits(&unit, "throttle_reason_"),
        ..Sample::default()
    }
    .or(hwmon::read(&card.join("device")))
}

/// What xe tells.
pub fn xe(device: &Path) -> Sample {
    let unit = device.join("tile0/gt0");
    let clock = number(&unit.join("freq0/act_freq"));
    Sample {
        clock: clock.filter(|mhz| *mhz > 0.0).map(Hertz::mhz),
        off: number(&unit.join("gtidle/idle_residency_ms")).map(Span::from_ms),
        limited_by: limits(&unit.join("freq0/throttle"), "reason_"),
        ..Sample::default()
    }
    .or(hwmon::read(device))
}

/// Reasons that hold, in plain words; `None` where the driver knows none.
fn limits(folder: &Path, prefix: &str) -> Option<Vec<String>> {
    let files = entries(folder, prefix);
    let reasons = files.iter().filter_map(|file| {
        let reason = name(file).strip_prefix(prefix)?.to_owned();
        (reason != "status").then_some((reason, number(file)?))
    });
    let reasons: Vec<_> = reasons.collect();
    let holding = reasons.iter().filter(|(_, holds)| *holds > 0.0);
    let words = |(reason, _): &(String, f64)| match reason.as_str() {
        "pl1" => "power cap (PL1)".to_owned(),
        "pl2" => "power cap (PL2)".to_owned(),
        "pl4" => "peak power (PL4)".to_owned(),
        "thermal" | "soc_thermal" | "mem_thermal" => "temperature".to_owned(),
        "prochot" => "processor hot".to_owned(),
        "ratl" => "average temperature".to_owned(),
        "vr_thermalert" | "vr_thermal" => "temperature of the regulator".to_owned(),
        "vr_tdc" => "current of the regulator".to_owned(),
        other => other.replace('_', " "),
    };
    (!reasons.is_empty()).then(|| holding.map(words).collect())
}
