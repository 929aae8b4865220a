//! From the parts of a kernel to Metal's calls.
//!
//! Knows the kernels of kernels.metal and their arguments; nothing of queues or time. All parts of
//! a command buffer go into one encoder, whose dispatches run one after the other.

use super::memory::{Gpu, Inputs, Memory, SINK_THREADS, grown};
use crate::{Error, Part};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLCompileOptions, MTLComputeCommandEncoder, MTLComputePipelineState, MTLDevice, MTLLibrary,
    MTLSize,
};
use std::ptr::NonNull;

/// The kernels' source, in Metal's language.
const SOURCE: &str = include_str!("kernels.metal");

/// Threads of a threadgroup where there are as many. Source: guess (?), eight SIMD groups.
const GROUP: usize = 256;

/// Words of 16 bytes that one dispatch of a streaming read may read: its counter has 32 bits.
const WORDS_MOST: u64 = 1 << 31;

/// Dispatches of one command buffer. Source: guess; a thousand full streaming reads are 32 TiB.
const DISPATCHES_MOST: u64 = 1024;

/// Rows of a matrix, so that a thread finds its elements with 32 bits.
const ROWS_MOST: u32 = 1 << 17;

type Encoder = ProtocolObject<dyn MTLComputeCommandEncoder>;
type Pipeline = Retained<ProtocolObject<dyn MTLComputePipelineState>>;

/// The kernels, ready to run.
pub struct Kernels {
    nothing: Pipeline,
    fma_chain: Pipeline,
    streaming_read: Pipeline,
    matrix_product: Pipeline,
}

/// What the kernels of one queue write to.
pub struct Outputs {
    /// Results of threads.
    pub sink: Memory,
    /// Products of matrices.
    pub product: Option<Memory>,
}

/// Arguments as kernels.metal lays them out: unsigned integers of 32 bits.
type Arguments<const N: usize> = [u32; N];

impl Kernels {
    /// Compiles them.
    ///
    /// # Errors
    /// What Metal's compiler says.
    pub fn compile(gpu: &Gpu) -> Result<Self, String> {
        let options = MTLCompileOptions::new();
        // Two multiply-adds by constants may be made one by a compiler that takes float for real
        // numbers. The newer name of this needs macOS 15.
        #[allow(deprecated)]
        options.setFastMathEnabled(false);
        let library = gpu
            .newLibraryWithSource_options_error(&NSString::from_str(SOURCE), Some(&options))
            .map_err(|error| {
                format!("the kernels don't compile: {}", error.localizedDescription())
            })?;
        let pipeline = |name: &str| {
            let function = library.newFunctionWithName(&NSString::from_str(name));
            let function = function.ok_or_else(|| format!("there is no kernel `{name}`"))?;
            gpu.newComputePipelineStateWithFunction_error(&function)
                .map_err(|error| format!("kernel `{name}`: {}", error.localizedDescription()))
        };
        Ok(Kernels {
            nothing: pipeline("nothing")?,
            fma_chain: pipeline("fma_chain")?,
            streaming_read: pipeline("streaming_read")?,
            matrix_product: pipeline("matrix_product")?,
        })
    }

    /// Makes sure that `parts` can be encoded: that they are within the kernels' limits and that
    /// the memory is there.
    ///
    /// # Errors
    /// [`Error::Memory`] where it is short, [`Error::Unsupported`] for what is too large at any time.
    pub fn prepare(
        gpu: &Gpu,
        parts: &[Part],
        inputs: &mut Inputs,
        outputs: &mut Outputs,
    ) -> Result<(), Error> {
        let unsupported = |what: String| Error::Unsupported { device: super::ID.to_owned(), what };
        let dispatches = parts.iter().map(dispatches).fold(0, u64::saturating_add);
        if dispatches > DISPATCHES_MOST {
            let what = format!("{dispatches} dispatches in one command buffer ({DISPATCHES_MOST})");
            return Err(unsupported(what));
        }
        for part in parts {
            match *part {
                Part::Fma { .. } => {}
                Part::Stream { bytes } => drop(inputs.source(gpu, bytes)?),
                Part::Matmul { n } if n > ROWS_MOST => {
                    let what = format!("a product of {n} by {n}; at most {ROWS_MOST}");
                    return Err(unsupported(what));
                }
                Part::Matmul { n } => {
                    let n = whole_tiles(n);
                    inputs.operands(gpu, n)?;
                    let bytes = n * n * size_of::<f32>();
                    grown(&mut outputs.product, gpu, bytes, "a product of matrices", |_| 0)?;
                }
            }
        }
        Ok(())
    }

    /// Encodes `parts`, which have been prepared; a kernel that does nothing if there are none.
    ///
    /// # Errors
    /// Those of [`Kernels::prepare`].
    pub fn encode(
        &self,
        gpu: &Gpu,
        encoder: &Encoder,
        parts: &[Part],
        inputs: &mut Inputs,
        outputs: &Outputs,
    ) -> Result<(), Error> {
        if parts.is_empty() {
            encoder.setComputePipelineState(&self.nothing);
            bind(encoder, 0, &outputs.sink);
            line(encoder, &self.nothing, 1);
        }
        for part in parts {
            match *part {
                Part::Fma { iterations, threads } => {
                    encoder.setComputePipelineState(&self.fma_chain);
                    bind(encoder, 0, &outputs.sink);
                    let kept = threads.min(SINK_THREADS as u32);
                    give(encoder, 1, &[iterations, kept]);
                    line(encoder, &self.fma_chain, threads as usize);
                }
                Part::Stream { bytes } => {
                    self.read(encoder, bytes, inputs.source(gpu, bytes)?, &outputs.sink);
                }
                Part::Matmul { n } => {
                    let n = whole_tiles(n);
                    let operands = inputs.operands(gpu, n)?;
                    let product = outputs.product.as_ref().expect("it has been prepared");
                    self.multiply(encoder, n, operands, product);
                }
            }
        }
        Ok(())
    }

    fn read(&self, encoder: &Encoder, bytes: u64, source: &Memory, sink: &Memory) {
        use objc2_metal::MTLBuffer;
        encoder.setComputePipelineState(&self.streaming_read);
        bind(encoder, 0, sink);
        bind(encoder, 1, source);
        let mask = (source.length() / 16 - 1) as u32;
        let mut rest = words(bytes);
        while rest > 0 {
            let now = rest.min(WORDS_MOST);
            give(encoder, 2, &[now as u32, mask]);
            line(encoder, &self.streaming_read, (now as usize).min(SINK_THREADS));
            rest -= now;
        }
    }

    fn multiply(&self, encoder: &Encoder, n: usize, operands: [&Memory; 2], product: &Memory) {
        let [left, right] = operands;
        encoder.setComputePipelineState(&self.matrix_product);
        bind(encoder, 0, product);
        bind(encoder, 1, left);
        bind(encoder, 2, right);
        let quads = n / 4;
        give(encoder, 3, &[quads as u32]);
        let side = GROUP.min(self.matrix_product.maxTotalThreadsPerThreadgroup()).isqrt();
        let grid = MTLSize { width: quads, height: quads, depth: 1 };
        let group = MTLSize { width: side.min(quads), height: side.min(quads), depth: 1 };
        encoder.dispatchThreads_threadsPerThreadgroup(grid, group);
    }
}

/// Dispatches that a part takes.
fn dispatches(part: &Part) -> u64 {
    match *part {
        Part::Stream { bytes } => words(bytes).div_ceil(WORDS_MOST),
        Part::Fma { .. } | Part::Matmul { .. } => 1,
    }
}

/// Words of 16 bytes that hold `bytes`.
fn words(bytes: u64) -> u64 {
    bytes.div_ceil(16)
}

/// Rows of a matrix that is made of whole tiles.
fn whole_tiles(n: u32) -> usize {
    (n as usize).next_multiple_of(4)
}

/// Runs a kernel with `threads` threads in a line.
fn line(encoder: &Encoder, pipeline: &Pipeline, threads: usize) {
    let width = GROUP.min(pipeline.maxTotalThreadsPerThreadgroup()).min(threads);
    let grid = MTLSize { width: threads, height: 1, depth: 1 };
    let group = MTLSize { width, height: 1, depth: 1 };
    encoder.dispatchThreads_threadsPerThreadgroup(grid, group);
}

/// Memory as the argument `index` of the next kernel.
fn bind(encoder: &Encoder, index: usize, memory: &Memory) {
    // SAFETY: offset 0 lies in the memory; kernels keep within it by the masks and sizes that they
    // are given.
    unsafe { encoder.setBuffer_offset_atIndex(Some(memory), 0, index) };
}

/// A structure as the argument `index` of the next kernel.
fn give<const N: usize>(encoder: &Encoder, index: usize, arguments: &Arguments<N>) {
    // SAFETY: Metal copies that many bytes, which are the array's own.
    unsafe {
        encoder.setBytes_length_atIndex(
            NonNull::from(arguments).cast(),
            size_of::<Arguments<N>>(),
            index,
        );
    }
}
