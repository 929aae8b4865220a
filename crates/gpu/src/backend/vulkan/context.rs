//! A logical device with its queues, and memory on it.
//!
//! What is made from a [`Context`] holds on to it and destroys itself; the device goes with the last
//! of them. Each handle of the backend has a context, hence queues, of its own: nothing of Vulkan's
//! is shared between threads, and nothing needs a lock.

use super::loader::{Card, Family, Vulkan};
use ash::vk;
use std::sync::Arc;

/// A logical device.
pub struct Context {
    pub device: ash::Device,
    pub queues: Vec<vk::Queue>,
    /// Reads the GPU's timer beside the host's clock, where the driver can.
    pub calibrated: Option<ash::ext::calibrated_timestamps::Device>,
    pub card: Card,
    pub family: Family,
}

impl Context {
    /// Opens the card.
    ///
    /// # Errors
    /// Why it can't be used, to be shown to a user.
    pub fn open(vulkan: &Vulkan, card: Card) -> Result<Arc<Self>, String> {
        let family = card.family.clone()?;
        let device = Self::device(vulkan, &card, family)
            .map_err(|result| format!("its driver can't open it ({result:?})"))?;
        // SAFETY: the family was opened with so many queues.
        let queue = |index| unsafe { device.get_device_queue(family.index, index) };
        let queues = (0..family.queues).map(queue).collect();
        let calibrated = card.extras.calibrated && monotonic(vulkan, &card);
        let calibrated = calibrated
            .then(|| ash::ext::calibrated_timestamps::Device::new(&vulkan.instance, &device));
        Ok(Arc::new(Context { device, queues, calibrated, card, family }))
    }

    fn device(vulkan: &Vulkan, card: &Card, family: Family) -> Result<ash::Device, vk::Result> {
        let priorities = vec![1.0; family.queues as usize];
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family.index)
            .queue_priorities(&priorities)];
        let wanted = [
            (card.extras.calibrated, ash::ext::calibrated_timestamps::NAME),
            (card.extras.core_cycles, ash::khr::shader_clock::NAME),
            (card.extras.portability, ash::khr::portability_subset::NAME),
        ];
        let names = wanted.iter().filter(|(there, _)| *there).map(|(_, name)| name.as_ptr());
        let names: Vec<_> = names.collect();
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default().host_query_reset(true);
        let mut clock = vk::PhysicalDeviceShaderClockFeaturesKHR::default()
            .shader_subgroup_clock(true)
            .shader_device_clock(true);
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names);
        if card.extras.host_reset {
            info = info.push_next(&mut reset);
        }
        if card.extras.core_cycles {
            info = info.push_next(&mut clock);
        }
        // SAFETY: the card belongs to the instance; it has said that it has all that is asked for.
        unsafe { vulkan.instance.create_device(card.physical, &info, None) }
    }

    /// Waits until the device has nothing left to do; a device that is lost has nothing.
    pub fn wait_idle(&self) {
        // SAFETY: queues are used by the thread that owns the handle, which is this one.
        let _ = unsafe { self.device.device_wait_idle() };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made from the device held on to this value, so it is gone.
        unsafe { self.device.destroy_device(None) };
    }
}

/// Whether the GPU's timer can be read beside `CLOCK_MONOTONIC`.
fn monotonic(vulkan: &Vulkan, card: &Card) -> bool {
    let known = vulkan.time_domains(card.physical);
    known.contains(&vk::TimeDomainEXT::DEVICE)
        && known.contains(&vk::TimeDomainEXT::CLOCK_MONOTONIC)
}

/// A buffer with memory of its own.
pub struct Buffer {
    pub raw: vk::Buffer,
    /// Unit: B.
    pub size: u64,
    memory: vk::DeviceMemory,
    mapped: Option<Mapped>,
    context: Arc<Context>,
}

/// Memory that the host sees.
struct Mapped(*mut u8);

// SAFETY: the memory belongs to the buffer, which belongs to one thread at a time.
unsafe impl Send for Mapped {}

impl Buffer {
    /// Memory on the device, for shaders and copies.
    ///
    /// # Errors
    /// The driver's; mostly that there is no memory left.
    pub fn on_device(context: &Arc<Context>, size: u64) -> Result<Self, vk::Result> {
        Self::new(context, size, vk::MemoryPropertyFlags::DEVICE_LOCAL, false)
    }

    /// Memory that the host can read at any time.
    ///
    /// # Errors
    /// As above.
    pub fn on_host(context: &Arc<Context>, size: u64) -> Result<Self, vk::Result> {
        let seen = vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        Self::new(context, size, seen, true)
    }

    fn new(
        context: &Arc<Context>,
        size: u64,
        wanted: vk::MemoryPropertyFlags,
        map: bool,
    ) -> Result<Self, vk::Result> {
        let usage = vk::BufferUsageFlags::STORAGE_BUFFER
            | vk::BufferUsageFlags::TRANSFER_SRC
            | vk::BufferUsageFlags::TRANSFER_DST;
        let info = vk::BufferCreateInfo::default().size(size).usage(usage);
        // SAFETY: a plain creation; from here on the value's own drop cleans up.
        let raw = unsafe { context.device.create_buffer(&info, None)? };
        let mut buffer = Buffer {
            raw,
            size,
            memory: vk::DeviceMemory::null(),
            mapped: None,
            context: Arc::clone(context),
        };
        // SAFETY: the buffer was just made.
        let needs = unsafe { context.device.get_buffer_memory_requirements(raw) };
        let index = memory_type(&context.card, needs.memory_type_bits, wanted)
            .ok_or(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?;
        let info =
            vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(index);
        // SAFETY: the type is one that the buffer allows, and the memory is as long as it asked.
        unsafe {
            buffer.memory = context.device.allocate_memory(&info, None)?;
            context.device.bind_buffer_memory(raw, buffer.memory, 0)?;
        }
        if map {
            let flags = vk::MemoryMapFlags::empty();
            // SAFETY: the type can be seen by the host, and the memory is not mapped yet.
            let start =
                unsafe { context.device.map_memory(buffer.memory, 0, vk::WHOLE_SIZE, flags)? };
            buffer.mapped = Some(Mapped(start.cast()));
        }
        Ok(buffer)
    }

    /// The words from `first` on, of memory that the host sees.
    ///
    /// # Panics
    /// If there are fewer, or the host does not see them.
    pub fn read<const N: usize>(&self, first: usize) -> [u32; N] {
        let Mapped(start) = self.mapped.as_ref().expect("memory on the host");
        assert!((first + N) as u64 * 4 <= self.size);
        let word = |n| {
            // SAFETY: the words lie within the mapping, which is aligned for them. The device may
            // write them meanwhile, hence volatile.
            unsafe { start.cast::<u32>().add(first + n).read_volatile() }
        };
        std::array::from_fn(word)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: its user has waited until the device no longer needs it. Freeing memory unmaps it;
        // null is allowed.
        unsafe {
            self.context.device.destroy_buffer(self.raw, None);
            self.context.device.free_memory(self.memory, None);
        }
    }
}

/// The first type of memory that has what is wanted, else (for the device's own) any at all.
fn memory_type(card: &Card, allowed: u32, wanted: vk::MemoryPropertyFlags) -> Option<u32> {
    let types = card.memory.memory_types_as_slice();
    let find = |wanted| {
        types.iter().enumerate().position(|(index, kind)| {
            allowed & (1 << index) != 0 && kind.property_flags.contains(wanted)
        })
    };
    let any = || {
        (wanted == vk::MemoryPropertyFlags::DEVICE_LOCAL)
            .then(|| find(vk::MemoryPropertyFlags::empty()))
            .flatten()
    };
    find(wanted).or_else(any).map(|index| index as u32)
}
