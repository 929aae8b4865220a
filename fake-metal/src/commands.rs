//! Command buffers and their encoders, with the rules about their order.

use crate::device::{Buffer, Memory, Pipeline, class, failure};
use crate::gpu::{self, GROUP_MOST};
use crate::msl::Kernel;
use crate::rules::{Rule, broken};
use block2::{DynBlock, RcBlock};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::{NSObject, NSObjectProtocol, ProtocolObject};
use objc2::{AnyThread, DefinedClass, Message, define_class, msg_send};
use objc2_foundation::{NSError, NSUInteger};
use objc2_metal::{
    MTLBuffer, MTLCommandBuffer, MTLCommandBufferStatus, MTLCommandEncoder,
    MTLComputeCommandEncoder, MTLComputePipelineState, MTLSize,
};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Whether a command buffer keeps what it uses, or trusts its maker to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    /// It keeps it.
    Retained,
    /// It does not.
    Trusted,
}

type Block = RcBlock<dyn Fn(NonNull<ProtocolObject<dyn MTLCommandBuffer>>)>;

/// How far a command buffer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    #[default]
    New,
    Committed,
    Completed,
    Failed,
}

/// A command buffer's life so far.
#[derive(Default)]
struct Life {
    stage: Stage,
    committed: f64,
    stamps: [f64; 2],
    failure: Option<(isize, String)>,
    blocks: Vec<Block>,
    encoding: bool,
    duration: f64,
    written: Vec<usize>,
    used: Vec<Use>,
}

/// Memory that a command buffer uses.
struct Use {
    memory: Arc<Memory>,
    /// Kept for what it keeps alive.
    _buffer: Option<Retained<Buffer>>,
}

/// What a command buffer and its encoders share.
pub struct Data {
    queue: Arc<AtomicUsize>,
    references: References,
    life: Arc<(Mutex<Life>, Condvar)>,
}

impl Drop for Data {
    fn drop(&mut self) {
        // One that was never committed does not count any longer either.
        if self.life().stage == Stage::New {
            self.queue.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Data {
    fn life(&self) -> MutexGuard<'_, Life> {
        locked(&self.life)
    }
}

fn locked(life: &(Mutex<Life>, Condvar)) -> MutexGuard<'_, Life> {
    life.0.lock().unwrap_or_else(PoisonError::into_inner)
}

class! {
    /// A command buffer.
    CommandBuffer(Data) {
        // SAFETY: the methods have the types that the protocol's have.
        unsafe impl MTLCommandBuffer for CommandBuffer {
            #[unsafe(method_id(computeCommandEncoder))]
            fn encoder(&self) -> Option<Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>> {
                let mut life = self.ivars().life();
                if life.encoding {
                    broken(Rule::EndEncoding, "a second encoder before the first one is ended");
                }
                life.encoding = true;
                let data = EncoderData {
                    references: self.ivars().references,
                    life: Arc::clone(&self.ivars().life),
                    bound: Mutex::default(),
                };
                Some(ProtocolObject::from_retained(Encoder::make(data)))
            }

            #[unsafe(method(addCompletedHandler:))]
            fn on_end(
                &self,
                block: *mut DynBlock<dyn Fn(NonNull<ProtocolObject<dyn MTLCommandBuffer>>)>,
            ) {
                let mut life = self.ivars().life();
                if life.stage != Stage::New {
                    broken(Rule::HandlerBeforeCommit, "a completion handler after the commit");
                }
                // SAFETY: the caller passes a block.
                life.blocks.extend(unsafe { RcBlock::copy(block) });
            }

            #[unsafe(method(commit))]
            fn commit_(&self) {
                let mut life = self.ivars().life();
                if life.stage != Stage::New {
                    broken(Rule::CommitOnce, "a second commit");
                    return;
                }
                if life.encoding {
                    broken(Rule::EndEncoding, "a commit before the encoder is ended");
                }
                life.stage = Stage::Committed;
                life.committed = gpu::now();
                for used in &life.used {
                    used.memory.users.fetch_add(1, Ordering::SeqCst);
                }
                drop(life);
                gpu::send(Sent(self.retain()));
            }

            #[unsafe(method(waitUntilCompleted))]
            fn wait(&self) {
                let life = self.ivars().life();
                if life.stage == Stage::New {
                    broken(Rule::WaitAfterCommit, "waiting for what was not committed");
                    return;
                }
                let running = |life: &mut Life| life.stage < Stage::Completed;
                drop(self.ivars().life.1.wait_while(life, running));
            }

            #[unsafe(method(status))]
            fn status_(&self) -> MTLCommandBufferStatus {
                match self.ivars().life().stage {
                    Stage::New => MTLCommandBufferStatus::NotEnqueued,
                    Stage::Committed => MTLCommandBufferStatus::Committed,
                    Stage::Completed => MTLCommandBufferStatus::Completed,
                    Stage::Failed => MTLCommandBufferStatus::Error,
                }
            }

            #[unsafe(method_id(error))]
            fn error_(&self) -> Option<Retained<NSError>> {
                let life = self.ivars().life();
                life.failure.as_ref().map(|(code, text)| failure(*code, text))
            }

            #[unsafe(method(GPUStartTime))]
            fn start(&self) -> f64 {
                self.stamp(0)
            }

            #[unsafe(method(GPUEndTime))]
            fn end(&self) -> f64 {
                self.stamp(1)
            }
        }
    }
}

impl CommandBuffer {
    /// One of the queue that counts in `queue`.
    pub fn new(queue: Arc<AtomicUsize>, references: References) -> Retained<Self> {
        Self::make(Data { queue, references, life: Arc::default() })
    }

    fn stamp(&self, which: usize) -> f64 {
        let life = self.ivars().life();
        if life.stage < Stage::Completed {
            broken(Rule::StampsAtTheEnd, "a stamp is read before the end");
        }
        life.stamps[which]
    }
}

/// A committed command buffer on its way.
pub struct Sent(Retained<CommandBuffer>);

// SAFETY: its variables are locked, and counting is atomic.
unsafe impl Send for Sent {}

impl Sent {
    /// Which queue it is of.
    pub fn queue(&self) -> usize {
        Arc::as_ptr(&self.0.ivars().queue) as usize
    }

    /// When it was committed. Unit: s.
    pub fn committed(&self) -> f64 {
        self.0.ivars().life().committed
    }

    /// How long it runs. Unit: s.
    pub fn duration(&self) -> f64 {
        self.0.ivars().life().duration
    }

    /// The memory that it writes to, as numbers.
    pub fn written(&self) -> Vec<usize> {
        self.0.ivars().life().written.clone()
    }

    /// Ends it.
    pub fn finish(self, stamps: [f64; 2], failure: Option<(isize, String)>) -> Finished {
        let data = self.0.ivars();
        let mut life = data.life();
        life.stage = match failure {
            None => Stage::Completed,
            Some(_) => Stage::Failed,
        };
        (life.stamps, life.failure) = (stamps, failure);
        let (blocks, used) = (std::mem::take(&mut life.blocks), std::mem::take(&mut life.used));
        drop(life);
        for used in &used {
            used.memory.users.fetch_sub(1, Ordering::SeqCst);
        }
        data.queue.fetch_sub(1, Ordering::SeqCst);
        Finished { buffer: self.0, blocks }
    }
}

/// A command buffer that has ended, of which nobody has been told.
pub struct Finished {
    buffer: Retained<CommandBuffer>,
    blocks: Vec<Block>,
}

impl Finished {
    /// Calls its handlers and wakes who waits.
    pub fn tell(self) {
        autoreleasepool(|_| {
            let buffer = NonNull::from(ProtocolObject::from_ref(&*self.buffer));
            for block in &self.blocks {
                block.call((buffer,));
            }
        });
        self.buffer.ivars().life.1.notify_all();
    }
}

/// What is bound to an index.
enum Bound {
    Memory(Retained<Buffer>),
    Words(Vec<u32>),
}

/// What an encoder has been told.
#[derive(Default)]
struct State {
    kernel: Option<Kernel>,
    arguments: BTreeMap<usize, Bound>,
    ended: bool,
}

/// An encoder's variables.
pub struct EncoderData {
    references: References,
    life: Arc<(Mutex<Life>, Condvar)>,
    bound: Mutex<State>,
}

class! {
    /// An encoder.
    Encoder(EncoderData) {
        // SAFETY: the methods have the types that the protocol's have.
        unsafe impl MTLComputeCommandEncoder for Encoder {
            #[unsafe(method(setComputePipelineState:))]
            fn set_pipeline(&self, pipeline: &ProtocolObject<dyn MTLComputePipelineState>) {
                // SAFETY: all pipelines are made by the fake device.
                let pipeline = unsafe { &*std::ptr::from_ref(pipeline).cast::<Pipeline>() };
                let mut state = self.state();
                state.kernel = Some(pipeline.ivars().clone());
                // Metal would keep them; a kernel that relies on another one's is a mistake here.
                state.arguments.clear();
            }

            #[unsafe(method(setBuffer:offset:atIndex:))]
            fn set_buffer(
                &self,
                buffer: Option<&ProtocolObject<dyn MTLBuffer>>,
                _offset: NSUInteger,
                index: NSUInteger,
            ) {
                let Some(buffer) = buffer else { return };
                // SAFETY: all buffers are made by the fake device.
                let buffer = unsafe { &*std::ptr::from_ref(buffer).cast::<Buffer>() };
                self.state().arguments.insert(index, Bound::Memory(buffer.retain()));
            }

            #[unsafe(method(setBytes:length:atIndex:))]
            fn set_bytes(&self, bytes: NonNull<c_void>, length: NSUInteger, index: NSUInteger) {
                if length > 4096 {
                    broken(Rule::SmallBytes, format!("{length} B at index {index}"));
                }
                // SAFETY: the caller says so many bytes; their structures are of whole words.
                let words = unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), length / 4) };
                self.state().arguments.insert(index, Bound::Words(words.to_vec()));
            }

            #[unsafe(method(dispatchThreads:threadsPerThreadgroup:))]
            fn dispatch(&self, grid: MTLSize, group: MTLSize) {
                self.run([grid.width, grid.height, grid.depth], group);
            }
        }

        // SAFETY: the methods have the types that the protocol's have.
        unsafe impl MTLCommandEncoder for Encoder {
            #[unsafe(method(endEncoding))]
            fn end(&self) {
                let mut state = self.state();
                state.ended = true;
                drop(state);
                locked(&self.ivars().life).encoding = false;
            }
        }
    }
}

impl Encoder {
    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.ivars().bound.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            broken(Rule::EncoderHasEnded, "an encoder is used after its end");
        }
        state
    }

    fn run(&self, grid: [usize; 3], group: MTLSize) {
        let state = self.state();
        let size = group.width * group.height * group.depth;
        if size == 0 || size > GROUP_MOST {
            broken(Rule::Threadgroup, format!("a threadgroup of {size} threads"));
        }
        let Some(kernel) = &state.kernel else {
            return broken(Rule::PipelineFirst, "a dispatch without a pipeline");
        };
        for index in state.arguments.keys() {
            if !kernel.arguments.iter().any(|argument| argument.index == *index) {
                let what = format!("kernel `{}` has no buffer({index})", kernel.name);
                broken(Rule::Arguments, what);
            }
        }
        let words: Vec<u32> = state.arguments.values().flat_map(words_of).copied().collect();
        let mut life = locked(&self.ivars().life);
        for argument in &kernel.arguments {
            let say = |what: &str| format!("kernel `{}`: `{}` {what}", kernel.name, argument.name);
            match (state.arguments.get(&argument.index), argument.structure) {
                (None, _) => broken(Rule::Arguments, say("is not bound")),
                (Some(Bound::Memory(_)), Some(_)) => {
                    broken(Rule::Arguments, say("is a structure and bound to memory"));
                }
                (Some(Bound::Words(_)), None) => {
                    broken(Rule::Arguments, say("is memory and bound to a structure"));
                }
                (Some(Bound::Words(given)), Some(bytes)) if 4 * given.len() != bytes => {
                    let given = 4 * given.len();
                    broken(Rule::Arguments, say(&format!("has {bytes} B and is given {given}")));
                }
                (Some(Bound::Words(_)), Some(_)) => {}
                (Some(Bound::Memory(buffer)), None) => {
                    let memory = &buffer.ivars().0;
                    let reach = gpu::reach(kernel, argument.index, &words, grid);
                    if reach > memory.length() {
                        let length = memory.length();
                        broken(Rule::Bounds, say(&format!("has {length} B, used up to {reach}")));
                    }
                    if argument.written {
                        life.written.push(Arc::as_ptr(memory) as usize);
                    }
                    let keeps = self.ivars().references == References::Retained;
                    let kept = keeps.then(|| buffer.clone());
                    life.used.push(Use { memory: Arc::clone(memory), _buffer: kept });
                }
            }
        }
        life.duration += gpu::duration(kernel, &words, grid);
    }
}

fn words_of(bound: &Bound) -> &[u32] {
    match bound {
        Bound::Words(words) => words,
        Bound::Memory(_) => &[],
    }
}
