//! The kernels as pipelines, and how a dispatch of each is written into a command buffer.
//!
//! Their sources are `kernels/*.comp`; the checked-in results are what `cargo xtask shaders` makes
//! of them. All share one layout of bindings: 0 results, then what a kernel reads and writes.

use super::context::{Buffer, Context};
use super::plan::{NARROW, Step, WIDE, group_of, readers};
use ash::vk;
use std::sync::Arc;

/// The added constant of the chain x = x * x + c. Source: just inside the range in which the
/// sequence is chaotic and stays between -2 and 2.
pub const CHAIN_CONSTANT: f32 = -1.9;

/// Bindings of the layout. Source: the least that a device may offer to a stage.
const BINDINGS: u32 = 4;

/// Words that are passed with a dispatch.
const CONSTANTS: usize = 6;

/// Sets of bindings that one handle can have: one for each queue, and for each window of memory
/// and real queue.
const SETS_MAX: u32 = 1_024;

/// The results that kernels write, in words.
pub mod results {
    /// Iterations that the first thread of a chain has done.
    pub const DONE: usize = 0;
    /// The last values of a chain's threads.
    pub const X: usize = 16;
    /// Sums of what was read.
    pub const SUMS: usize = X + THREADS;
    /// Threads with a place of their own.
    pub const THREADS: usize = 65_536;
    /// Unit: B.
    pub const SIZE: u64 = 4 * (SUMS + THREADS) as u64;
}

macro_rules! spirv {
    ($name:literal) => {
        include_bytes!(concat!("kernels/", $name, ".spv"))
    };
}

/// A set of bindings; dispatches that are in flight may use it, so it lives as long as the handle.
pub type Set = vk::DescriptorSet;

/// All pipelines of a device.
pub struct Kernels {
    layout: vk::PipelineLayout,
    bindings: vk::DescriptorSetLayout,
    sets: vk::DescriptorPool,
    /// Shape: small groups, large groups.
    chain: [vk::Pipeline; 2],
    empty: vk::Pipeline,
    fill: vk::Pipeline,
    product: vk::Pipeline,
    read: vk::Pipeline,
    context: Arc<Context>,
}

impl Kernels {
    /// Builds all of them; `core_cycles` for a chain that counts the cycles of its core.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<Context>, core_cycles: bool) -> Result<Self, vk::Result> {
        let null = vk::Pipeline::null();
        let mut kernels = Kernels {
            layout: vk::PipelineLayout::null(),
            bindings: vk::DescriptorSetLayout::null(),
            sets: vk::DescriptorPool::null(),
            chain: [null; 2],
            empty: null,
            fill: null,
            product: null,
            read: null,
            context: Arc::clone(context),
        };
        kernels.make_layout()?;
        let chain: &[u8] = if core_cycles { spirv!("chain-clock") } else { spirv!("chain") };
        kernels.chain = [kernels.make(chain, NARROW)?, kernels.make(chain, WIDE)?];
        kernels.empty = kernels.make(spirv!("empty"), 1)?;
        kernels.fill = kernels.make(spirv!("fill"), WIDE)?;
        kernels.product = kernels.make(spirv!("matmul"), WIDE)?;
        kernels.read = kernels.make(spirv!("stream"), WIDE)?;
        Ok(kernels)
    }

    fn make_layout(&mut self) -> Result<(), vk::Result> {
        let device = &self.context.device;
        let binding = |number| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(number)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0..BINDINGS).map(binding).collect();
        let info = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(SETS_MAX * BINDINGS)];
        let pool = vk::DescriptorPoolCreateInfo::default().max_sets(SETS_MAX).pool_sizes(&sizes);
        let pushed = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(4 * CONSTANTS as u32)];
        // SAFETY: plain creations; every piece of information outlives its call.
        unsafe {
            self.bindings = device.create_descriptor_set_layout(&info, None)?;
            self.sets = device.create_descriptor_pool(&pool, None)?;
            let layouts = [self.bindings];
            let info = vk::PipelineLayoutCreateInfo::default()
                .set_layouts(&layouts)
                .push_constant_ranges(&pushed);
            self.layout = device.create_pipeline_layout(&info, None)?;
        }
        Ok(())
    }

    /// A pipeline of a kernel; the group's size goes where the kernel takes it from outside.
    fn make(&self, spirv: &[u8], group: u32) -> Result<vk::Pipeline, vk::Result> {
        let words = spirv.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
        let code: Vec<u32> = words.collect();
        let entry = [vk::SpecializationMapEntry::default().size(4)];
        let value = group.to_ne_bytes();
        let special = vk::SpecializationInfo::default().map_entries(&entry).data(&value);
        let info = vk::ShaderModuleCreateInfo::default().code(&code);
        let device = &self.context.device;
        // SAFETY: the code is the compiler's own output; the module is needed until the pipeline is
        // made, and goes then.
        unsafe {
            let module = device.create_shader_module(&info, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default()
                .stage(vk::ShaderStageFlags::COMPUTE)
                .module(module)
                .name(c"main")
                .specialization_info(&special);
            let info = [vk::ComputePipelineCreateInfo::default().stage(stage).layout(self.layout)];
            let made = device.create_compute_pipelines(vk::PipelineCache::null(), &info, None);
            device.destroy_shader_module(module, None);
            made.map(|pipelines| pipelines[0]).map_err(|(_, result)| result)
        }
    }

    /// A set with these buffers at these bindings.
    ///
    /// # Errors
    /// The driver's, if there are too many.
    pub fn set(&self, buffers: &[(u32, &Buffer)]) -> Result<Set, vk::Result> {
        let layouts = [self.bindings];
        let info = vk::DescriptorSetAllocateInfo::default()
            .descriptor_pool(self.sets)
            .set_layouts(&layouts);
        // SAFETY: pool and layout are this value's own, and no other thread uses them.
        let set = unsafe { self.context.device.allocate_descriptor_sets(&info)?[0] };
        for (binding, buffer) in buffers {
            let whole =
                [vk::DescriptorBufferInfo::default().buffer(buffer.raw).range(vk::WHOLE_SIZE)];
            let write = [vk::WriteDescriptorSet::default()
                .dst_set(set)
                .dst_binding(*binding)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .buffer_info(&whole)];
            // SAFETY: the set is new, so nothing uses it; the buffer lives as long as the handle.
            unsafe { self.context.device.update_descriptor_sets(&write, &[]) };
        }
        Ok(set)
    }

    /// Writes `step` into a command buffer that is being recorded. `place` is where a chain leaves
    /// the stamps of its clocks.
    pub fn dispatch(&self, to: vk::CommandBuffer, step: &Step, set: Option<Set>, place: u32) {
        let (pipeline, constants) = match *step {
            Step::Empty => (self.empty, [0; CONSTANTS]),
            Step::Chain { threads, rounds, rest, first } => {
                let wide = group_of(threads) == WIDE;
                let c = CHAIN_CONSTANT.to_bits();
                (self.chain[usize::from(wide)], [threads, rounds, rest, u32::from(first), c, place])
            }
            Step::Read { first, count, .. } => (self.read, [first, count, readers(count), 0, 0, 0]),
            Step::Product { n } => (self.product, [n, 0, 0, 0, 0, 0]),
        };
        let [across, down] = step.groups();
        self.write(to, pipeline, set, constants, [across, down]);
    }

    /// Writes a fill of the first `words` of a buffer, which is binding 1 of the set.
    pub fn dispatch_fill(&self, to: vk::CommandBuffer, set: Set, words: u32, seed: u32) {
        let threads = readers(words);
        let constants = [words, threads, seed, 0, 0, 0];
        self.write(to, self.fill, Some(set), constants, [threads / WIDE, 1]);
    }

    fn write(
        &self,
        to: vk::CommandBuffer,
        pipeline: vk::Pipeline,
        set: Option<Set>,
        constants: [u32; CONSTANTS],
        groups: [u32; 2],
    ) {
        let bytes = constants.map(u32::to_ne_bytes);
        let (device, layout) = (&self.context.device, self.layout);
        let point = vk::PipelineBindPoint::COMPUTE;
        // SAFETY: the command buffer is being recorded by the thread that owns it; all that is
        // named here lives as long as the handle.
        unsafe {
            device.cmd_bind_pipeline(to, point, pipeline);
            if let Some(set) = set {
                device.cmd_bind_descriptor_sets(to, point, layout, 0, &[set], &[]);
            }
            device.cmd_push_constants(
                to,
                layout,
                vk::ShaderStageFlags::COMPUTE,
                0,
                bytes.as_flattened(),
            );
            device.cmd_dispatch(to, groups[0], groups[1], 1);
        }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let device = &self.context.device;
        let one = [self.empty, self.fill, self.product, self.read];
        // SAFETY: the handle has waited until nothing is in flight. Null is allowed.
        unsafe {
            for pipeline in self.chain.into_iter().chain(one) {
                device.destroy_pipeline(pipeline, None);
            }
            device.destroy_pipeline_layout(self.layout, None);
            device.destroy_descriptor_pool(self.sets, None);
            device.destroy_descriptor_set_layout(self.bindings, None);
        }
    }
}

/// The word that `fill.comp` leaves at place `n`.
#[cfg(test)]
pub fn filled(n: u32, seed: u32) -> u32 {
    let n = n.wrapping_add(seed);
    let n = (n ^ (n >> 16)).wrapping_mul(0x7feb_352d);
    let n = (n ^ (n >> 15)).wrapping_mul(0x846c_a68b);
    0x3f00_0000 | ((n ^ (n >> 16)) >> 9)
}
