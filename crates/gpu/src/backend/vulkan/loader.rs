//! The Vulkan loader, its instance, and the devices it knows.
//!
//! The library is opened when it is wanted and never linked, so that one binary starts anywhere. What
//! was opened stays for the life of the process: NVIDIA's driver can be loaded some ten times and then
//! no more (it was seen with 580 on an H200; unloading gives back no thread-local memory). An
//! instance by itself left that GPU in its idle state.

use super::telemetry::NVIDIA;
use ash::vk;
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

/// The oldest version of the interface that will do: 1.1 tells a driver's extensions apart.
const VERSION_MIN: u32 = vk::API_VERSION_1_1;

/// The newest version whose functions are called.
const VERSION_USED: u32 = vk::API_VERSION_1_2;

/// More queues than this are shared: each is a channel that the driver has to set up.
const QUEUES_MAX: u32 = 8;

/// The one of this process.
static OPENED: Mutex<Option<&'static Vulkan>> = Mutex::new(None);

/// An instance, and the library it came from.
pub struct Vulkan {
    pub instance: ash::Instance,
    entry: ash::Entry,
}

impl Vulkan {
    /// The library and its instance, opened by whoever comes first.
    ///
    /// # Errors
    /// What is missing, to be shown to a user; it is tried again the next time.
    pub fn load() -> Result<&'static Self, String> {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.is_none() {
            *opened = Some(Box::leak(Box::new(Self::open()?)));
        }
        Ok(opened.expect("was just opened"))
    }

    fn open() -> Result<Self, String> {
        // SAFETY: the loader's initialisers are those that any Vulkan program runs.
        let entry = unsafe { ash::Entry::load() };
        let entry = entry.map_err(|error| format!("no Vulkan: {error}"))?;
        let instance = Self::instance(&entry).map_err(|result| match result {
            vk::Result::ERROR_INCOMPATIBLE_DRIVER => {
                "no Vulkan: its loader is there and found no driver".to_owned()
            }
            other => format!("no Vulkan: no instance can be made ({other:?})"),
        })?;
        Ok(Vulkan { instance, entry })
    }

    fn instance(entry: &ash::Entry) -> Result<ash::Instance, vk::Result> {
        // SAFETY: plain questions to the loader.
        let (version, offered) = unsafe {
            let version = entry.try_enumerate_instance_version()?;
            (version, entry.enumerate_instance_extension_properties(None)?)
        };
        let version = version.unwrap_or(vk::API_VERSION_1_0);
        if version < VERSION_MIN {
            return Err(vk::Result::ERROR_INCOMPATIBLE_DRIVER);
        }
        let about =
            vk::ApplicationInfo::default().application_name(c"everwarm").api_version(VERSION_USED);
        let mut info = vk::InstanceCreateInfo::default().application_info(&about);
        // A driver that is a layer over another interface (MoltenVK) is only shown on request.
        let portability = [ash::khr::portability_enumeration::NAME.as_ptr()];
        if has(&offered, ash::khr::portability_enumeration::NAME) {
            info = info
                .flags(vk::InstanceCreateFlags::ENUMERATE_PORTABILITY_KHR)
                .enabled_extension_names(&portability);
        }
        // SAFETY: `info` and what it points to live until the call returns.
        unsafe { entry.create_instance(&info, None) }
    }

    /// The devices, in the loader's order.
    ///
    /// # Errors
    /// Why there are none.
    pub fn cards(&self) -> Result<Vec<Card>, String> {
        // SAFETY: the instance is alive.
        let physical = unsafe { self.instance.enumerate_physical_devices() };
        let physical = physical.map_err(|result| format!("no Vulkan: no devices ({result:?})"))?;
        if physical.is_empty() {
            return Err("no Vulkan: its drivers found no device".to_owned());
        }
        Ok(physical.into_iter().map(|device| Card::new(self, device)).collect())
    }

    /// The clocks that can be read beside the timer of `card`, which has calibrated timestamps.
    pub fn time_domains(&self, card: vk::PhysicalDevice) -> Vec<vk::TimeDomainEXT> {
        let clocks = ash::ext::calibrated_timestamps::Instance::new(&self.entry, &self.instance);
        // SAFETY: the card belongs to the instance and has the extension.
        unsafe { clocks.get_physical_device_calibrateable_time_domains(card) }.unwrap_or_default()
    }
}

/// A physical device, as far as it matters here.
#[derive(Clone)]
pub struct Card {
    pub physical: vk::PhysicalDevice,
    /// The driver's name of it; says so if it is no hardware.
    pub name: String,
    /// True for a driver that computes on the CPU.
    pub software: bool,
    /// The maker's number on the PCI bus.
    pub vendor: u32,
    /// Names the device and driver among all of this machine.
    pub uuid: [u8; 16],
    /// Driver and its version, in words.
    pub driver: String,
    pub limits: vk::PhysicalDeviceLimits,
    pub memory: vk::PhysicalDeviceMemoryProperties,
    /// Longest allocation. Unit: B.
    pub allocation_max: u64,
    /// The queues to use, or why none will do.
    pub family: Result<Family, String>,
    pub extras: Extras,
    /// Where it is plugged in, for those who look for it elsewhere.
    pub place: Place,
}

/// A family of queues.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub index: u32,
    /// Queues that are opened.
    pub queues: u32,
    /// Bits of a timestamp that count.
    pub bits: u32,
}

/// What not every driver has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Queries can be reset by the host.
    pub host_reset: bool,
    /// The GPU's timer can be read beside `CLOCK_MONOTONIC`.
    pub calibrated: bool,
    /// Shaders can read a counter of their core's cycles, and a timer.
    pub core_cycles: bool,
    /// The driver is a layer over another interface and has to be told that this is known.
    pub portability: bool,
}

/// Where a device is plugged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Domain, bus, device, function.
    pub pci: Option<[u32; 4]>,
    /// Major and minor number of its render node.
    pub render: Option<(u32, u32)>,
    /// Major and minor number of its primary node.
    pub primary: Option<(u32, u32)>,
}

impl Card {
    fn new(vulkan: &Vulkan, physical: vk::PhysicalDevice) -> Self {
        let instance = &vulkan.instance;
        // SAFETY: the device belongs to the instance, which is alive.
        let (offered, basic, memory) = unsafe {
            (
                instance.enumerate_device_extension_properties(physical).unwrap_or_default(),
                instance.get_physical_device_properties(physical),
                instance.get_physical_device_memory_properties(physical),
            )
        };
        let software = basic.device_type == vk::PhysicalDeviceType::CPU;
        let told = basic.device_name_as_c_str().unwrap_or(c"?").to_string_lossy();
        let mut card = Card {
            physical,
            name: if software { format!("{told} (software)") } else { told.into_owned() },
            software,
            vendor: basic.vendor_id,
            uuid: basic.pipeline_cache_uuid,
            driver: "unknown".to_owned(),
            limits: basic.limits,
            memory,
            allocation_max: u64::MAX,
            family: family(instance, physical),
            extras: Extras::default(),
            place: Place::default(),
        };
        if basic.api_version < VERSION_MIN {
            card.family = Err("its driver knows Vulkan 1.0 only, 1.1 is needed".to_owned());
            return card;
        }
        card.ask_properties(vulkan, &offered, basic.api_version);
        card.ask_features(vulkan, &offered, &basic);
        card
    }

    fn ask_properties(&mut self, vulkan: &Vulkan, offered: &[vk::ExtensionProperties], api: u32) {
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut ids = vk::PhysicalDeviceIDProperties::default();
        let mut most = vk::PhysicalDeviceMaintenance3Properties::default();
        let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
        let mut drm = vk::PhysicalDeviceDrmPropertiesEXT::default();
        let has_driver =
            api >= vk::API_VERSION_1_2 || has(offered, ash::khr::driver_properties::NAME);
        let has_pci = has(offered, ash::ext::pci_bus_info::NAME);
        let has_drm = has(offered, ash::ext::physical_device_drm::NAME);
        let mut all =
            vk::PhysicalDeviceProperties2::default().push_next(&mut ids).push_next(&mut most);
        if has_driver {
            all = all.push_next(&mut driver);
        }
        if has_pci {
            all = all.push_next(&mut pci);
        }
        if has_drm {
            all = all.push_next(&mut drm);
        }
        // SAFETY: every structure of the chain is one that this device knows, and outlives the call.
        unsafe { vulkan.instance.get_physical_device_properties2(self.physical, &mut all) };
        self.uuid = ids.device_uuid;
        self.allocation_max = most.max_memory_allocation_size;
        if has_driver {
            let text = |t: Result<&CStr, _>| t.unwrap_or(c"").to_string_lossy().into_owned();
            let (name, info) =
                (text(driver.driver_name_as_c_str()), text(driver.driver_info_as_c_str()));
            self.driver = format!("{name} {info}").trim().to_owned();
        }
        let node = |has: vk::Bool32, major: i64, minor: i64| {
            (has == vk::TRUE).then_some((major as u32, minor as u32))
        };
        self.place = Place {
            pci: has_pci.then_some([pci.pci_domain, pci.pci_bus, pci.pci_device, pci.pci_function]),
            render: node(drm.has_render, drm.render_major, drm.render_minor),
            primary: node(drm.has_primary, drm.primary_major, drm.primary_minor),
        };
    }

    fn ask_features(
        &mut self,
        vulkan: &Vulkan,
        offered: &[vk::ExtensionProperties],
        basic: &vk::PhysicalDeviceProperties,
    ) {
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default();
        let mut clock = vk::PhysicalDeviceShaderClockFeaturesKHR::default();
        let has_clock = has(offered, ash::khr::shader_clock::NAME);
        let mut all = vk::PhysicalDeviceFeatures2::default();
        if basic.api_version >= vk::API_VERSION_1_2 {
            all = all.push_next(&mut reset);
        }
        if has_clock {
            all = all.push_next(&mut clock);
        }
        // SAFETY: as above.
        unsafe { vulkan.instance.get_physical_device_features2(self.physical, &mut all) };
        let both = clock.shader_subgroup_clock & clock.shader_device_clock == vk::TRUE;
        self.extras = Extras {
            host_reset: reset.host_query_reset == vk::TRUE,
            calibrated: has(offered, ash::ext::calibrated_timestamps::NAME),
            // The standard does not say what a "subgroup clock" counts. On NVIDIA's it is cycles of
            // the core; elsewhere that is not known, or known to be a timer of constant speed.
            core_cycles: both && basic.vendor_id == NVIDIA,
            portability: has(offered, ash::khr::portability_subset::NAME),
        };
    }

    /// Size of the largest heap of the device's own memory. Unit: B.
    pub fn heap(&self) -> u64 {
        let heaps = self.memory.memory_heaps_as_slice().iter();
        let own = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        own.map(|heap| heap.size).max().unwrap_or(0)
    }

    /// Largest buffer that a shader can see. Unit: B.
    pub fn buffer_max(&self) -> u64 {
        u64::from(self.limits.max_storage_buffer_range).min(self.allocation_max)
    }
}

/// The family with compute and timestamps that does the least besides.
fn family(instance: &ash::Instance, physical: vk::PhysicalDevice) -> Result<Family, String> {
    // SAFETY: the device belongs to the instance, which is alive.
    let families = unsafe { instance.get_physical_device_queue_family_properties(physical) };
    let computes = |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::COMPUTE);
    if !families.iter().any(computes) {
        return Err("it has no queues for compute".to_owned());
    }
    let all = families.iter().enumerate();
    let timed = all.filter(|(_, f)| computes(f) && f.timestamp_valid_bits > 0);
    let draws = |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::GRAPHICS);
    let (index, family) = timed
        .min_by_key(|(_, f)| draws(f))
        .ok_or("its queues for compute have no timestamps, so nothing could be measured")?;
    Ok(Family {
        index: index as u32,
        queues: family.queue_count.min(QUEUES_MAX),
        bits: family.timestamp_valid_bits,
    })
}

fn has(offered: &[vk::ExtensionProperties], name: &CStr) -> bool {
    offered.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name))
}
