//! The bare driver call, to hold the Vulkan backend against: how long `vkQueueSubmit` takes for a
//! command buffer that was written before and does nothing, one at a time and 16 at once.

use ash::vk;
use std::time::Instant;

const BUFFERS: usize = 16;
const ROUNDS: usize = 2_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    // SAFETY: one thread; what is made lives until the end of the process, and each handle is used
    // as the standard says: recorded once, waited for before it is submitted again.
    unsafe { measure() }
}

/// # Safety
/// To be called once.
unsafe fn measure() -> Outcome<()> {
    // SAFETY: see `main`.
    unsafe {
        let entry = ash::Entry::load()?;
        let about = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_1);
        let info = vk::InstanceCreateInfo::default().application_info(&about);
        let instance = entry.create_instance(&info, None)?;
        let physical = instance.enumerate_physical_devices()?[0];
        let families = instance.get_physical_device_queue_family_properties(physical);
        let computes =
            |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::COMPUTE);
        let draws =
            |f: &vk::QueueFamilyProperties| f.queue_flags.contains(vk::QueueFlags::GRAPHICS);
        let all = families.iter().enumerate().filter(|(_, f)| computes(f));
        let family = all.min_by_key(|(_, f)| draws(f)).ok_or("no compute")?.0 as u32;
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(family)
            .queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        let device = instance.create_device(physical, &info, None)?;
        let queue = device.get_device_queue(family, 0);
        let info = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        let pool = device.create_command_pool(&info, None)?;
        let info = vk::CommandBufferAllocateInfo::default()
            .command_pool(pool)
            .command_buffer_count(BUFFERS as u32);
        let buffers = device.allocate_command_buffers(&info)?;
        let mut fences = Vec::new();
        for buffer in &buffers {
            device.begin_command_buffer(*buffer, &vk::CommandBufferBeginInfo::default())?;
            device.end_command_buffer(*buffer)?;
            fences.push(device.create_fence(&vk::FenceCreateInfo::default(), None)?);
        }
        for (at_once, with_fence) in [(1, true), (BUFFERS, true), (BUFFERS, false)] {
            let mut calls = Vec::new();
            for _ in 0..ROUNDS {
                for n in 0..at_once {
                    let commands = [buffers[n]];
                    let batch = [vk::SubmitInfo::default().command_buffers(&commands)];
                    let fence = if with_fence { fences[n] } else { vk::Fence::null() };
                    let before = Instant::now();
                    device.queue_submit(queue, &batch, fence)?;
                    calls.push(before.elapsed().as_nanos() as f64 / 1e3);
                }
                match with_fence {
                    true => {
                        device.wait_for_fences(&fences[..at_once], true, u64::MAX)?;
                        device.reset_fences(&fences[..at_once])?;
                    }
                    false => device.queue_wait_idle(queue)?,
                }
            }
            calls.sort_by(f64::total_cmp);
            let at = |share: f64| calls[((calls.len() - 1) as f64 * share) as usize];
            println!(
                "vkQueueSubmit, {at_once:2} at once, fence {with_fence}: p50 {:.2} us, p99 {:.2} us, most {:.2} us",
                at(0.5),
                at(0.99),
                at(1.0)
            );
        }
    }
    Ok(())
}
