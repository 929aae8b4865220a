//! The calls of the CUDA driver that the backend makes, each looked up by its name.
//!
//! Why not cudarc: it panics where the driver or one of its functions is missing, and takes the
//! library's place from fixed names. Here a machine without CUDA, an old driver that lacks a function
//! and a driver that refuses are errors that say so, and tests load a library of their own. Some
//! thirty calls are all that it takes; their signatures are those of `cuda.h`, stable since CUDA 9.
//!
//! Every method that names an object of a context wants that context to be current on the calling
//! thread ([`Driver::make_current`]). Handles are plain numbers here: who owns them sees to it that
//! they are alive.

use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::ptr::null_mut;

/// An ordinal's handle, from `cuDeviceGet`.
pub type DeviceId = c_int;

/// A handle that the driver gave out, as the address that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(usize);

impl Handle {
    fn raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// Host memory that the device reads and writes, at its address on each side.
#[derive(Clone, Copy, Debug)]
pub struct Pinned {
    pub host: *mut u64,
    pub device: u64,
}

// SAFETY: it is an address of memory that any thread may use; who shares it says how.
unsafe impl Send for Pinned {}

/// A refusal of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Its number in `CUresult`.
    pub code: c_int,
    /// The call, the number and the driver's name for it.
    pub text: String,
}

impl Refusal {
    /// No memory of some kind was left.
    pub const OUT_OF_MEMORY: c_int = 2;
    /// The work of a stream has not ended yet.
    const NOT_READY: c_int = 600;
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// What a call of the driver returns.
pub type Answer<T> = Result<T, Refusal>;

/// Attributes of a device. Source: `CUdevice_attribute` in `cuda.h`.
pub mod attribute {
    pub const MULTIPROCESSORS: i32 = 16;
    pub const L2_CACHE_BYTES: i32 = 38;
    pub const CAPABILITY_MAJOR: i32 = 75;
    pub const CAPABILITY_MINOR: i32 = 76;
}

/// One launch of a kernel; a grid and blocks in one dimension.
pub struct Launch<'a> {
    pub function: Handle,
    pub blocks: u32,
    pub threads: u32,
    pub stream: Handle,
    /// Addresses of the parameters, in order and of the kernel's types.
    pub parameters: &'a mut [*mut c_void],
}

/// Streams run beside the default one of the process. Source: `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

/// Pinned memory of every context, with an address on the device.
/// Source: `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PORTABLE_AND_MAPPED: c_uint = 1 | 2;

macro_rules! calls {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*);)*) => {
        /// The driver, loaded.
        pub struct Driver {
            // SAFETY: this only names the types; each call says why it is sound.
            $($field: unsafe extern "C" fn($($argument),*) -> c_int,)*
            /// Keeps the functions where they are.
            _library: Library,
        }

        impl Driver {
            /// Loads the driver's library.
            ///
            /// # Errors
            /// Text that says what was not found.
            pub fn load(path: &Path) -> Result<Driver, String> {
                let shown = path.display();
                // SAFETY: loading runs the library's own initialisers; it is the machine's driver,
                // or one that the caller named.
                let library = unsafe { Library::new(path) }
                    .map_err(|error| format!("{shown} was not found ({error})"))?;
                $(
                    // SAFETY: the signature is that of this name in `cuda.h`; the library is kept.
                    let $field = *unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> c_int>(
                            concat!($symbol, "\0").as_bytes(),
                        )
                    }
                    .map_err(|_| format!("{shown} has no {}: the driver is too old", $symbol))?;
                )*
                Ok(Driver { $($field,)* _library: library })
            }
        }
    };
}

calls! {
    init = "cuInit": fn(c_uint);
    driver_version = "cuDriverGetVersion": fn(*mut c_int);
    error_name = "cuGetErrorName": fn(c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount": fn(*mut c_int);
    device_get = "cuDeviceGet": fn(*mut DeviceId, c_int);
    device_name = "cuDeviceGetName": fn(*mut c_char, c_int, DeviceId);
    device_attribute = "cuDeviceGetAttribute": fn(*mut c_int, c_int, DeviceId);
    device_memory = "cuDeviceTotalMem_v2": fn(*mut usize, DeviceId);
    device_uuid = "cuDeviceGetUuid": fn(*mut [u8; 16], DeviceId);
    device_bus_id = "cuDeviceGetPCIBusId": fn(*mut c_char, c_int, DeviceId);
    primary_retain = "cuDevicePrimaryCtxRetain": fn(*mut *mut c_void, DeviceId);
    primary_release = "cuDevicePrimaryCtxRelease_v2": fn(DeviceId);
    context_set = "cuCtxSetCurrent": fn(*mut c_void);
    module_load = "cuModuleLoadData": fn(*mut *mut c_void, *const c_void);
    module_unload = "cuModuleUnload": fn(*mut c_void);
    module_function = "cuModuleGetFunction": fn(*mut *mut c_void, *mut c_void, *const c_char);
    memory_alloc = "cuMemAlloc_v2": fn(*mut u64, usize);
    memory_free = "cuMemFree_v2": fn(u64);
    memory_fill = "cuMemsetD32Async": fn(u64, c_uint, usize, *mut c_void);
    host_alloc = "cuMemHostAlloc": fn(*mut *mut c_void, usize, c_uint);
    host_free = "cuMemFreeHost": fn(*mut c_void);
    host_on_device = "cuMemHostGetDevicePointer_v2": fn(*mut u64, *mut c_void, c_uint);
    stream_create = "cuStreamCreate": fn(*mut *mut c_void, c_uint);
    stream_destroy = "cuStreamDestroy_v2": fn(*mut c_void);
    stream_query = "cuStreamQuery": fn(*mut c_void);
    stream_wait = "cuStreamSynchronize": fn(*mut c_void);
    launch = "cuLaunchKernel": fn(
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint,
        *mut c_void, *mut *mut c_void, *mut *mut c_void
    );
}

impl Driver {
    /// `code` as an answer; `call` is the name that a refusal carries.
    fn answer(&self, call: &str, code: c_int) -> Answer<()> {
        match code {
            0 => Ok(()),
            _ => Err(Refusal { code, text: format!("{call} said {}", self.name_of(code)) }),
        }
    }

    fn name_of(&self, code: c_int) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the driver writes the address of a text of its own, or null.
        let known = unsafe { (self.error_name)(code, &raw mut name) } == 0 && !name.is_null();
        match known {
            // SAFETY: just seen not to be null; the driver's texts end with a 0 and stay.
            true => format!("{} ({code})", unsafe { CStr::from_ptr(name) }.to_string_lossy()),
            false => format!("error {code}"),
        }
    }

    /// Wakes the driver up; creates no context.
    pub fn init(&self) -> Answer<()> {
        // SAFETY: no arguments but flags, which must be 0.
        self.answer("cuInit", unsafe { (self.init)(0) })
    }

    /// The newest CUDA that the driver knows: 13000 is 13.0.
    pub fn version(&self) -> Answer<i32> {
        let mut version = 0;
        // SAFETY: it writes one int.
        let code = unsafe { (self.driver_version)(&raw mut version) };
        self.answer("cuDriverGetVersion", code).map(|()| version)
    }

    pub fn device_count(&self) -> Answer<i32> {
        let mut count = 0;
        // SAFETY: it writes one int.
        let code = unsafe { (self.device_count)(&raw mut count) };
        self.answer("cuDeviceGetCount", code).map(|()| count)
    }

    pub fn device(&self, ordinal: i32) -> Answer<DeviceId> {
        let mut device = 0;
        // SAFETY: it writes one int.
        let code = unsafe { (self.device_get)(&raw mut device, ordinal) };
        self.answer("cuDeviceGet", code).map(|()| device)
    }

    pub fn device_name(&self, device: DeviceId) -> Answer<String> {
        let mut text = [0u8; 256];
        // SAFETY: it writes at most 255 bytes and a 0.
        let code = unsafe { (self.device_name)(text.as_mut_ptr().cast(), 255, device) };
        self.answer("cuDeviceGetName", code).map(|()| text_of(&text))
    }

    /// One of [`attribute`].
    pub fn attribute(&self, attribute: i32, device: DeviceId) -> Answer<i32> {
        let mut value = 0;
        // SAFETY: it writes one int.
        let code = unsafe { (self.device_attribute)(&raw mut value, attribute, device) };
        self.answer("cuDeviceGetAttribute", code).map(|()| value)
    }

    /// Unit: B.
    pub fn device_memory(&self, device: DeviceId) -> Answer<u64> {
        let mut bytes = 0;
        // SAFETY: it writes one size_t.
        let code = unsafe { (self.device_memory)(&raw mut bytes, device) };
        self.answer("cuDeviceTotalMem", code).map(|()| bytes as u64)
    }

    pub fn device_uuid(&self, device: DeviceId) -> Answer<[u8; 16]> {
        let mut uuid = [0; 16];
        // SAFETY: it writes 16 bytes.
        let code = unsafe { (self.device_uuid)(&raw mut uuid, device) };
        self.answer("cuDeviceGetUuid", code).map(|()| uuid)
    }

    /// "0000:3b:00.0".
    pub fn device_bus_id(&self, device: DeviceId) -> Answer<String> {
        let mut text = [0u8; 64];
        // SAFETY: it writes at most 63 bytes and a 0.
        let code = unsafe { (self.device_bus_id)(text.as_mut_ptr().cast(), 63, device) };
        self.answer("cuDeviceGetPCIBusId", code).map(|()| text_of(&text))
    }

    /// Makes the device's primary context, or takes a share in it.
    pub fn primary_retain(&self, device: DeviceId) -> Answer<Handle> {
        let mut context = null_mut();
        // SAFETY: it writes one handle.
        let code = unsafe { (self.primary_retain)(&raw mut context, device) };
        self.answer("cuDevicePrimaryCtxRetain", code).map(|()| Handle(context as usize))
    }

    /// Gives a share in the primary context back; with the last one it ends.
    pub fn primary_release(&self, device: DeviceId) -> Answer<()> {
        // SAFETY: no pointers.
        self.answer("cuDevicePrimaryCtxRelease", unsafe { (self.primary_release)(device) })
    }

    /// Makes `context` the one that calls from this thread mean.
    pub fn make_current(&self, context: Handle) -> Answer<()> {
        // SAFETY: a context that its owner keeps alive.
        self.answer("cuCtxSetCurrent", unsafe { (self.context_set)(context.raw()) })
    }

    /// Compiles `text`, which is PTX.
    pub fn module_load(&self, text: &CStr) -> Answer<Handle> {
        let mut module = null_mut();
        // SAFETY: it reads a text that ends with a 0 and writes one handle.
        let code = unsafe { (self.module_load)(&raw mut module, text.as_ptr().cast()) };
        self.answer("cuModuleLoadData", code).map(|()| Handle(module as usize))
    }

    pub fn module_unload(&self, module: Handle) -> Answer<()> {
        // SAFETY: a module that its owner uses no more.
        self.answer("cuModuleUnload", unsafe { (self.module_unload)(module.raw()) })
    }

    pub fn module_function(&self, module: Handle, name: &str) -> Answer<Handle> {
        let name = CString::new(name).expect("names of kernels have no 0");
        let mut function = null_mut();
        // SAFETY: it reads a text that ends with a 0 and writes one handle.
        let code =
            unsafe { (self.module_function)(&raw mut function, module.raw(), name.as_ptr()) };
        self.answer("cuModuleGetFunction", code).map(|()| Handle(function as usize))
    }

    /// The address on the device of `bytes` new bytes.
    pub fn memory_alloc(&self, bytes: usize) -> Answer<u64> {
        let mut address = 0;
        // SAFETY: it writes one address.
        let code = unsafe { (self.memory_alloc)(&raw mut address, bytes) };
        self.answer("cuMemAlloc", code).map(|()| address)
    }

    pub fn memory_free(&self, address: u64) -> Answer<()> {
        // SAFETY: an address that `memory_alloc` gave and that nobody uses any more.
        self.answer("cuMemFree", unsafe { (self.memory_free)(address) })
    }

    /// Fills `words` 32-bit words at `address`, in the order of `stream`.
    pub fn memory_fill(&self, address: u64, word: u32, words: usize, stream: Handle) -> Answer<()> {
        // SAFETY: the words lie within one allocation, which its owner keeps.
        let code = unsafe { (self.memory_fill)(address, word, words, stream.raw()) };
        self.answer("cuMemsetD32Async", code)
    }

    /// `words` 64-bit words, all 0.
    pub fn host_alloc(&self, words: usize) -> Answer<Pinned> {
        let (mut host, mut device) = (null_mut(), 0);
        let bytes = words * size_of::<u64>();
        // SAFETY: it writes one address.
        let code = unsafe { (self.host_alloc)(&raw mut host, bytes, PORTABLE_AND_MAPPED) };
        self.answer("cuMemHostAlloc", code)?;
        // SAFETY: `bytes` fresh bytes begin there, page-aligned.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        // SAFETY: it writes one address for memory that was allocated as mapped.
        let code = unsafe { (self.host_on_device)(&raw mut device, host, 0) };
        let memory = Pinned { host: host.cast(), device };
        self.answer("cuMemHostGetDevicePointer", code).map(|()| memory).inspect_err(|_| {
            // The first refusal is the one to tell.
            let _ = self.host_free(memory);
        })
    }

    pub fn host_free(&self, memory: Pinned) -> Answer<()> {
        // SAFETY: memory that `host_alloc` gave and that nobody uses any more.
        self.answer("cuMemFreeHost", unsafe { (self.host_free)(memory.host.cast()) })
    }

    pub fn stream_create(&self) -> Answer<Handle> {
        let mut stream = null_mut();
        // SAFETY: it writes one handle.
        let code = unsafe { (self.stream_create)(&raw mut stream, NON_BLOCKING) };
        self.answer("cuStreamCreate", code).map(|()| Handle(stream as usize))
    }

    pub fn stream_destroy(&self, stream: Handle) -> Answer<()> {
        // SAFETY: a stream that its owner uses no more.
        self.answer("cuStreamDestroy", unsafe { (self.stream_destroy)(stream.raw()) })
    }

    /// True if all work of the stream has ended.
    pub fn stream_is_idle(&self, stream: Handle) -> Answer<bool> {
        // SAFETY: a stream that its owner keeps alive.
        match unsafe { (self.stream_query)(stream.raw()) } {
            Refusal::NOT_READY => Ok(false),
            code => self.answer("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Blocks until all work of the stream has ended.
    pub fn stream_wait(&self, stream: Handle) -> Answer<()> {
        // SAFETY: a stream that its owner keeps alive.
        self.answer("cuStreamSynchronize", unsafe { (self.stream_wait)(stream.raw()) })
    }

    /// Puts a kernel into its stream and returns.
    ///
    /// # Safety
    /// The parameters are as many and of the types as the kernel's, and the memory that they name
    /// stays until the kernel has ended.
    pub unsafe fn launch(&self, launch: Launch<'_>) -> Answer<()> {
        // SAFETY: the driver copies the parameters before it returns; the rest is the caller's word.
        let code = unsafe {
            (self.launch)(
                launch.function.raw(),
                launch.blocks,
                1,
                1,
                launch.threads,
                1,
                1,
                0,
                launch.stream.raw(),
                launch.parameters.as_mut_ptr(),
                null_mut(),
            )
        };
        self.answer("cuLaunchKernel", code)
    }
}

/// A text in a buffer of C, up to its 0.
fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
