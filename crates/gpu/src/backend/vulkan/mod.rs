//! Any GPU with a Vulkan driver: `vulkan:0`, `vulkan:1`, in the order of the loader.
//!
//! Work is compute shaders in command buffers, each between two timestamps of the GPU. A commit
//! submits a buffer that in the steady state was written before; it allocates nothing, takes no lock
//! and does not wait. The host learns of an end from the buffer's fence. A handle has a logical
//! device, queues and time base of its own, and no thread: work happens in the caller's.
//!
//! It does not know p-states, and neither clock nor power but from those who know them
//! (`telemetry.rs`). A driver that computes on the CPU (lavapipe) works as any other, says "(software)"
//! in its name, and is never taken where no device was chosen.

mod check;
mod context;
mod handle;
mod kernels;
mod lane;
mod loader;
mod plan;
mod stock;
mod sysfs;
mod telemetry;
#[cfg(test)]
mod tests;
mod timer;

use super::{Entry, Found};
use crate::{Backend, Error, Telemetry};
use loader::{Card, Vulkan};

/// The line in the table of backends.
pub const ENTRY: Entry = Entry {
    prefix: "vulkan",
    about: "a GPU with a Vulkan driver: vulkan:0",
    hardware: true,
    open,
    watch,
    list,
};

fn list() -> Vec<Found> {
    match Vulkan::load().and_then(|vulkan| vulkan.cards()) {
        Ok(cards) => cards.iter().enumerate().map(found).collect(),
        Err(why) => vec![Found::unusable("vulkan:0", why)],
    }
}

fn found((index, card): (usize, &Card)) -> Found {
    let id = format!("vulkan:{index}");
    match &card.family {
        Ok(_) => Found { software: card.software, ..Found::usable(id, card.name.clone()) },
        Err(why) => Found::unusable(id, format!("{}: {why}", card.name)),
    }
}

fn open(id: &str) -> Result<Box<dyn Backend>, Error> {
    Ok(Box::new(handle::Gpu::open(id, handle::Options::default())?))
}

/// Reads what the machine tells of the card; Vulkan is only asked which one it is.
fn watch(id: &str) -> Result<Box<dyn Telemetry>, Error> {
    let (_, card) = card(id)?;
    match telemetry::Source::of(&card) {
        Ok(source) => Ok(Box::new(telemetry::Watch::new(source))),
        Err(why) => Err(Error::Silent { device: id.to_owned(), why }),
    }
}

/// The card that `id` names, and the instance that knows it.
fn card(id: &str) -> Result<(&'static Vulkan, Card), Error> {
    let no = |why: String| Error::NoDevice {
        id: id.to_owned(),
        why: format!("{why}; {}", super::what_exists()),
    };
    let number: Result<usize, _> = super::rest(id).parse();
    let number = number.map_err(|_| no("expected a number, as in vulkan:0".to_owned()))?;
    let vulkan = Vulkan::load().map_err(no)?;
    let cards = vulkan.cards().map_err(no)?;
    let count = cards.len();
    let none = || no(format!("there are {count} Vulkan devices, counted from 0"));
    let card = cards.into_iter().nth(number).ok_or_else(none)?;
    Ok((vulkan, card))
}
