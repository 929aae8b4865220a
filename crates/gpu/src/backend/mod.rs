//! The backends there are, each one file beside this one and one line in [`TABLE`].
//!
//! A device id is `PREFIX:REST`; the prefix picks the backend, the rest is its own business. A
//! backend that this build does not have still has its line, so that `everwarm devices` and a
//! mistyped id can say why.

/// What a handle with the fields `device` and `epoch` says of itself and of time, if that is the
/// clock's on the wall: methods of [`Backend`].
macro_rules! by_the_wall_clock {
    () => {
        fn device(&self) -> &$crate::Device {
            &self.device
        }

        fn now(&self) -> everwarm_units::Instant {
            $crate::Monotonic::now().on_base(self.epoch)
        }

        fn epoch(&self) -> Option<$crate::Monotonic> {
            Some(self.epoch)
        }

        fn sleep_until(&mut self, deadline: everwarm_units::Instant) {
            $crate::punctual::sleep_until(self.epoch.at(deadline));
        }
    };
}
use by_the_wall_clock;

pub mod cuda;
pub mod metal;
mod sim;
mod socket;
mod vulkan;

use crate::{Backend, Error, Telemetry};

/// One kind of backend.
pub struct Entry {
    /// The part of an id before the colon.
    pub prefix: &'static str,
    /// What it drives, and the form of its ids.
    pub about: &'static str,
    /// True for real hardware, which is preferred where nothing was chosen.
    pub hardware: bool,
    /// Opens a device of this kind; takes the whole id.
    pub open: fn(&str) -> Result<Box<dyn Backend>, Error>,
    /// Reads what the machine tells of such a device without opening it; takes the whole id.
    pub watch: fn(&str) -> Result<Box<dyn Telemetry>, Error>,
    /// The devices of this kind that could be found, or why there are none.
    pub list: fn() -> Vec<Found>,
}

/// A device that was looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// As a user writes it.
    pub id: String,
    /// The maker's name, or why it can't be used.
    pub state: Result<String, String>,
    /// True for a driver that computes on the CPU: it is listed and opens, but nobody who asks for
    /// no device means it.
    pub software: bool,
    /// What could be told without waking it: driver version, power. Shape: name and value.
    pub facts: Vec<(String, String)>,
}

impl Found {
    /// A device that can be opened.
    pub fn usable(id: impl Into<String>, name: impl Into<String>) -> Self {
        Found { id: id.into(), state: Ok(name.into()), software: false, facts: Vec::new() }
    }

    /// A device that can't, and why.
    pub fn unusable(id: impl Into<String>, why: impl Into<String>) -> Self {
        Found { id: id.into(), state: Err(why.into()), software: false, facts: Vec::new() }
    }

    /// True for a device that may be taken where none was chosen.
    fn is_default(&self) -> bool {
        self.state.is_ok() && !self.software
    }
}

/// All backends; hardware first, because the default device is the first one found.
pub const TABLE: &[Entry] = &[metal::ENTRY, cuda::ENTRY, vulkan::ENTRY, sim::ENTRY];

/// Every device of every backend, those that can't be used with the reason.
pub fn devices() -> Vec<Found> {
    TABLE.iter().flat_map(|entry| (entry.list)()).collect()
}

/// The device that is taken where none was chosen: the first real one, else a simulated M2.
pub fn default_device() -> String {
    let hardware = TABLE.iter().filter(|e| e.hardware).flat_map(|e| (e.list)());
    let mut usable = hardware.filter(Found::is_default).map(|f| f.id);
    usable.next().unwrap_or_else(|| "sim:m2".to_owned())
}

/// Opens the device `id`.
///
/// # Errors
/// [`Error::NoDevice`] says what exists instead, or what was missing.
pub fn open(id: &str) -> Result<Box<dyn Backend>, Error> {
    (entry(id)?.open)(id)
}

/// Reads what the machine tells of the device `id` without opening it.
///
/// # Errors
/// [`Error::NoDevice`] as [`open`]; [`Error::Silent`] where nothing tells of the device.
pub fn watch(id: &str) -> Result<Box<dyn Telemetry>, Error> {
    (entry(id)?.watch)(id)
}

/// The kind of the device `id`.
fn entry(id: &str) -> Result<&'static Entry, Error> {
    let unknown = |why: String| Error::NoDevice { id: id.to_owned(), why };
    let Some((prefix, _)) = id.split_once(':') else {
        let simulated = format!("sim:{id}");
        let meant = simulated_chip(&simulated).map(|_| format!(" (`{simulated}`?)"));
        let meant = meant.unwrap_or_default();
        return Err(unknown(format!("expected KIND:NAME{meant}; {}", what_exists())));
    };
    let found = TABLE.iter().find(|entry| entry.prefix == prefix);
    found.ok_or_else(|| unknown(format!("there is no kind `{prefix}`; {}", what_exists())))
}

/// Finds out whether `id` names a device that there could be, without opening it: hardware and
/// shared devices may come later, a kind or a chip that nobody knows never will.
///
/// # Errors
/// [`Error::NoDevice`] says what exists instead.
pub fn known(id: &str) -> Result<(), Error> {
    match id.split_once(':') {
        Some(("sim", rest)) if !sim::is_socket(rest) => sim::chip_of(id).map(drop),
        Some((prefix, _)) if TABLE.iter().any(|entry| entry.prefix == prefix) => Ok(()),
        _ => open(id).map(drop),
    }
}

/// The chip of a simulated device in virtual time, for those who run its machine themselves.
///
/// # Errors
/// [`Error::NoDevice`] if `id` is no such device.
pub fn simulated_chip(id: &str) -> Result<everwarm_dvfs::Chip, Error> {
    Ok(sim::chip_of(id)?.chip)
}

/// The same with the origin of each of its values; of a real device as far as it tells.
///
/// # Errors
/// [`Error::NoDevice`] if `id` is no such device, or can't be read here.
pub fn traced_chip(id: &str) -> Result<everwarm_dvfs::Traced, Error> {
    match id.split_once(':') {
        Some(("sim", _)) => sim::chip_of(id),
        Some(("metal", _)) => {
            metal::telemetry::chip().map_err(|why| Error::NoDevice { id: id.to_owned(), why })
        }
        _ => Err(Error::NoDevice {
            id: id.to_owned(),
            why: "nothing tells a chip's values of it, but of sim:NAME and metal:0".to_owned(),
        }),
    }
}

/// A simulated device in virtual time with a chip that stands in no file.
pub fn simulate(chip: everwarm_dvfs::Chip) -> Box<dyn Backend> {
    sim::with_chip(chip)
}

/// For a kind of which nothing tells.
fn unwatched(id: &str, why: &str) -> Result<Box<dyn Telemetry>, Error> {
    Err(Error::Silent { device: id.to_owned(), why: why.to_owned() })
}

/// "there are sim:m2, …", for error messages.
fn what_exists() -> String {
    let found = devices().into_iter().filter(|f| f.state.is_ok());
    let ids: Vec<String> = found.map(|f| f.id).collect();
    format!("there are {} (`everwarm devices` says why others are not)", ids.join(", "))
}

/// The part of an id after its first colon.
fn rest(id: &str) -> &str {
    id.split_once(':').map_or("", |(_, rest)| rest)
}
