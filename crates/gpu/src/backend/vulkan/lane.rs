//! One queue of a handle: a ring of command buffers that are written once and submitted often.
//!
//! A device may offer fewer queues than its user wants. Several lanes then share one, and their
//! buffers run one after the other in the order of their commits, which keeps the order of each lane.
//! Within a real queue every buffer begins with a barrier against all that came before: Vulkan by
//! itself only promises that buffers *begin* in order.

use super::context::{Buffer, Context};
use super::kernels::{Kernels, Set};
use super::plan::{Ordered, Step};
use crate::Ticket;
use ash::vk;
use everwarm_units::Instant;
use everwarm_workload::Kernel;
use std::collections::VecDeque;
use std::sync::Arc;

/// Command buffers that may be in flight in one lane. Source: what Metal allows by default.
pub const IN_FLIGHT_MAX: usize = 64;

/// Words of the stamps of one buffer: begin and end; cycles and time, two words each.
const STAMPS: usize = 8;

/// A queue.
pub struct Lane {
    /// The real queue, and its number.
    pub queue: vk::Queue,
    pub real: usize,
    pub slots: Vec<Slot>,
    /// Slots in flight, the oldest first.
    pub flying: VecDeque<usize>,
    /// When the last buffer that landed had ended.
    pub ended: Instant,
    /// Slots not in flight, the one that was used longest ago first.
    free: VecDeque<usize>,
    commands: vk::CommandPool,
    queries: vk::QueryPool,
    stamps: Buffer,
    /// Bindings of a chain.
    set: Set,
    context: Arc<Context>,
}

/// A command buffer and what it is used for at the moment.
pub struct Slot {
    pub commands: vk::CommandBuffer,
    pub fence: vk::Fence,
    pub ticket: Ticket,
    pub committed: Instant,
    /// True if its kernel counts cycles.
    pub counts: bool,
    /// What stands in it, if the same can be submitted again.
    recorded: Option<Kernel>,
}

/// What the GPU wrote about one buffer. Unit: ticks of the GPU's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    pub start: u64,
    pub end: u64,
}

/// What the clocks of a core said before and after a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreStamps {
    /// Unit: cycles of the core.
    pub cycles: [u64; 2],
    /// Unit: ticks of the timer that shaders see.
    pub time: [u64; 2],
}

impl Lane {
    /// A lane on the real queue of that number, whose kernels write to `results`.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(
        context: &Arc<Context>,
        kernels: &Kernels,
        real: usize,
        results: &Buffer,
    ) -> Result<Self, vk::Result> {
        let stamps = Buffer::on_host(context, (IN_FLIGHT_MAX * STAMPS * 4) as u64)?;
        let set = kernels.set(&[(0, results), (1, &stamps)])?;
        let mut lane = Lane {
            queue: context.queues[real],
            real,
            slots: Vec::with_capacity(IN_FLIGHT_MAX),
            flying: VecDeque::with_capacity(IN_FLIGHT_MAX),
            ended: Instant::ZERO,
            free: (0..IN_FLIGHT_MAX).collect(),
            commands: vk::CommandPool::null(),
            queries: vk::QueryPool::null(),
            stamps,
            set,
            context: Arc::clone(context),
        };
        lane.fill()?;
        Ok(lane)
    }

    fn fill(&mut self) -> Result<(), vk::Result> {
        let device = &self.context.device;
        let pool = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(self.context.family.index);
        let queries = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(2 * IN_FLIGHT_MAX as u32);
        // SAFETY: plain creations; what was made is destroyed by drop, also if a later one fails.
        unsafe {
            self.commands = device.create_command_pool(&pool, None)?;
            self.queries = device.create_query_pool(&queries, None)?;
            if self.context.card.extras.host_reset {
                device.reset_query_pool(self.queries, 0, 2 * IN_FLIGHT_MAX as u32);
            }
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(self.commands)
                .command_buffer_count(IN_FLIGHT_MAX as u32);
            for commands in device.allocate_command_buffers(&info)? {
                let fence = device.create_fence(&vk::FenceCreateInfo::default(), None)?;
                self.slots.push(Slot {
                    commands,
                    fence,
                    ticket: Ticket(0),
                    committed: Instant::ZERO,
                    counts: false,
                    recorded: None,
                });
            }
        }
        Ok(())
    }

    /// A free slot: one in which the kernel stands already, if there is one (then true), else the
    /// one that was used longest ago.
    pub fn take(&mut self, kernel: &Kernel) -> Option<(usize, bool)> {
        let ready = self.free.iter().rposition(|slot| self.slots[*slot].recorded == Some(*kernel));
        match ready {
            Some(at) => self.free.remove(at).map(|slot| (slot, true)),
            None => self.free.pop_front().map(|slot| (slot, false)),
        }
    }

    /// Gives back a slot that is not in flight.
    pub fn give_back(&mut self, slot: usize) {
        self.free.push_back(slot);
    }

    /// Writes a kernel's dispatches into a slot. `set_of` knows the bindings of reads and products.
    ///
    /// # Errors
    /// The driver's.
    pub fn record(
        &mut self,
        slot: usize,
        kernel: &Kernel,
        steps: &[Ordered],
        kernels: &Kernels,
        set_of: impl Fn(&Step) -> Option<Set>,
    ) -> Result<(), vk::Result> {
        let first = 2 * slot as u32;
        let to = self.slots[slot].commands;
        self.slots[slot].recorded = None;
        let chains = steps.iter().any(|(step, _)| matches!(step, Step::Chain { .. }));
        self.slots[slot].counts = chains && self.context.card.extras.core_cycles;
        // SAFETY: the slot is not in flight, and all that is named here belongs to this handle.
        unsafe {
            let device = &self.context.device;
            device.begin_command_buffer(to, &vk::CommandBufferBeginInfo::default())?;
            if !self.context.card.extras.host_reset {
                device.cmd_reset_query_pool(to, self.queries, first, 2);
            }
            // Kernels begin after those of the buffers before have ended. Nothing of what those
            // wrote is read, so no cache has to be emptied, which would take the GPU its time.
            self.barrier(to, &[]);
            // Of the end of everything before: a stamp of the top of the pipe could be taken while
            // the buffer before this one still runs.
            device.cmd_write_timestamp(to, BOTTOM, self.queries, first);
            for (at, (step, waits)) in steps.iter().enumerate() {
                if *waits && at > 0 {
                    self.barrier(to, &[written()]);
                }
                let set = match step {
                    Step::Empty => None,
                    Step::Chain { .. } => Some(self.set),
                    Step::Read { .. } | Step::Product { .. } => set_of(step),
                };
                kernels.dispatch(to, step, set, slot as u32);
            }
            device.cmd_write_timestamp(to, BOTTOM, self.queries, first + 1);
            if self.slots[slot].counts {
                self.show_host(to);
            }
            device.end_command_buffer(to)?;
        }
        // A read goes on where the last one ended, so it is written anew each time.
        let again = !steps.iter().any(|(step, _)| matches!(step, Step::Read { .. }));
        self.slots[slot].recorded = again.then_some(*kernel);
        Ok(())
    }

    /// No kernel after it begins before all that came earlier have ended.
    fn barrier(&self, to: vk::CommandBuffer, memory: &[vk::MemoryBarrier<'_>]) {
        let kernels = vk::PipelineStageFlags::COMPUTE_SHADER;
        let none = vk::DependencyFlags::empty();
        // SAFETY: the command buffer is being recorded.
        unsafe {
            let device = &self.context.device;
            device.cmd_pipeline_barrier(to, kernels, kernels, none, memory, &[], &[]);
        }
    }

    /// Lets the host see what shaders have written.
    fn show_host(&self, to: vk::CommandBuffer) {
        let written = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::SHADER_WRITE)
            .dst_access_mask(vk::AccessFlags::HOST_READ)];
        let (shader, host) = (vk::PipelineStageFlags::COMPUTE_SHADER, vk::PipelineStageFlags::HOST);
        let none = vk::DependencyFlags::empty();
        // SAFETY: as above.
        unsafe {
            self.context.device.cmd_pipeline_barrier(to, shader, host, none, &written, &[], &[]);
        }
    }

    /// Sends a slot to the GPU.
    ///
    /// # Errors
    /// The driver's; the slot is free again then.
    pub fn submit(&mut self, slot: usize) -> Result<(), vk::Result> {
        let commands = [self.slots[slot].commands];
        let batch = [vk::SubmitInfo::default().command_buffers(&commands)];
        // SAFETY: the buffer is recorded and not in flight, its fence is not signalled, and the
        // queue is used by this thread only.
        let sent =
            unsafe { self.context.device.queue_submit(self.queue, &batch, self.slots[slot].fence) };
        match sent {
            Ok(()) => self.flying.push_back(slot),
            Err(_) => self.free.push_back(slot),
        }
        sent
    }

    /// Whether the oldest buffer in flight has ended.
    ///
    /// # Errors
    /// The driver's; mostly that the device is lost.
    pub fn has_landed(&self) -> Result<bool, vk::Result> {
        match self.flying.front() {
            // SAFETY: the fence was submitted with the buffer.
            Some(slot) => unsafe { self.context.device.get_fence_status(self.slots[*slot].fence) },
            None => Ok(false),
        }
    }

    /// The oldest buffer in flight, which has ended: what the GPU wrote of it. It stays in flight until
    /// [`Lane::reset`].
    ///
    /// # Errors
    /// The driver's.
    pub fn land(&self) -> Result<(usize, Stamps), vk::Result> {
        let slot = *self.flying.front().expect("one has landed");
        let mut ticks = [0u64; 2];
        // The fence was signalled, so that this does not wait; a driver that is late with its own
        // results is waited for.
        let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
        // SAFETY: both queries were written by the buffer that ended.
        unsafe {
            self.context.device.get_query_pool_results(
                self.queries,
                2 * slot as u32,
                &mut ticks,
                flags,
            )?;
        }
        Ok((slot, Stamps { start: ticks[0], end: ticks[1] }))
    }

    /// What the core's clocks said, if the slot's kernel counts and the pipeline was built for it.
    pub fn core_stamps(&self, slot: usize) -> CoreStamps {
        let words = self.stamps.read::<STAMPS>(slot * STAMPS);
        let long = |at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
        CoreStamps { cycles: [long(0), long(4)], time: [long(2), long(6)] }
    }

    /// Makes the slot that has landed ready for another commit.
    ///
    /// # Errors
    /// The driver's; it is as if it had not been tried then.
    pub fn reset(&mut self, slot: usize) -> Result<(), vk::Result> {
        // SAFETY: the buffer has ended, and its results were read.
        unsafe {
            self.context.device.reset_fences(&[self.slots[slot].fence])?;
            if self.context.card.extras.host_reset {
                self.context.device.reset_query_pool(self.queries, 2 * slot as u32, 2);
            }
        }
        let landed = self.flying.pop_front();
        debug_assert_eq!(landed, Some(slot), "buffers land in order");
        self.free.push_back(slot);
        Ok(())
    }
}

/// What kernels have written can be read and written over by those after the barrier.
fn written() -> vk::MemoryBarrier<'static> {
    vk::MemoryBarrier::default()
        .src_access_mask(vk::AccessFlags::SHADER_WRITE)
        .dst_access_mask(vk::AccessFlags::SHADER_READ | vk::AccessFlags::SHADER_WRITE)
}

/// The end of all work before.
const BOTTOM: vk::PipelineStageFlags = vk::PipelineStageFlags::BOTTOM_OF_PIPE;

impl Drop for Lane {
    fn drop(&mut self) {
        // SAFETY: the handle has waited until nothing is in flight. Null is allowed.
        unsafe {
            for slot in &self.slots {
                self.context.device.destroy_fence(slot.fence, None);
            }
            self.context.device.destroy_query_pool(self.queries, None);
            self.context.device.destroy_command_pool(self.commands, None);
        }
    }
}
