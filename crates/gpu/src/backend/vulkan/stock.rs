//! Memory that kernels work on: windows for reads, operands for products, results.
//!
//! It is taken when first asked for and kept. Memory that was never written may not be there at
//! all, so all of it is filled once.

use super::context::{Buffer, Context};
use super::kernels::{Kernels, Set, results};
use super::plan::{Step, stream_bytes};
use ash::vk;
use std::sync::Arc;

/// Less than this says nothing about memory on any GPU. Unit: B.
const STREAM_MIN: u64 = 16 << 20;

/// A command buffer for things that are done once and waited for.
pub struct Errand {
    pub queue: vk::Queue,
    pub commands: vk::CommandBuffer,
    pool: vk::CommandPool,
    fence: vk::Fence,
    context: Arc<Context>,
}

impl Errand {
    /// One on the first queue.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<Context>) -> Result<Self, vk::Result> {
        let mut errand = Errand {
            queue: context.queues[0],
            commands: vk::CommandBuffer::null(),
            pool: vk::CommandPool::null(),
            fence: vk::Fence::null(),
            context: Arc::clone(context),
        };
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::RESET_COMMAND_BUFFER)
            .queue_family_index(context.family.index);
        // SAFETY: plain creations; what was made is destroyed by drop, also if a later one fails.
        unsafe {
            errand.pool = context.device.create_command_pool(&info, None)?;
            let info = vk::CommandBufferAllocateInfo::default()
                .command_pool(errand.pool)
                .command_buffer_count(1);
            errand.commands = context.device.allocate_command_buffers(&info)?[0];
            errand.fence = context.device.create_fence(&vk::FenceCreateInfo::default(), None)?;
        }
        Ok(errand)
    }

    /// Does what `write` puts into the command buffer, and returns when it is done.
    ///
    /// # Errors
    /// The driver's.
    pub fn run(&mut self, write: impl FnOnce(vk::CommandBuffer)) -> Result<(), vk::Result> {
        let device = &self.context.device;
        // SAFETY: the last errand has ended, as each is waited for.
        unsafe {
            device.begin_command_buffer(self.commands, &vk::CommandBufferBeginInfo::default())?;
            write(self.commands);
            // Whatever comes later sees it.
            let seen = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
                .dst_access_mask(vk::AccessFlags::MEMORY_READ | vk::AccessFlags::MEMORY_WRITE)];
            let (all, none) = (vk::PipelineStageFlags::ALL_COMMANDS, vk::DependencyFlags::empty());
            device.cmd_pipeline_barrier(self.commands, all, all, none, &seen, &[], &[]);
            device.end_command_buffer(self.commands)?;
        }
        let commands = [self.commands];
        let batch = [vk::SubmitInfo::default().command_buffers(&commands)];
        // SAFETY: as above; the fence is not signalled.
        unsafe {
            device.queue_submit(self.queue, &batch, self.fence)?;
            device.wait_for_fences(&[self.fence], true, u64::MAX)?;
            device.reset_fences(&[self.fence])
        }
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        // SAFETY: errands are waited for. Null is allowed.
        unsafe {
            self.context.device.destroy_fence(self.fence, None);
            self.context.device.destroy_command_pool(self.pool, None);
        }
    }
}

/// Why there is no memory for a kernel.
pub enum Shortage {
    /// The device could never have it.
    Never(String),
    /// It is taken.
    Now(String),
    /// Something else failed.
    Driver(vk::Result),
}

/// The memory of one handle.
pub struct Stock {
    /// Shape: one for each real queue, so that queues don't write over each other's.
    pub results: Vec<Buffer>,
    windows: Vec<Window>,
    products: Vec<Operands>,
    errand: Errand,
    context: Arc<Context>,
}

/// Memory to read.
struct Window {
    buffer: Buffer,
    /// Shape: one for each real queue.
    sets: Vec<Set>,
}

/// Three matrices of up to `n` rows and columns.
struct Operands {
    n: u32,
    set: Set,
    /// Both operands and the product; the set alone does not keep them.
    #[cfg_attr(not(test), expect(dead_code))]
    buffers: [Buffer; 3],
}

impl Stock {
    /// Nothing but places for results.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<Context>) -> Result<Self, vk::Result> {
        let results = |_: &vk::Queue| Buffer::on_device(context, results::SIZE);
        let mut stock = Stock {
            results: context.queues.iter().map(results).collect::<Result<_, _>>()?,
            windows: Vec::new(),
            products: Vec::new(),
            errand: Errand::new(context)?,
            context: Arc::clone(context),
        };
        let (device, buffers) = (&context.device, &stock.results);
        stock.errand.run(|to| {
            for buffer in buffers {
                // SAFETY: the buffer lives as long as the handle.
                unsafe { device.cmd_fill_buffer(to, buffer.raw, 0, vk::WHOLE_SIZE, 0) };
            }
        })?;
        Ok(stock)
    }

    /// Takes the memory that reads go over, if it is not there yet. Shape: words of 16 bytes in
    /// each window.
    ///
    /// # Errors
    /// What there is too little of.
    pub fn windows(&mut self, kernels: &Kernels) -> Result<Vec<u32>, Shortage> {
        if self.windows.is_empty() {
            let mut bytes = stream_bytes(&self.context.card);
            while let Err(result) = self.take_windows(kernels, bytes) {
                self.windows.clear();
                bytes /= 2;
                if !is_out_of_memory(result) {
                    return Err(Shortage::Driver(result));
                }
                if bytes < STREAM_MIN {
                    let least = STREAM_MIN >> 20;
                    let what = format!("a streaming read, which needs {least} MiB ({result:?})");
                    return Err(Shortage::Now(what));
                }
            }
        }
        Ok(self.windows.iter().map(|window| (window.buffer.size / 16) as u32).collect())
    }

    fn take_windows(&mut self, kernels: &Kernels, bytes: u64) -> Result<(), vk::Result> {
        let most = self.context.card.buffer_max() / 256 * 256;
        let mut left = bytes / 256 * 256;
        while left > 0 {
            let size = left.min(most);
            let buffer = Buffer::on_device(&self.context, size)?;
            self.fill(kernels, &buffer, self.windows.len() as u32)?;
            let set = |results| kernels.set(&[(0, results), (1, &buffer)]);
            let sets = self.results.iter().map(set).collect::<Result<_, _>>()?;
            self.windows.push(Window { buffer, sets });
            left -= size;
        }
        Ok(())
    }

    /// Takes the memory of a product of that size, if it is not there yet.
    ///
    /// # Errors
    /// What there is too little of.
    pub fn operands(&mut self, kernels: &Kernels, n: u32) -> Result<(), Shortage> {
        if self.products.iter().any(|operands| operands.n >= n) {
            return Ok(());
        }
        let bytes = |n: u32| (u64::from(n) * u64::from(n)).saturating_mul(4);
        let most = self.context.card.buffer_max().min(4 * u64::from(u32::MAX));
        let what = |why: String| format!("a product of {n} by {n} matrices: {why}");
        if bytes(n) > most {
            let why = format!("one takes {} B, a buffer at most {most} B", bytes(n));
            return Err(Shortage::Never(what(why)));
        }
        // Some more than was asked for, so that a sweep of sizes takes little more than its last.
        let roomy = n.saturating_add(n / 2).next_multiple_of(64);
        let sizes = [if bytes(roomy) <= most { roomy } else { n }, n];
        let (heap, wants) = (self.context.card.heap(), bytes(n).saturating_mul(3));
        if wants > heap {
            return Err(Shortage::Never(what(format!(
                "they take {wants} B of {heap} B of memory"
            ))));
        }
        let roomy = self.take_operands(kernels, sizes[0]);
        let operands = roomy.or_else(|_| self.take_operands(kernels, sizes[1]));
        self.products.push(operands.map_err(|result| match is_out_of_memory(result) {
            true => Shortage::Now(what(format!("{wants} B of {heap} B ({result:?})"))),
            false => Shortage::Driver(result),
        })?);
        Ok(())
    }

    fn take_operands(&mut self, kernels: &Kernels, n: u32) -> Result<Operands, vk::Result> {
        let size = u64::from(n) * u64::from(n) * 4;
        let buffer = |_| Buffer::on_device(&self.context, size);
        let buffers = [buffer(0)?, buffer(1)?, buffer(2)?];
        for (seed, buffer) in buffers.iter().enumerate() {
            self.fill(kernels, buffer, seed as u32)?;
        }
        let [a, b, c] = &buffers;
        let set = kernels.set(&[(1, a), (2, b), (3, c)])?;
        Ok(Operands { n, set, buffers })
    }

    fn fill(&mut self, kernels: &Kernels, buffer: &Buffer, seed: u32) -> Result<(), vk::Result> {
        let set = kernels.set(&[(1, buffer)])?;
        let words = (buffer.size / 4) as u32;
        self.errand.run(|to| kernels.dispatch_fill(to, set, words, seed))
    }

    /// What kernels on the real queue of that number have left from word `first` on.
    ///
    /// # Errors
    /// The driver's.
    pub fn words(&mut self, real: usize, first: usize, n: usize) -> Result<Vec<u32>, vk::Result> {
        copy(&mut self.errand, &self.context, &self.results[real], first, n)
    }

    /// The product of size `n` that was made last.
    ///
    /// # Errors
    /// The driver's.
    #[cfg(test)]
    pub fn product(&mut self, n: u32) -> Result<Vec<u32>, vk::Result> {
        let operands = self.products.iter().find(|operands| operands.n >= n).expect("was made");
        copy(&mut self.errand, &self.context, &operands.buffers[2], 0, (n * n) as usize)
    }

    /// The bindings of a read or a product on the real queue of that number.
    pub fn set_of(&self, step: &Step, real: usize) -> Option<Set> {
        match *step {
            Step::Read { window, .. } => Some(self.windows[window].sets[real]),
            Step::Product { n } => self.products.iter().find(|o| o.n >= n).map(|o| o.set),
            Step::Empty | Step::Chain { .. } => None,
        }
    }
}

/// Words of a buffer on the device.
fn copy(
    errand: &mut Errand,
    context: &Arc<Context>,
    from: &Buffer,
    first: usize,
    n: usize,
) -> Result<Vec<u32>, vk::Result> {
    let size = 4 * n as u64;
    let copy = Buffer::on_host(context, size)?;
    let region = [vk::BufferCopy::default().src_offset(4 * first as u64).size(size)];
    errand.run(|to| {
        let seen = [vk::MemoryBarrier::default()
            .src_access_mask(vk::AccessFlags::MEMORY_WRITE)
            .dst_access_mask(vk::AccessFlags::MEMORY_READ)];
        let all = vk::PipelineStageFlags::ALL_COMMANDS;
        let host = vk::PipelineStageFlags::HOST;
        let none = vk::DependencyFlags::empty();
        // SAFETY: both buffers outlive the errand and are long enough.
        unsafe {
            context.device.cmd_pipeline_barrier(to, all, all, none, &seen, &[], &[]);
            context.device.cmd_copy_buffer(to, from.raw, copy.raw, &region);
            let seen = [vk::MemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::HOST_READ)];
            let copied = vk::PipelineStageFlags::TRANSFER;
            context.device.cmd_pipeline_barrier(to, copied, host, none, &seen, &[], &[]);
        }
    })?;
    Ok((0..n).map(|word| copy.read::<1>(word)[0]).collect())
}

/// Whether less of it might do.
fn is_out_of_memory(result: vk::Result) -> bool {
    matches!(
        result,
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
            | vk::Result::ERROR_OUT_OF_HOST_MEMORY
            | vk::Result::ERROR_TOO_MANY_OBJECTS
    )
}
