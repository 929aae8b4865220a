//! Who tells of a Vulkan device: Linux' `/sys`, or NVIDIA's management library for its own driver.
//!
//! Vulkan itself tells no clock, power or temperature. Nothing here opens the device.

use super::loader::Card;
use super::sysfs::Sysfs;
use crate::backend::cuda;
use crate::{Counters, Error, Monotonic, Telemetry};
use everwarm_units::{Hertz, Instant};
use std::path::Path;

/// NVIDIA's number on the PCI bus.
pub const NVIDIA: u32 = 0x10de;

/// What tells of a device.
pub enum Source {
    Sysfs(Box<Sysfs>),
    Nvml(cuda::Gauge),
}

impl Source {
    /// The one for a card.
    ///
    /// # Errors
    /// What was looked for.
    pub fn of(card: &Card) -> Result<Self, String> {
        if card.software {
            return Err("its driver computes on the CPU".to_owned());
        }
        let nvml = match (card.vendor, card.place.pci) {
            (NVIDIA, Some(slot)) => cuda::gauge_at(&super::sysfs::slot(slot)).map(Source::Nvml),
            _ => Err(String::new()),
        };
        nvml.or_else(|nvml| {
            let sysfs = Sysfs::find(Path::new("/sys"), &card.place);
            let sysfs = sysfs.map(|sysfs| Source::Sysfs(Box::new(sysfs)));
            sysfs.map_err(|sysfs| if nvml.is_empty() { sysfs } else { format!("{nvml}; {sysfs}") })
        })
    }

    /// Counters since it was found, for a caller to whom it is `at`.
    pub fn counters(&mut self, at: Instant) -> Counters {
        match self {
            Source::Sysfs(sysfs) => sysfs.counters(at),
            Source::Nvml(gauge) => gauge.read(at),
        }
    }

    /// Clocks of the p-states, ascending, where there is a table of them.
    pub fn pstates(&self) -> Option<Vec<Hertz>> {
        match self {
            Source::Sysfs(sysfs) => sysfs.pstates(),
            Source::Nvml(_) => None,
        }
    }

    /// Where it is read, in words.
    pub fn about(&self) -> String {
        match self {
            Source::Sysfs(sysfs) => sysfs.about.clone(),
            Source::Nvml(_) => "NVML, the whole board".to_owned(),
        }
    }
}

/// What is told to somebody who does not use the device.
pub struct Watch {
    source: Source,
    epoch: Monotonic,
}

impl Watch {
    /// From now on.
    pub fn new(source: Source) -> Self {
        Watch { source, epoch: Monotonic::now() }
    }
}

impl Telemetry for Watch {
    fn read(&mut self) -> Result<Counters, Error> {
        Ok(self.source.counters(Monotonic::now().on_base(self.epoch)))
    }
}
