//! The device, its memory, its libraries and pipelines, its queues.

use crate::commands::{CommandBuffer, References};
use crate::gpu::{GROUP_MOST, LENGTH_MOST};
use crate::msl::{self, Kernel};
use crate::rules::{Rule, broken};
use objc2::rc::Retained;
use objc2::runtime::{NSObject, NSObjectProtocol, ProtocolObject};
use objc2::{AnyThread, DefinedClass, define_class, msg_send};
use objc2_foundation::{NSError, NSString, NSUInteger};
use objc2_metal::{
    MTLAllocation, MTLBuffer, MTLCommandBuffer, MTLCommandQueue, MTLCompileOptions,
    MTLComputePipelineState, MTLDevice, MTLFunction, MTLLibrary, MTLResource, MTLResourceOptions,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static ABSENT: AtomicBool = AtomicBool::new(false);
static FULL: AtomicBool = AtomicBool::new(false);

/// Whether there is no device.
pub fn hide(on: bool) {
    ABSENT.store(on, Ordering::SeqCst);
}

/// Whether there is no memory left.
pub fn fill_up(on: bool) {
    FULL.store(on, Ordering::SeqCst);
}

/// Defines a class with the variable `$data`, and how it is made.
macro_rules! class {
    ($(#[$doc:meta])* $name:ident($data:ty) { $($body:tt)* }) => {
        define_class!(
            // SAFETY: `NSObject` asks nothing of who stands below it.
            #[unsafe(super(NSObject))]
            #[ivars = $data]
            $(#[$doc])*
            pub struct $name;

            // SAFETY: an object of a class below `NSObject` is what the protocol wants.
            unsafe impl NSObjectProtocol for $name {}
            $($body)*
        );

        impl $name {
            /// A new one.
            pub fn make(data: $data) -> Retained<Self> {
                let object = Self::alloc().set_ivars(data);
                // SAFETY: `init` of `NSObject` can be sent to any new object.
                unsafe { msg_send![super(object), init] }
            }
        }
    };
}
pub(crate) use class;

define_class!(
    // SAFETY: `NSError` here asks nothing of who stands below it.
    #[unsafe(super(NSError))]
    #[ivars = (isize, String)]
    /// An error with a code and a text.
    pub struct Failure;

    impl Failure {
        #[unsafe(method_id(localizedDescription))]
        fn description(&self) -> Retained<NSString> {
            NSString::from_str(&self.ivars().1)
        }

        #[unsafe(method(code))]
        fn code(&self) -> isize {
            self.ivars().0
        }
    }
);

/// A new error.
pub fn failure(code: isize, text: &str) -> Retained<NSError> {
    let object = Failure::alloc().set_ivars((code, text.to_owned()));
    // SAFETY: `init` can be sent to any new object.
    let failure: Retained<Failure> = unsafe { msg_send![super(object), init] };
    Retained::into_super(failure)
}

/// Leaves an error where the caller wants it.
fn report(place: *mut *mut NSError, text: &str) {
    if !place.is_null() {
        // SAFETY: it is the caller's place for an error that belongs to the pool.
        unsafe { place.write(Retained::autorelease_ptr(failure(1, text))) };
    }
}

class! {
    /// The device.
    Device(()) {
        // SAFETY: the methods have the types that the protocol's have.
        unsafe impl MTLDevice for Device {
            #[unsafe(method_id(name))]
            fn name(&self) -> Retained<NSString> {
                NSString::from_str("a fake Metal device")
            }

            #[unsafe(method(registryID))]
            fn registry_id(&self) -> u64 {
                7
            }

            #[unsafe(method(hasUnifiedMemory))]
            fn unified(&self) -> bool {
                true
            }

            #[unsafe(method(recommendedMaxWorkingSetSize))]
            fn working_set(&self) -> u64 {
                4 << 30
            }

            #[unsafe(method(maxBufferLength))]
            fn longest(&self) -> NSUInteger {
                LENGTH_MOST
            }

            #[unsafe(method_id(newCommandQueueWithMaxCommandBufferCount:))]
            fn queue(&self, most: NSUInteger) -> Option<Retained<ProtocolObject<dyn MTLCommandQueue>>> {
                let data = QueueData { most, open: Arc::default() };
                Some(ProtocolObject::from_retained(Queue::make(data)))
            }

            #[unsafe(method_id(newBufferWithLength:options:))]
            fn buffer(
                &self,
                length: NSUInteger,
                _options: MTLResourceOptions,
            ) -> Option<Retained<ProtocolObject<dyn MTLBuffer>>> {
                if length == 0 || length > LENGTH_MOST {
                    broken(Rule::BufferLength, format!("a buffer of {length} B"));
                    None
                } else if FULL.load(Ordering::SeqCst) {
                    None
                } else {
                    let memory = Held(Arc::new(Memory::new(length)));
                    Some(ProtocolObject::from_retained(Buffer::make(memory)))
                }
            }

            #[unsafe(method_id(newLibraryWithSource:options:error:))]
            fn library(
                &self,
                source: &NSString,
                _options: Option<&MTLCompileOptions>,
                error: *mut *mut NSError,
            ) -> Option<Retained<ProtocolObject<dyn MTLLibrary>>> {
                match msl::kernels(&source.to_string()) {
                    Ok(kernels) => Some(ProtocolObject::from_retained(Library::make(kernels))),
                    Err(mistakes) => {
                        report(error, &mistakes);
                        None
                    }
                }
            }

            #[unsafe(method_id(newComputePipelineStateWithFunction:error:))]
            fn pipeline(
                &self,
                function: &ProtocolObject<dyn MTLFunction>,
                _error: *mut *mut NSError,
            ) -> Option<Retained<ProtocolObject<dyn MTLComputePipelineState>>> {
                // SAFETY: all functions are made here.
                let function = unsafe { &*std::ptr::from_ref(function).cast::<Function>() };
                let pipeline = Pipeline::make(function.ivars().clone());
                Some(ProtocolObject::from_retained(pipeline))
            }
        }
    }
}

class! {
    /// A compiled source.
    Library(Vec<Kernel>) {
        // SAFETY: the methods have the types that the protocol's have.
        unsafe impl MTLLibrary for Library {
            #[unsafe(method_id(newFunctionWithName:))]
            fn function(&self, name: &NSString) -> Option<Retained<ProtocolObject<dyn MTLFunction>>> {
                let name = name.to_string();
                let kernel = self.ivars().iter().find(|kernel| kernel.name == name);
                kernel.map(|kernel| ProtocolObject::from_retained(Function::make(kernel.clone())))
            }
        }
    }
}

class! {
    /// A kernel.
    Function(Kernel) {
        // SAFETY: the backend asks it nothing.
        unsafe impl MTLFunction for Function {}
    }
}

class! {
    /// A kernel that can run.
    Pipeline(Kernel) {
        // SAFETY: the methods have the types that the protocol's have.
        unsafe impl MTLComputePipelineState for Pipeline {
            #[unsafe(method(maxTotalThreadsPerThreadgroup))]
            fn most_threads(&self) -> NSUInteger {
                GROUP_MOST
            }
        }

        // SAFETY: the backend asks it nothing.
        unsafe impl MTLAllocation for Pipeline {}
    }
}

/// Memory, and how many command buffers in flight use it.
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    /// Command buffers in flight that use it.
    pub users: AtomicUsize,
}

// SAFETY: the memory is plain bytes that nobody but the code under test touches.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(length: usize) -> Self {
        let layout = Layout::from_size_align(length, 4096).expect("the length has been checked");
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("out of memory");
        Memory { start, layout, users: AtomicUsize::new(0) }
    }

    /// Unit: B.
    pub fn length(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated so, and nobody knows of it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A buffer's hold on its memory.
pub struct Held(pub Arc<Memory>);

impl Drop for Held {
    fn drop(&mut self) {
        let users = self.0.users.load(Ordering::SeqCst);
        if users > 0 {
            let length = self.0.length();
            broken(
                Rule::AliveInFlight,
                format!("a buffer of {length} B ends while {users} command buffers use it"),
            );
        }
    }
}

class! {
    /// Memory that both sides see.
    Buffer(Held) {
        // SAFETY: the methods have the types that the protocol's have.
        unsafe impl MTLBuffer for Buffer {
            #[unsafe(method(contents))]
            fn contents(&self) -> NonNull<c_void> {
                self.ivars().0.start.cast()
            }

            #[unsafe(method(length))]
            fn length_(&self) -> NSUInteger {
                self.ivars().0.length()
            }
        }

        // SAFETY: the backend asks it nothing.
        unsafe impl MTLResource for Buffer {}
        // SAFETY: the backend asks it nothing.
        unsafe impl MTLAllocation for Buffer {}
    }
}

/// A queue's limit, and its command buffers that have not ended.
pub struct QueueData {
    most: usize,
    open: Arc<AtomicUsize>,
}

class! {
    /// A queue.
    Queue(QueueData) {
        // SAFETY: the methods have the types that the protocol's have.
        unsafe impl MTLCommandQueue for Queue {
            #[unsafe(method_id(commandBuffer))]
            fn retaining(&self) -> Option<Retained<ProtocolObject<dyn MTLCommandBuffer>>> {
                Some(ProtocolObject::from_retained(self.command_buffer(References::Retained)))
            }

            #[unsafe(method_id(commandBufferWithUnretainedReferences))]
            fn trusting(&self) -> Option<Retained<ProtocolObject<dyn MTLCommandBuffer>>> {
                Some(ProtocolObject::from_retained(self.command_buffer(References::Trusted)))
            }
        }
    }
}

impl Queue {
    fn command_buffer(&self, references: References) -> Retained<CommandBuffer> {
        let QueueData { most, open } = self.ivars();
        let before = open.fetch_add(1, Ordering::SeqCst);
        if before >= *most {
            broken(Rule::QueueIsFull, format!("{before} command buffers have not ended yet"));
        }
        CommandBuffer::new(Arc::clone(open), references)
    }
}

/// Metal's only function: with this linked in, the backend finds the fake.
#[unsafe(no_mangle)]
extern "C-unwind" fn MTLCreateSystemDefaultDevice() -> *mut ProtocolObject<dyn MTLDevice> {
    match ABSENT.load(Ordering::SeqCst) {
        true => null_mut(),
        false => Retained::into_raw(ProtocolObject::from_retained(Device::make(()))),
    }
}
