//! Apple GPUs through Metal: `metal:0`.
//!
//! **It has never run on a Mac.** docs/devices/metal.md says what was checked instead, and how.
//! Elsewhere than on macOS this is only the line in the table that says so; the tests build the
//! rest against a fake Metal (`fake-metal/`), which `cfg(fake_metal)` stands for.

#[cfg(any(target_os = "macos", fake_metal))]
mod device;
#[cfg(any(target_os = "macos", fake_metal))]
mod encode;
#[cfg(any(target_os = "macos", fake_metal))]
mod flight;
#[cfg(any(target_os = "macos", fake_metal))]
mod memory;
pub mod telemetry;

use super::{Entry, Found};
use crate::{Backend, Error};

/// The line in the table of backends.
pub const ENTRY: Entry = Entry {
    prefix: "metal",
    about: "an Apple GPU: metal:0",
    hardware: true,
    open,
    watch: telemetry::watch,
    list,
};

/// The only device: a Mac with an Apple GPU has one.
const ID: &str = "metal:0";

fn list() -> Vec<Found> {
    vec![match name() {
        Ok(name) => Found::usable(ID, name),
        Err(why) => Found::unusable(ID, why),
    }]
}

fn open(id: &str) -> Result<Box<dyn Backend>, Error> {
    let refused = |why: String| Error::NoDevice {
        id: id.to_owned(),
        why: format!("{why}; {}", super::what_exists()),
    };
    name().map_err(refused)?;
    if id != ID {
        return Err(refused(format!("a Mac has one Apple GPU, {ID}")));
    }
    opened()
}

#[cfg(any(target_os = "macos", fake_metal))]
fn name() -> Result<String, String> {
    device::name()
}

#[cfg(any(target_os = "macos", fake_metal))]
fn opened() -> Result<Box<dyn Backend>, Error> {
    Ok(Box::new(device::Metal::open(ID)?))
}

#[cfg(not(any(target_os = "macos", fake_metal)))]
fn name() -> Result<String, String> {
    Err("needs macOS".to_owned())
}

#[cfg(not(any(target_os = "macos", fake_metal)))]
fn opened() -> Result<Box<dyn Backend>, Error> {
    unreachable!("there is no device to open")
}
