//! The same from macOS. **Never run on a Mac.**

use super::{Environment, Heat};
use objc2::rc::autoreleasepool;
use objc2::runtime::NSObjectProtocol;
use objc2::sel;
use objc2_core_foundation::{CFRetained, CFString, CFType};
use objc2_foundation::{NSProcessInfo, NSProcessInfoThermalState};
use std::ptr::NonNull;

#[link(name = "IOKit", kind = "framework")]
// SAFETY: names and types as in IOKit's headers; each says who owns what.
unsafe extern "C" {
    /// The object is the caller's.
    fn IOPSCopyPowerSourcesInfo() -> Option<NonNull<CFType>>;
    /// The text belongs to `info` or to the library.
    fn IOPSGetProvidingPowerSourceType(info: Option<&CFType>) -> Option<NonNull<CFString>>;
}

#[link(name = "CoreGraphics", kind = "framework")]
// SAFETY: names and types as in CoreGraphics' headers; they take and give numbers.
unsafe extern "C" {
    /// 0 without a display.
    safe fn CGMainDisplayID() -> u32;
    safe fn CGDisplayIsAsleep(display: u32) -> u32;
}

pub fn read() -> Environment {
    let (low_power_mode, heat) = autoreleasepool(|_| process_info());
    Environment { on_battery: on_battery(), low_power_mode, heat, display_asleep: display_asleep() }
}

/// A desktop says "AC Power", too.
fn on_battery() -> Option<bool> {
    // SAFETY: it takes nothing.
    let info = unsafe { IOPSCopyPowerSourcesInfo() }?;
    // SAFETY: it was copied for us.
    let info = unsafe { CFRetained::from_raw(info) };
    // SAFETY: `info` is alive, and what it returns lives as long.
    let kind = unsafe {
        IOPSGetProvidingPowerSourceType(Some(&info)).map(|kind| kind.as_ref().to_string())
    };
    match kind?.as_str() {
        "AC Power" => Some(false),
        "Battery Power" | "UPS Power" => Some(true),
        _ => None,
    }
}

fn process_info() -> (Option<bool>, Option<Heat>) {
    let info = NSProcessInfo::processInfo();
    // New in macOS 12, while we start from 11 on.
    let has_mode = info.respondsToSelector(sel!(isLowPowerModeEnabled));
    let low_power_mode = has_mode.then(|| info.isLowPowerModeEnabled());
    let heat = match info.thermalState() {
        NSProcessInfoThermalState::Nominal => Some(Heat::Nominal),
        NSProcessInfoThermalState::Fair => Some(Heat::Fair),
        NSProcessInfoThermalState::Serious => Some(Heat::Serious),
        NSProcessInfoThermalState::Critical => Some(Heat::Critical),
        _ => None,
    };
    (low_power_mode, heat)
}

fn display_asleep() -> Option<bool> {
    let display = CGMainDisplayID();
    (display != 0).then(|| CGDisplayIsAsleep(display) != 0)
}
