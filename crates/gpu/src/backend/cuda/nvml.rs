//! What NVIDIA's management library tells of a GPU: clocks, power, energy, temperature, and what
//! keeps the clock down.
//!
//! It needs no context and makes none, so a GPU can be looked at without being woken. Each value that
//! the GPU or the driver does not know is `None`. It knows nothing of CUDA: the caller says which GPU
//! by its UUID or its place on the bus, which hold under CUDA_VISIBLE_DEVICES too, where ordinals
//! don't.

use crate::Counters;
use everwarm_units::{Celsius, Hertz, Instant, Joules, Watts};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PerformanceState, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use std::path::Path;
use std::sync::OnceLock;

/// The library, once it was found; never unloaded.
static NVML: OnceLock<Nvml> = OnceLock::new();

/// One GPU, as the management library sees it.
pub struct Gauge {
    device: Device<'static>,
    /// The energy counter at opening. Unit: mJ.
    energy_before: Option<u64>,
}

/// The library at `path`.
///
/// # Errors
/// Text that says why it can't be used; it is tried again the next time.
pub fn library(path: &Path) -> Result<&'static Nvml, String> {
    if let Some(nvml) = NVML.get() {
        return Ok(nvml);
    }
    let nvml = Nvml::builder().lib_path(path.as_os_str()).init();
    let nvml = nvml.map_err(|error| format!("{}: {error}", path.display()))?;
    // Whoever comes second throws its own away.
    Ok(NVML.get_or_init(|| nvml))
}

impl Gauge {
    /// The GPU with this UUID, else the one at this place on the bus (a slice of a GPU has a UUID
    /// that the library does not know as a GPU's).
    ///
    /// # Errors
    /// Text that says why it can't be looked at.
    pub fn open(library: &Path, uuid: Option<&[u8; 16]>, bus_id: &str) -> Result<Gauge, String> {
        let nvml = self::library(library)?;
        let named = uuid.and_then(|uuid| nvml.device_by_uuid(uuid_text(uuid)).ok());
        let device = match named {
            Some(device) => device,
            None => nvml
                .device_by_pci_bus_id(bus_id)
                .map_err(|error| format!("no GPU at {bus_id}: {error}"))?,
        };
        let energy_before = device.total_energy_consumption().ok();
        Ok(Gauge { device, energy_before })
    }

    /// Counts energy from now on.
    pub fn restart(&mut self) {
        self.energy_before = self.device.total_energy_consumption().ok();
    }

    /// All that it tells now; `at` is written into it.
    pub fn read(&self, at: Instant) -> Counters {
        let clock = |which| self.device.clock_info(which).ok().map(|mhz| Hertz::mhz(mhz.into()));
        let energy = self.device.total_energy_consumption().ok().zip(self.energy_before);
        let temperature = self.device.temperature(TemperatureSensor::Gpu).ok();
        Counters {
            at,
            gpu_energy: energy
                .map(|(now, before)| Joules::j(now.saturating_sub(before) as f64 / 1_000.0)),
            clock: clock(Clock::SM),
            memory_clock: clock(Clock::Memory),
            power: self.power(),
            temperature: temperature.map(|degrees| Celsius::c(degrees.into())),
            limited_by: self.device.current_throttle_reasons().ok().map(words),
            ..Counters::default()
        }
    }

    /// The board's power, as the driver averages it.
    pub fn power(&self) -> Option<Watts> {
        self.device.power_usage().ok().map(|mw| Watts::w(f64::from(mw) / 1_000.0))
    }

    /// What a reader wants to know once. Shape: name and value.
    pub fn facts(&self) -> Vec<(String, String)> {
        let mhz = |mhz: u32| format!("{mhz} MHz");
        let facts = [
            ("driver", driver_version()),
            ("NVML performance state at opening", self.state()),
            ("top SM clock", self.device.max_clock_info(Clock::SM).ok().map(mhz)),
            ("top memory clock", self.device.max_clock_info(Clock::Memory).ok().map(mhz)),
            (
                "power limit",
                self.device.enforced_power_limit().ok().map(|mw| format!("{} W", mw / 1_000)),
            ),
            (
                "persistence mode",
                self.is_persistent().map(|on| if on { "on" } else { "off" }.to_owned()),
            ),
            ("power source", self.power().map(|_| "NVML, the whole board".to_owned())),
        ];
        let known = facts.into_iter().filter_map(|(name, value)| value.map(|v| (name.into(), v)));
        known.collect()
    }

    /// Whether the driver stays loaded without a user; Linux alone has this.
    #[cfg(target_os = "linux")]
    fn is_persistent(&self) -> Option<bool> {
        self.device.is_in_persistent_mode().ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn is_persistent(&self) -> Option<bool> {
        None
    }

    /// NVIDIA's own name of the performance state, of which P0 is the fastest. Our index ascends
    /// and counts clocks; theirs groups them, so there is no way from one to the other.
    fn state(&self) -> Option<String> {
        let state = self.device.performance_state().ok()?;
        let known = state != PerformanceState::Unknown;
        // The library's own order, from the fastest on.
        let number = state as u32;
        known.then(|| format!("P{number} (P0 is the fastest)"))
    }
}

/// The driver's version, if the library was found.
pub fn driver_version() -> Option<String> {
    NVML.get()?.sys_driver_version().ok()
}

/// "GPU-" and the bytes as groups of hexadecimal digits, as the library writes it.
fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let groups = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
    format!("GPU-{}", groups.join("-"))
}

/// The reasons for a lower clock in plain words. That nothing runs keeps nothing down: the GPU is
/// free to choose.
fn words(reasons: ThrottleReasons) -> Vec<String> {
    let all = [
        (ThrottleReasons::APPLICATIONS_CLOCKS_SETTING, "a clock set for applications"),
        (ThrottleReasons::SW_POWER_CAP, "power cap"),
        (ThrottleReasons::HW_SLOWDOWN, "slowed down by the hardware"),
        (ThrottleReasons::SYNC_BOOST, "another GPU in its group"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "temperature"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "temperature (hardware)"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
        (ThrottleReasons::DISPLAY_CLOCK_SETTING, "a clock set for the display"),
    ];
    let held = all.into_iter().filter(|(reason, _)| reasons.contains(*reason));
    held.map(|(_, words)| words.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_the_library_writes_it() {
        let uuid: [u8; 16] = std::array::from_fn(|n| 0x10 * (n as u8 % 8) + n as u8);
        assert_eq!(uuid_text(&uuid), "GPU-00112233-4455-6677-0819-2a3b4c5d6e7f");
    }

    #[test]
    fn reasons_are_told_in_words_and_idleness_is_none() {
        assert_eq!(words(ThrottleReasons::GPU_IDLE), [] as [&str; 0]);
        let two = ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        assert_eq!(words(two), ["power cap", "temperature (hardware)"]);
    }
}
