//! Memory that kernels read and write: allocated once, grown when a kernel asks for more.
//!
//! A command buffer retains what it uses, so that a buffer that has been outgrown lives until the
//! last kernel that reads it has ended. Filled by the CPU before the GPU sees it.

use crate::Error;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBuffer, MTLDevice, MTLResourceOptions};

/// The GPU.
pub type Gpu = ProtocolObject<dyn MTLDevice>;

/// A piece of memory that both sides see.
pub type Memory = Retained<ProtocolObject<dyn MTLBuffer>>;

/// Threads of which each may leave a result, as kernels.metal has it.
pub const SINK_THREADS: usize = 65_536;

/// What results of kernels are written to. One for each queue: Metal runs kernels that write the
/// same memory one after the other, and that is what keeps a queue in order.
pub fn sink(gpu: &Gpu) -> Result<Memory, Error> {
    allocate(gpu, SINK_THREADS * size_of::<u32>(), "the results of kernels")
}

/// What a streaming read reads, and the operands of matrix products. Read only, so all queues
/// share them.
#[derive(Default)]
pub struct Inputs {
    source: Option<Memory>,
    left: Option<Memory>,
    right: Option<Memory>,
}

/// The least and the most that a streaming read reads before it begins again. The most is more
/// than any Apple GPU's last cache holds (96 MiB, on an Ultra; source: third-party chip listings).
const SOURCE_LEAST: u64 = 1 << 20;
const SOURCE_MOST: u64 = 1 << 28;

impl Inputs {
    /// Memory for a read of `bytes`: a power of two, and filled.
    pub fn source(&mut self, gpu: &Gpu, bytes: u64) -> Result<&Memory, Error> {
        let wanted = bytes.min(SOURCE_MOST).next_power_of_two().max(SOURCE_LEAST) as usize;
        grown(&mut self.source, gpu, wanted, "a streaming read", |word| word as u32)
    }

    /// Both operands of a product of matrices of `n` by `n`.
    pub fn operands(&mut self, gpu: &Gpu, n: usize) -> Result<[&Memory; 2], Error> {
        let (bytes, what) = (n * n * size_of::<f32>(), "a matrix");
        // Small whole numbers, so that nothing overflows or becomes tiny.
        let left = grown(&mut self.left, gpu, bytes, what, |i| ((i % 13) as f32).to_bits())?;
        let right = grown(&mut self.right, gpu, bytes, what, |i| ((i % 7) as f32).to_bits())?;
        Ok([left, right])
    }
}

/// The memory in `place`, made anew if there is none or too little.
pub fn grown<'a>(
    place: &'a mut Option<Memory>,
    gpu: &Gpu,
    bytes: usize,
    what: &str,
    fill: impl Fn(usize) -> u32,
) -> Result<&'a Memory, Error> {
    if place.as_ref().is_none_or(|memory| memory.length() < bytes) {
        let memory = allocate(gpu, bytes, what)?;
        let words: *mut u32 = memory.contents().as_ptr().cast();
        for word in 0..bytes / size_of::<u32>() {
            // SAFETY: `contents` points to `bytes` bytes of shared memory, page-aligned, which no
            // kernel knows of yet.
            unsafe { words.add(word).write(fill(word)) };
        }
        *place = Some(memory);
    }
    Ok(place.as_ref().expect("there is some now"))
}

fn allocate(gpu: &Gpu, bytes: usize, what: &str) -> Result<Memory, Error> {
    let (device, most) = (super::ID.to_owned(), gpu.maxBufferLength());
    if bytes > most {
        let what =
            format!("{what}: it wants {bytes} B in one piece, at most {most} B are possible");
        return Err(Error::Unsupported { device, what });
    }
    gpu.newBufferWithLength_options(bytes, MTLResourceOptions::StorageModeShared)
        .ok_or_else(|| Error::Memory { device, what: format!("{what} ({bytes} B)") })
}
