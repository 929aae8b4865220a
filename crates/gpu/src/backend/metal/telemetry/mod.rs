//! What macOS tells of the GPU beside Metal: p-state residencies, energy, clocks, the firmware
//! controller's own parameters, the machine.
//!
//! Two halves. The decoders (`channel`, `states`, `meter`, `table`, `tree`, `machine`) are pure:
//! bytes and lists in, values out; they compile and are tested everywhere. The reader (`macos`)
//! gets those bytes from IOReport and the IORegistry. **It has never run on a Mac.** It is own code
//! over IOReport's private functions, because the one library there is makes its own pauses of at
//! least 100 ms and gives a mean clock, while a ramp of 20 ms needs each state's time between any
//! two moments.
//!
//! Contract: residencies sum to the time since opening within [`meter::slack`], or are `None`;
//! everything that a source can't tell is `None`, with a reason in [`Telemetry::facts`] or
//! [`Reading::missing`]. Reading is not free: a third-party probe saw a GPU's states change by
//! being sampled every 100 ms, so read around what is measured and not within it.

pub mod channel;
pub mod machine;
#[cfg(target_os = "macos")]
mod macos;
pub mod meter;
pub mod states;
pub mod table;
pub mod tree;

pub use meter::Reading;

use crate::{Counters, Error, Monotonic};
use channel::Sample;
use everwarm_units::Hertz;
use machine::Machine;
use meter::Meter;
use table::{Clocks, Table};
use tree::Parameters;

/// What is read once: the machine and its tables.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// Which Mac this is.
    pub machine: Machine,
    /// The GPU's clocks by `pmgr`, with the property's name.
    pub table: Result<(String, Table), String>,
    /// The node `sgx`.
    pub parameters: Result<Parameters, String>,
}

impl Inventory {
    /// Reads this Mac. `states` is how many p-states its GPU has, if that is known.
    ///
    /// # Errors
    /// Elsewhere than on macOS.
    #[cfg_attr(not(target_os = "macos"), expect(unused_variables))]
    pub fn read(states: Option<usize>) -> Result<Inventory, String> {
        #[cfg(target_os = "macos")]
        {
            let pmgr = macos::node(c"pmgr", "voltage-states");
            Ok(Inventory {
                machine: macos::machine(),
                table: pmgr.and_then(|pmgr| table::find(&pmgr, states)),
                parameters: macos::node(c"sgx", "gpu-").map(|sgx| tree::parameters(&sgx)),
            })
        }
        #[cfg(not(target_os = "macos"))]
        Err(ELSEWHERE.to_owned())
    }

    /// The clocks of the p-states: `pmgr`'s table, else the one of `sgx`.
    pub fn clocks(&self) -> Option<Clocks> {
        let own = self.parameters.as_ref().ok().and_then(|found| found.table.as_ref());
        let own = own.and_then(|table| table.as_ref().ok());
        let table = self.table.as_ref().ok().map(|(_, table)| table);
        table.or(own).and_then(Clocks::of)
    }

    /// A chip file of this machine.
    ///
    /// # Errors
    /// Says what could not be read.
    pub fn chip_file(&self) -> Result<String, String> {
        let none = Parameters::default();
        let parameters = self.parameters.as_ref().unwrap_or(&none);
        let table = self.table.as_ref().ok().map(|(_, table)| table);
        tree::chip_file(&self.machine, parameters, table).map_err(|why| {
            let reasons = [self.table.as_ref().err(), self.parameters.as_ref().err()];
            reasons.into_iter().flatten().fold(why, |all, why| format!("{all}; {why}"))
        })
    }

    /// Everything as (what, value), for a record.
    pub fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.machine.facts();
        let mut fact = |what: &str, value: String| facts.push((what.to_owned(), value));
        match &self.table {
            Ok((name, table)) => {
                let unit = if table.in_khz { "kHz" } else { "Hz" };
                fact("clocks from", format!("{name}, in {unit}"));
            }
            Err(why) => fact("clocks from", format!("not told: {why}")),
        }
        if let Some(clocks) = self.clocks().filter(|clocks| !clocks.in_firmware_order()) {
            let numbers = clocks.ascending().map(|(number, _)| format!("P{number}"));
            let numbers = numbers.collect::<Vec<_>>().join(" ");
            fact("firmware's p-states by clock", numbers);
        }
        match &self.parameters {
            Ok(found) => {
                for parameter in &found.controller {
                    fact(parameter.property, parameter.text.replace('"', ""));
                }
                for (property, value) in &found.others {
                    fact(property, value.clone());
                }
                if !found.refused.is_empty() {
                    fact("not understood", found.refused.join("; "));
                }
            }
            Err(why) => fact("controller's parameters", format!("not told: {why}")),
        }
        facts
    }
}

impl crate::Telemetry for Telemetry {
    fn read(&mut self) -> Result<Counters, Error> {
        let Reading { at, residency, gpu_energy, pstate, clock, .. } = Telemetry::read(self);
        Ok(Counters { at, residency, gpu_energy, pstate, clock, ..Counters::default() })
    }
}

/// Reads what macOS tells of `id` without a device: Metal is not opened.
///
/// # Errors
/// [`Error::Silent`] elsewhere than on macOS, and for another device than `metal:0`.
pub fn watch(id: &str) -> Result<Box<dyn crate::Telemetry>, Error> {
    let silent = |why: String| Error::Silent { device: id.to_owned(), why };
    if id != super::ID {
        return Err(silent(format!("a Mac has one Apple GPU, {}", super::ID)));
    }
    Ok(Box::new(Telemetry::open().map_err(silent)?))
}

/// This Mac's chip by its device tree, each value with its origin.
///
/// # Errors
/// Says what could not be read, elsewhere than on macOS that it needs that.
pub fn chip() -> Result<everwarm_dvfs::Traced, String> {
    let telemetry = Telemetry::open()?;
    let text = telemetry.inventory().chip_file()?;
    let only_built_in = |_: &str, wanted: &str| Err(format!("`{wanted}` is no built-in chip"));
    everwarm_dvfs::Traced::from_toml("device tree", &text, &only_built_in)
        .map_err(|error| format!("the device tree's values make no chip: {error}"))
}

/// What a reader of a record should know of the instrument.
const SAMPLING: &str = "IOReport; a third-party probe saw states change by reading every 100 ms";

#[cfg(not(target_os = "macos"))]
const ELSEWHERE: &str = "needs macOS";

/// An open source of telemetry.
pub struct Telemetry {
    #[cfg(target_os = "macos")]
    reader: Result<macos::Reader, String>,
    inventory: Inventory,
    meter: Meter,
    epoch: Monotonic,
}

impl Telemetry {
    /// Opens what there is and takes the first sample. IOReport that can't be opened is no error:
    /// what it would tell is `None`, and why is a fact.
    ///
    /// # Errors
    /// Elsewhere than on macOS.
    pub fn open() -> Result<Telemetry, String> {
        #[cfg(target_os = "macos")]
        {
            let reader = macos::Reader::open();
            let first = sample(&reader);
            let inventory = Inventory::read(states_of(&first))?;
            let mut telemetry = Telemetry {
                reader,
                meter: Meter::new(inventory.clocks()),
                inventory,
                epoch: Monotonic::now(),
            };
            telemetry.read();
            Ok(telemetry)
        }
        #[cfg(not(target_os = "macos"))]
        Err(ELSEWHERE.to_owned())
    }

    /// What is known since opening; takes a sample.
    pub fn read(&mut self) -> Reading {
        #[cfg(target_os = "macos")]
        {
            let before = Monotonic::now();
            let sample = sample(&self.reader);
            // The counters were read at some time between.
            let half = Monotonic::now().since(before) / 2;
            self.meter.add(before.on_base(self.epoch) + half, sample);
        }
        self.meter.reading()
    }

    /// When the readings' instant 0 was on the shared clock.
    pub fn epoch(&self) -> Monotonic {
        self.epoch
    }

    /// The clocks of the p-states, ascending, without the off state.
    pub fn pstates(&self) -> Option<Vec<Hertz>> {
        let clocks = self.inventory.clocks()?;
        Some(clocks.ascending().map(|(_, clock)| clock).collect())
    }

    /// The firmware controller's own parameters, where the device tree could be read.
    pub fn controller_parameters(&self) -> Option<&Parameters> {
        self.inventory.parameters.as_ref().ok()
    }

    /// What was read once.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Everything as (what, value), for a record; what is not told says why.
    pub fn facts(&self) -> Vec<(String, String)> {
        let mut facts = self.inventory.facts();
        let missing = self.meter.reading().missing;
        // Without a window they are `None` by nature.
        let lasting = missing.into_iter().filter(|(field, _)| !["pstate", "clock"].contains(field));
        facts.extend(lasting.map(|(field, why)| (field.to_owned(), format!("not told: {why}"))));
        facts.push(("sampling".to_owned(), SAMPLING.to_owned()));
        facts
    }
}

/// How many p-states a sample names.
pub fn states_of(sample: &Sample) -> Option<usize> {
    let states = sample.states.as_ref().ok()?;
    let numbers = states.ticks.iter().filter_map(|(name, _)| match states::kind(name) {
        states::Kind::P(number) => Some(usize::from(number)),
        _ => None,
    });
    numbers.max()
}

#[cfg(target_os = "macos")]
fn sample(reader: &Result<macos::Reader, String>) -> Sample {
    match reader.as_ref().map(macos::Reader::sample) {
        Ok(Ok(channels)) => Sample::of(&channels),
        Ok(Err(why)) => Sample::none(&why),
        Err(why) => Sample::none(why),
    }
}
