//! The same from Linux' `/sys`, or from any folder of its form.
//!
//! Files: `class/power_supply/*/{type,scope,online,status}`,
//! `class/thermal/thermal_zone*/{mode,temp,trip_point_N_type,trip_point_N_temp}`,
//! `class/thermal/cooling_device*/{type,cur_state}`, `firmware/acpi/platform_profile`.
//! Source: the kernel's ABI documents (sysfs-class-power, sysfs-class-thermal, sysfs-platform_profile).
//!
//! It does not know of displays: a console that blanks and a panel that sleeps look alike there.

use super::{Environment, Heat};
use std::path::{Path, PathBuf};

/// Reads a tree whose root is like `/sys`; what is missing or is not understood is `None`.
pub fn read(root: &Path) -> Environment {
    Environment {
        on_battery: on_battery(&root.join("class/power_supply")),
        low_power_mode: low_power_mode(root),
        heat: heat(&root.join("class/thermal")),
        display_asleep: None,
    }
}

/// The text of a small file, without its end of line.
fn text(path: PathBuf) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned()).filter(|text| !text.is_empty())
}

fn number(path: PathBuf) -> Option<i64> {
    text(path)?.parse().ok()
}

/// The entries of a folder whose names begin so.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(all) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    all.filter_map(|entry| Some(entry.ok()?.path())).filter(named).collect()
}

/// Mains that are online say no; else a battery or UPS that discharges says yes.
fn on_battery(supplies: &Path) -> Option<bool> {
    let mut mains_off = false;
    let mut statuses = Vec::new();
    for supply in entries(supplies, "") {
        // A mouse's battery says nothing of the machine.
        if text(supply.join("scope")).as_deref() == Some("Device") {
            continue;
        }
        match text(supply.join("type")).as_deref() {
            Some("Battery" | "UPS") => statuses.extend(text(supply.join("status"))),
            Some("Mains" | "USB" | "Wireless") => match number(supply.join("online")) {
                Some(0) => mains_off = true,
                Some(_) => return Some(false),
                None => {}
            },
            _ => {}
        }
    }
    let any = |status: &str| statuses.iter().any(|known| known == status);
    if any("Discharging") {
        Some(true)
    } else if any("Charging") || any("Full") || any("Not charging") {
        Some(false)
    } else {
        // A battery that can't say, beside a plug that is out.
        (mains_off && any("Unknown")).then_some(true)
    }
}

fn low_power_mode(root: &Path) -> Option<bool> {
    let profile = text(root.join("firmware/acpi/platform_profile"))?;
    Some(profile == "low-power")
}

/// The hottest zone's heat. A passive trip point that is passed is serious only if something else
/// than a fan is at work against it: those of skin sensors lie so low that they are often passed.
fn heat(thermal: &Path) -> Option<Heat> {
    let zones = entries(thermal, "thermal_zone");
    let worst = zones.iter().filter_map(|zone| zone_heat(zone)).max()?;
    let slowed = || entries(thermal, "cooling_device").iter().any(|device| slows(device));
    Some(if worst == Heat::Fair && slowed() { Heat::Serious } else { worst })
}

/// `None` for a zone that is off or has no trip points.
fn zone_heat(zone: &Path) -> Option<Heat> {
    if text(zone.join("mode")).as_deref() == Some("disabled") {
        return None;
    }
    let temperature = number(zone.join("temp"))?;
    let trips = (0..64).map_while(|n| {
        let kind = text(zone.join(format!("trip_point_{n}_type")))?;
        Some((kind, number(zone.join(format!("trip_point_{n}_temp")))))
    });
    let heats = trips.filter_map(|(kind, at)| {
        // Firmware writes 0 and less for trip points that it does not use.
        let passed = temperature >= at.filter(|at| *at > 0)?;
        let heat = match kind.as_str() {
            "passive" => Heat::Fair,
            "hot" => Heat::Serious,
            "critical" => Heat::Critical,
            _ => return None,
        };
        Some(if passed { heat } else { Heat::Nominal })
    });
    heats.max()
}

/// True for a device that slows the machine down now. Fans cool without that, and a display that
/// somebody has dimmed counts as a cooling device, too.
fn slows(device: &Path) -> bool {
    let other = |kind: String| ["fan", "lcd"].iter().any(|name| kind.contains(name));
    let other = text(device.join("type")).is_none_or(|kind| other(kind.to_lowercase()));
    !other && number(device.join("cur_state")).is_some_and(|state| state > 0)
}
