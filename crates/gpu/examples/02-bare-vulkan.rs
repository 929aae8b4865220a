//! The bare driver, to hold the Vulkan backend against: how long `vkQueueSubmit` takes for a command
//! buffer that was written before, and what the GPU needs between two of them, by what is asked of
//! the driver. The buffers hold two timestamps around an empty kernel; 16 are in flight.

use ash::vk;
use std::time::Instant;

const BUFFERS: usize = 16;
const ROUNDS: usize = 400;

/// What is asked of the driver beside the kernel and the timestamps.
#[derive(Clone, Copy)]
struct Asked {
    name: &'static str,
    /// A barrier before the first timestamp, with or without memory.
    barrier: Option<bool>,
    /// A barrier towards the host at the end.
    host: bool,
    /// A fence for each buffer, else one wait for all.
    fence: bool,
    /// The first timestamp at the top of the pipe.
    top: bool,
}

const PLAIN: Asked =
    Asked { name: "nothing", barrier: None, host: false, fence: false, top: false };

const CASES: [Asked; 8] = [
    PLAIN,
    Asked { name: "nothing, first stamp at the top", top: true, ..PLAIN },
    Asked { name: "a fence", fence: true, ..PLAIN },
    Asked { name: "order", barrier: Some(false), ..PLAIN },
    Asked { name: "order and a fence", barrier: Some(false), fence: true, ..PLAIN },
    Asked { name: "order, memory", barrier: Some(true), ..PLAIN },
    Asked { name: "order, memory and a fence", barrier: Some(true), fence: true, ..PLAIN },
    Asked {
        name: "order, the host and a fence",
        barrier: Some(false),
        host: true,
        fence: true,
        top: false,
    },
];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    // SAFETY: one thread; what is made lives until the end of the process, and each handle is used
    // as the standard says: recorded once, waited for before it is submitted again.
    unsafe {
        let bare = Bare::new()?;
        println!("beside stamps and an empty kernel     call p50, p99; gap p50, p99 (us)");
        for asked in CASES {
            bare.measure(asked)?;
        }
    }
    Ok(())
}

/// A device with one queue.
struct Bare {
    _entry: ash::Entry,
    _instance: ash::Instance,
    device: ash::Device,
    queue: vk::Queue,
    pool: vk::CommandPool,
    pipeline: vk::Pipeline,
    /// Unit: ns.
    tick: f64,
}

impl Bare {
    /// # Safety
    /// To be called once.
    unsafe fn new() -> Outcome<Self> {
        // SAFETY: see `main`.
        unsafe {
            let entry = ash::Entry::load()?;
            let about = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
            let info = vk::InstanceCreateInfo::default().application_info(&about);
            let instance = entry.create_instance(&info, None)?;
            let physical = instance.enumerate_physical_devices()?[0];
            let tick = instance.get_physical_device_properties(physical).limits.timestamp_period;
            let families = instance.get_physical_device_queue_family_properties(physical);
            let has = |f: &vk::QueueFamilyProperties, flag| f.queue_flags.contains(flag);
            let all = families.iter().enumerate();
            let (family, _) = all
                .filter(|(_, f)| has(f, vk::QueueFlags::COMPUTE))
                .min_by_key(|(_, f)| has(f, vk::QueueFlags::GRAPHICS))
                .ok_or("no compute")?;
            let queues = [vk::DeviceQueueCreateInfo::default()
                .queue_family_index(family as u32)
                .queue_priorities(&[1.0])];
            let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
            let device = instance.create_device(physical, &info, None)?;
            let queue = device.get_device_queue(family as u32, 0);
            let info = vk::CommandPoolCreateInfo::default().queue_family_index(family as u32);
            let pool = device.create_command_pool(&info, None)?;
            let pipeline = Self::pipeline(&device)?;
            let tick = f64::from(tick);
            Ok(Bare { _entry: entry, _instance: instance, device, queue, pool, pipeline, tick })
        }
    }

    /// # Safety
    /// As [`Bare::new`].
    unsafe fn pipeline(device: &ash::Device) -> Outcome<vk::Pipeline> {
        let spirv = include_bytes!("../src/backend/vulkan/kernels/empty.spv");
        let words = spirv.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        let code: Vec<u32> = words.collect();
        // SAFETY: see `main`.
        unsafe {
            let info = vk::ShaderModuleCreateInfo::default().code(&code);
            let module = device.create_shader_module(&info, None)?;
            let info = vk::PipelineLayoutCreateInfo::default();
            let layout = device.create_pipeline_layout(&info, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main");
            let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(layout)];
            let made = device.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
            Ok(made.map_err(|(_, result)| result)?[0])
        }
    }

    /// # Safety
    /// As [`Bare::new`].
    unsafe fn measure(&self, asked: Asked) -> Outcome<()> {
        let device = &self.device;
        let (mut calls, mut gaps) = (Vec::new(), Vec::new());
        // SAFETY: see `main`.
        unsafe {
            let info = vk::QueryPoolCreateInfo::default()
                .query_type(vk::QueryType::TIMESTAMP)
                .query_count(2 * BUFFERS as u32);
            let queries = device.create_query_pool(&info, None)?;
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(self.pool)
                .command_buffer_count(BUFFERS as u32 + 1);
            let buffers = device.allocate_command_buffers(&info)?;
            let reset = buffers[BUFFERS];
            device.begin_command_buffer(reset, &vk::CommandBufferBeginInfo::default())?;
            device.cmd_reset_query_pool(reset, queries, 0, 2 * BUFFERS as u32);
            device.end_command_buffer(reset)?;
            let mut fences = Vec::new();
            for (n, buffer) in buffers[..BUFFERS].iter().enumerate() {
                self.record(*buffer, queries, 2 * n as u32, asked)?;
                fences.push(device.create_fence(&vk::FenceCreateInfo::default(), None)?);
            }
            let submit = |buffer, fence| {
                let commands = [buffer];
                let batch = [vk::SubmitInfo::default().command_buffers(&commands)];
                device.queue_submit(self.queue, &batch, fence)
            };
            for _ in 0..ROUNDS {
                submit(reset, vk::Fence::null())?;
                device.queue_wait_idle(self.queue)?;
                for (buffer, fence) in buffers.iter().zip(&fences) {
                    let fence = if asked.fence { *fence } else { vk::Fence::null() };
                    let before = Instant::now();
                    submit(*buffer, fence)?;
                    calls.push(before.elapsed().as_nanos() as f64 / 1e3);
                }
                device.queue_wait_idle(self.queue)?;
                if asked.fence {
                    device.wait_for_fences(&fences, true, u64::MAX)?;
                    device.reset_fences(&fences)?;
                }
                let mut stamps = [0u64; 2 * BUFFERS];
                let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
                device.get_query_pool_results(queries, 0, &mut stamps, flags)?;
                // The last half: by then the host is ahead.
                let ends = stamps[1..].iter().step_by(2).zip(stamps[2..].iter().step_by(2));
                let us =
                    |(end, start): (&u64, &u64)| (*start as f64 - *end as f64) * self.tick / 1e3;
                gaps.extend(ends.map(us).skip(BUFFERS / 2));
            }
        }
        let show = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
            format!("{:7.2} {:7.2}", at(0.5), at(0.99))
        };
        println!("{:34}  {}  {}", asked.name, show(calls), show(gaps));
        Ok(())
    }

    /// # Safety
    /// As [`Bare::new`].
    unsafe fn record(
        &self,
        to: vk::CommandBuffer,
        queries: vk::QueryPool,
        first: u32,
        asked: Asked,
    ) -> Outcome<()> {
        use vk::PipelineStageFlags as Stage;
        let (device, none) = (&self.device, vk::DependencyFlags::empty());
        let memory =
            |from, to| [vk::MemoryBarrier::default().src_access_mask(from).dst_access_mask(to)];
        // SAFETY: see `main`.
        unsafe {
            device.begin_command_buffer(to, &vk::CommandBufferBeginInfo::default())?;
            if let Some(with_memory) = asked.barrier {
                let all = memory(vk::AccessFlags::MEMORY_WRITE, vk::AccessFlags::MEMORY_READ);
                let (stage, all) = match with_memory {
                    true => (Stage::ALL_COMMANDS, &all[..]),
                    false => (Stage::COMPUTE_SHADER, &[][..]),
                };
                device.cmd_pipeline_barrier(to, stage, stage, none, all, &[], &[]);
            }
            let begin = if asked.top { Stage::TOP_OF_PIPE } else { Stage::BOTTOM_OF_PIPE };
            device.cmd_write_timestamp(to, begin, queries, first);
            device.cmd_bind_pipeline(to, vk::PipelineBindPoint::COMPUTE, self.pipeline);
            device.cmd_dispatch(to, 1, 1, 1);
            device.cmd_write_timestamp(to, Stage::BOTTOM_OF_PIPE, queries, first + 1);
            if asked.host {
                let seen = memory(vk::AccessFlags::SHADER_WRITE, vk::AccessFlags::HOST_READ);
                let (from, host) = (Stage::COMPUTE_SHADER, Stage::HOST);
                device.cmd_pipeline_barrier(to, from, host, none, &seen, &[], &[]);
            }
            device.end_command_buffer(to)?;
        }
        Ok(())
    }
}
