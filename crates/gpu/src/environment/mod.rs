//! Signs that the machine has no power to spare: battery, Low Power Mode, heat, a sleeping display.
//!
//! Linux tells them in files below `/sys`, macOS through IOKit and NSProcessInfo (**never run on a
//! Mac**). What can't be told is `None`, which is no sign of anything: a desktop has no battery to
//! ask, and a server no display. It decides nothing; who holds a GPU does.

#[cfg(target_os = "macos")]
mod macos;
pub mod sysfs;

/// How hot the machine finds itself, in the words of NSProcessInfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Heat {
    /// As it should be.
    Nominal,
    /// Warm; nothing is slowed for it.
    Fair,
    /// The system slows parts down.
    Serious,
    /// It is about to do more than that.
    Critical,
}

impl Heat {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Heat::Nominal => "nominal",
            Heat::Fair => "fair",
            Heat::Serious => "serious",
            Heat::Critical => "critical",
        }
    }
}

/// What the machine tells; what it doesn't is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// True if it draws from a battery.
    pub on_battery: Option<bool>,
    /// True if somebody chose to save power over being quick.
    pub low_power_mode: Option<bool>,
    /// Thermal pressure.
    pub heat: Option<Heat>,
    /// True if the main display sleeps.
    pub display_asleep: Option<bool>,
}

impl Environment {
    /// Reads this machine. Takes well under a millisecond on Linux; the time on macOS is not known.
    pub fn read() -> Environment {
        #[cfg(target_os = "macos")]
        return macos::read();
        #[cfg(not(target_os = "macos"))]
        sysfs::read(std::path::Path::new("/sys"))
    }

    /// Everything as (what, value), for a record or a list.
    pub fn facts(&self) -> Vec<(String, String)> {
        let told = |value: Option<&str>| value.unwrap_or("not told").to_owned();
        let choice = |value: Option<bool>, yes: &'static str, no: &'static str| {
            told(value.map(|value| if value { yes } else { no }))
        };
        let facts = [
            ("power source", choice(self.on_battery, "battery", "mains")),
            ("low power mode", choice(self.low_power_mode, "on", "off")),
            ("thermal state", told(self.heat.map(Heat::word))),
            ("display", choice(self.display_asleep, "asleep", "awake")),
        ];
        facts.map(|(what, value)| (what.to_owned(), value)).to_vec()
    }
}
