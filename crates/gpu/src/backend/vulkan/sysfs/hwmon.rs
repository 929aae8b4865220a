//! `hwmon*/`: sensors, in units that are the same for all drivers.
//!
//! Source: the kernel's documents sysfs-class-hwmon, amdgpu's and i915's/xe's among them: power in
//! uW, energy in uJ, temperature in 1/1000 degC, frequency in Hz.

use super::Sample;
use super::tree::{entries, number, text};
use everwarm_units::{Celsius, Hertz, Joules, Watts};
use std::path::Path;

/// What the sensors of a device say; the first folder that has one wins.
pub fn read(device: &Path) -> Sample {
    let mut sample = Sample::default();
    for folder in entries(&device.join("hwmon"), "hwmon") {
        let one = |file: &str| number(&folder.join(file));
        let power = one("power1_average").or_else(|| one("power1_input"));
        sample = sample.or(Sample {
            clock: labelled(&folder, "freq", "sclk").map(Hertz::hz),
            memory_clock: labelled(&folder, "freq", "mclk").map(Hertz::hz),
            power: power.map(|uw| Watts::mw(uw / 1e3)),
            energy: one("energy1_input").map(|uj| Joules::mj(uj / 1e3)),
            temperature: temperature(&folder),
            ..Sample::default()
        });
    }
    sample
}

/// The sensor with that label.
fn labelled(folder: &Path, kind: &str, label: &str) -> Option<f64> {
    let has = |n: &u32| text(&folder.join(format!("{kind}{n}_label"))).as_deref() == Some(label);
    let n = (1..=8).find(has)?;
    number(&folder.join(format!("{kind}{n}_input")))
}

/// The GPU's own temperature: of the package where sensors have names (xe), else the first.
fn temperature(folder: &Path) -> Option<Celsius> {
    let first = || number(&folder.join("temp1_input"));
    let value = labelled(folder, "temp", "edge")
        .or_else(|| labelled(folder, "temp", "pkg"))
        .or_else(first)?;
    Some(Celsius::c(value / 1e3))
}
