//! What Linux' `/sys`, or any folder of its form, tells of a GPU.
//!
//! A Vulkan device is matched to its card by the numbers of its device nodes
//! (`VK_EXT_physical_device_drm`) or its place on the PCI bus (`VK_EXT_pci_bus_info`). One file here
//! is one driver's; each turns what stands there into a [`Sample`], in which what a driver can't tell
//! is `None`. Nothing is opened on the device, so reading neither wakes it nor keeps it awake.
//!
//! It does not know p-states but where a table of clocks with times comes with them; Apple's GPUs
//! under Asahi Linux, Raspberry Pi's and NVIDIA's own driver tell nothing here.

mod amdgpu;
mod devfreq;
mod hwmon;
mod intel;
mod metrics;
mod tree;

use super::loader::Place;
use crate::{Counters, Monotonic};
use everwarm_units::{Celsius, Hertz, Instant, Joules, Span, Watts};
use std::path::{Path, PathBuf};
use tree::{entries, name, text};

/// What was read at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The core's clock.
    pub clock: Option<Hertz>,
    /// The memory's clock.
    pub memory_clock: Option<Hertz>,
    /// Power of the device, as its driver averages it.
    pub power: Option<Watts>,
    /// A counter of energy from some start.
    pub energy: Option<Joules>,
    /// The temperature of the die.
    pub temperature: Option<Celsius>,
    /// What keeps the clock down.
    pub limited_by: Option<Vec<String>>,
    /// A counter of time spent off, from some start.
    pub off: Option<Span>,
    /// Counters of time at each clock, ascending.
    pub at_clocks: Option<Vec<(Hertz, Span)>>,
}

impl Sample {
    /// The same with what is missing taken from `other`.
    fn or(self, other: Sample) -> Self {
        Sample {
            clock: self.clock.or(other.clock),
            memory_clock: self.memory_clock.or(other.memory_clock),
            power: self.power.or(other.power),
            energy: self.energy.or(other.energy),
            temperature: self.temperature.or(other.temperature),
            limited_by: self.limited_by.or(other.limited_by),
            off: self.off.or(other.off),
            at_clocks: self.at_clocks.or(other.at_clocks),
        }
    }
}

/// A driver whose files are known, and where they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Amdgpu(PathBuf),
    I915(PathBuf),
    Xe(PathBuf),
    Devfreq(PathBuf),
}

impl Source {
    fn read(&self) -> Sample {
        match self {
            Source::Amdgpu(device) => amdgpu::read(device),
            Source::I915(card) => intel::i915(card),
            Source::Xe(device) => intel::xe(device),
            Source::Devfreq(folder) => devfreq::read(folder),
        }
    }
}

/// Counts what one card tells, from now on.
pub struct Sysfs {
    source: Source,
    /// Where it is read, in words.
    pub about: String,
    epoch: Monotonic,
    first: Sample,
    /// What was told last; counters never go back, whatever the driver does.
    residency: Vec<Span>,
    energy: Joules,
    read_at: Instant,
}

impl Sysfs {
    /// The card at `place`, below a root that is like `/sys`.
    ///
    /// # Errors
    /// What was looked for and not found.
    pub fn find(root: &Path, place: &Place) -> Result<Self, String> {
        let (source, about) = source(root, place)?;
        let first = source.read();
        if first == Sample::default() {
            return Err(format!("{about} tells nothing that can be read here"));
        }
        let states = first.at_clocks.as_ref().map_or(2, |clocks| clocks.len() + 1);
        Ok(Sysfs {
            source,
            about,
            epoch: Monotonic::now(),
            first,
            residency: vec![Span::ZERO; states],
            energy: Joules::ZERO,
            read_at: Instant::ZERO,
        })
    }

    /// Clocks of the p-states, ascending, where the card has a table of them.
    pub fn pstates(&self) -> Option<Vec<Hertz>> {
        let clocks = self.first.at_clocks.as_ref()?;
        Some(clocks.iter().map(|(clock, _)| *clock).collect())
    }

    /// Counters since it was found, for a caller to whom it is `at`.
    pub fn counters(&mut self, at: Instant) -> Counters {
        let sample = self.source.read();
        let now = Monotonic::now().on_base(self.epoch);
        let passed = now.since(self.read_at);
        self.read_at = now;
        if let (Some(first), Some(now)) = (self.first.energy, sample.energy) {
            let gained = now - first;
            if gained.as_j() > self.energy.as_j() {
                self.energy = gained;
            }
        }
        let residency = self.residency(&sample, passed);
        Counters {
            at,
            residency,
            gpu_energy: self.first.energy.map(|_| self.energy),
            clock: sample.clock,
            memory_clock: sample.memory_clock,
            power: sample.power,
            temperature: sample.temperature,
            limited_by: sample.limited_by,
            ..Counters::default()
        }
    }

    /// Time off and in each p-state (or just on), which sum to wall time: `passed` is shared out to
    /// those whose counters have gained on what was told of them, the rest is off.
    fn residency(&mut self, sample: &Sample, passed: Span) -> Option<Vec<Span>> {
        let gained =
            |now: Span, first: Span, told: Span| now.saturating_sub(first).saturating_sub(told);
        let mut left = passed;
        if let (Some(first), Some(now)) = (&self.first.at_clocks, &sample.at_clocks) {
            for (n, (clock, first)) in first.iter().enumerate() {
                let now = now.iter().find(|(c, _)| c == clock).map_or(*first, |(_, now)| *now);
                let share = gained(now, *first, self.residency[n + 1]).min(left);
                self.residency[n + 1] += share;
                left = left.saturating_sub(share);
            }
            self.residency[0] += left;
        } else if let (Some(first), Some(now)) = (self.first.off, sample.off) {
            let share = gained(now, first, self.residency[0]).min(left);
            self.residency[0] += share;
            self.residency[1] += left.saturating_sub(share);
        } else {
            return None;
        }
        Some(self.residency.clone())
    }
}

/// Where the card at `place` tells of itself, and what to call that.
fn source(root: &Path, place: &Place) -> Result<(Source, String), String> {
    let Some(card) = card(root, place) else {
        // Makers' own drivers of phones say nothing of their place.
        let folder = (*place == Place::default()).then(|| devfreq::only_gpu(root)).flatten();
        let folder = folder.ok_or_else(|| nothing(root, place))?;
        let about = format!("devfreq at {}", folder.display());
        return Ok((Source::Devfreq(folder), about));
    };
    let device = card.join("device");
    let driver = driver(&device).unwrap_or_else(|| "an unknown driver".to_owned());
    let about = format!("{driver} at {}", card.display());
    let source = match driver.as_str() {
        "amdgpu" => Some(Source::Amdgpu(device)),
        "i915" => Some(Source::I915(card)),
        "xe" => Some(Source::Xe(device)),
        _ => {
            let own = devfreq::folder_of(&device);
            // Of an msm display the GPU is another device.
            own.or_else(|| devfreq::only_gpu(root)).map(Source::Devfreq)
        }
    };
    source.map(|source| (source, about.clone())).ok_or(format!("{about} is none that is known"))
}

fn nothing(root: &Path, place: &Place) -> String {
    let drm = root.join("class/drm");
    let looked = match (place.render.or(place.primary), place.pci) {
        (Some((major, minor)), _) => format!("node {major}:{minor}"),
        (None, Some(address)) => format!("PCI {}", slot(address)),
        (None, None) => "its place, which its driver does not tell".to_owned(),
    };
    format!("no card for {looked} below {}", drm.display())
}

/// The folder `card*` of the device at `place`.
fn card(root: &Path, place: &Place) -> Option<PathBuf> {
    let nodes = entries(&root.join("class/drm"), "");
    let of_node = |path: &&PathBuf| {
        let node = text(&path.join("dev")).and_then(|text| {
            let (major, minor) = text.split_once(':')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        node.is_some() && (node == place.primary || node == place.render)
    };
    let of_slot = |path: &&PathBuf| {
        let wanted = place.pci.map(slot);
        wanted.is_some() && uevent(&path.join("device"), "PCI_SLOT_NAME") == wanted
    };
    let found = nodes.iter().find(of_node).or_else(|| nodes.iter().find(of_slot))?;
    if is_card(found) {
        return Some(found.clone());
    }
    // A render node: its device names the card.
    let beside =
        entries(&found.join("device/drm"), "card").into_iter().find(|path| is_card(path))?;
    nodes.into_iter().find(|path| name(path) == name(&beside))
}

/// `card0`, but not its output `card0-HDMI-A-1`.
fn is_card(path: &Path) -> bool {
    let name = name(path);
    name.strip_prefix("card")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// A PCI address as the kernel writes it.
pub fn slot([domain, bus, device, function]: [u32; 4]) -> String {
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}

fn driver(device: &Path) -> Option<String> {
    let linked = std::fs::read_link(device.join("driver")).ok();
    uevent(device, "DRIVER").or_else(|| linked.map(|path| name(&path)))
}

/// A value of a device's `uevent`.
fn uevent(device: &Path, key: &str) -> Option<String> {
    let text = text(&device.join("uevent"))?;
    let value = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.trim().to_owned());
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests;
