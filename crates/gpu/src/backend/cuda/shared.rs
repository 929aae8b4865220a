//! What all handles of one process on one device share: the context, the compiled kernels, memory
//! to read from.
//!
//! A process has one primary context a device, and a GPU runs streams of one context side by side
//! where those of two contexts take turns. So every handle takes a share in the same one; it ends
//! with the last handle, and the GPU is then as idle as if the process had never used it.

use super::driver::{Answer, DeviceId, Driver, Handle, Refusal, attribute};
use crate::Monotonic;
use everwarm_units::Span;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// The kernels' text.
const KERNELS: &str = include_str!("kernels.ptx");

/// The ring that streaming reads go through holds the cache so many times over: what a lap later
/// comes round again has long been pushed out. Source: guess; at 8 a cache that keeps everything it
/// can still misses 7 of 8.
const RING_CACHES: u64 = 8;

/// And at least so much, where the driver does not tell the cache. Unit: B.
const RING_MIN: u64 = 256 << 20;

/// The word that scratch memory is filled with: 1.0 in single precision.
const ONE: u32 = 0x3f80_0000;

/// What is known of a device before and after its context was made.
#[derive(Clone, Debug)]
pub struct About {
    pub name: String,
    pub multiprocessors: u32,
    /// Unit: B.
    pub memory: u64,
    /// Unit: B; 0 where it isn't told.
    pub cache: u64,
    /// "9.0".
    pub capability: String,
    /// The newest CUDA that the driver knows, "13.0".
    pub cuda: String,
}

/// The kernels, ready to launch.
pub struct Kernels {
    pub empty: Handle,
    pub fma: Handle,
    pub stream: Handle,
    pub matmul: Handle,
    pub ping: Handle,
    pub ticks: Handle,
}

/// Memory for streaming reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ring {
    pub address: u64,
    /// A power of two. Unit: 16 B.
    pub pieces: u64,
}

/// One device's context.
pub struct Shared {
    pub driver: &'static Driver,
    pub about: About,
    pub kernels: Kernels,
    /// Where results go that nobody reads.
    pub sink: u64,
    /// How long the context took to make, and the kernels to compile.
    pub context_took: Span,
    pub kernels_took: Span,
    device: DeviceId,
    context: Handle,
    module: Handle,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    ring: Option<Ring>,
    /// The newest is the largest; older ones may still be in use.
    scratch: Vec<(u64, u64)>,
}

/// Contexts of this process by ordinal.
static OPEN: Mutex<BTreeMap<i32, Weak<Shared>>> = Mutex::new(BTreeMap::new());

/// A share in the context of the device `ordinal`, which the caller knows to exist.
///
/// # Errors
/// The driver's refusal.
pub fn share(driver: &'static Driver, ordinal: i32) -> Answer<Arc<Shared>> {
    // Held while a context is made: whoever comes meanwhile gets a share in it.
    let mut open = locked(&OPEN);
    if let Some(shared) = open.get(&ordinal).and_then(Weak::upgrade) {
        return Ok(shared);
    }
    let shared = Arc::new(Shared::make(driver, ordinal)?);
    open.insert(ordinal, Arc::downgrade(&shared));
    Ok(shared)
}

/// What the driver tells of a device without a context.
///
/// # Errors
/// The driver's refusal.
pub fn about(driver: &Driver, ordinal: i32) -> Answer<About> {
    let device = driver.device(ordinal)?;
    let number = |attribute| driver.attribute(attribute, device);
    let version = driver.version()?;
    Ok(About {
        name: driver.device_name(device)?,
        multiprocessors: number(attribute::MULTIPROCESSORS)?.max(1) as u32,
        memory: driver.device_memory(device)?,
        cache: number(attribute::L2_CACHE_BYTES).unwrap_or(0).max(0) as u64,
        capability: format!(
            "{}.{}",
            number(attribute::CAPABILITY_MAJOR)?,
            number(attribute::CAPABILITY_MINOR)?
        ),
        cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
    })
}

impl Shared {
    fn make(driver: &'static Driver, ordinal: i32) -> Answer<Shared> {
        let about = about(driver, ordinal)?;
        let device = driver.device(ordinal)?;
        let begin = Monotonic::now();
        let context = driver.primary_retain(device)?;
        let context_took = Monotonic::now().since(begin);
        let begin = Monotonic::now();
        let built = driver.make_current(context).and_then(|()| build(driver));
        let (module, kernels, sink) = built.inspect_err(|_| {
            // The first refusal is the one to tell.
            let _ = driver.primary_release(device);
        })?;
        let kernels_took = Monotonic::now().since(begin);
        let memory = Mutex::default();
        Ok(Shared {
            driver,
            about,
            kernels,
            sink,
            context_took,
            kernels_took,
            device,
            context,
            module,
            memory,
        })
    }

    /// Makes the context the one that the calling thread's calls mean.
    pub fn make_current(&self) -> Answer<()> {
        self.driver.make_current(self.context)
    }

    /// The ring for streaming reads; the first call allocates it, in the order of `stream`.
    pub fn ring(&self, stream: Handle) -> Answer<Ring> {
        let mut memory = locked(&self.memory);
        if let Some(ring) = memory.ring {
            return Ok(ring);
        }
        let bytes = ring_bytes(&self.about);
        let ring = Ring { address: self.filled(bytes, stream)?, pieces: bytes / 16 };
        memory.ring = Some(ring);
        Ok(ring)
    }

    /// The address of at least `bytes` bytes of ones, for matrices; grows at need.
    pub fn scratch(&self, bytes: u64, stream: Handle) -> Answer<u64> {
        let mut memory = locked(&self.memory);
        match memory.scratch.last() {
            Some(&(address, size)) if size >= bytes => Ok(address),
            _ => {
                let address = self.filled(bytes, stream)?;
                memory.scratch.push((address, bytes));
                Ok(address)
            }
        }
    }

    /// New memory, whose contents are set in the order of `stream`.
    fn filled(&self, bytes: u64, stream: Handle) -> Answer<u64> {
        let address = self.driver.memory_alloc(bytes as usize)?;
        let filled = self.driver.memory_fill(address, ONE, (bytes / 4) as usize, stream);
        filled.map(|()| address).inspect_err(|_| {
            let _ = self.driver.memory_free(address);
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A device that is gone refuses all of this; there is nobody to tell.
        let _ = self.make_current();
        let memory = std::mem::take(&mut *locked(&self.memory));
        let ring = memory.ring.map(|ring| ring.address);
        let scratch = memory.scratch.into_iter().map(|(address, _)| address);
        for address in scratch.chain(ring).chain([self.sink]) {
            let _ = self.driver.memory_free(address);
        }
        let _ = self.driver.module_unload(self.module);
        let _ = self.driver.primary_release(self.device);
    }
}

fn build(driver: &Driver) -> Answer<(Handle, Kernels, u64)> {
    let text = CString::new(KERNELS).expect("the kernels' text has no 0");
    let module = driver.module_load(&text)?;
    built(driver, module).map(|(kernels, sink)| (module, kernels, sink)).inspect_err(|_| {
        // The first refusal is the one to tell.
        let _ = driver.module_unload(module);
    })
}

fn built(driver: &Driver, module: Handle) -> Answer<(Kernels, u64)> {
    let function = |name| driver.module_function(module, name);
    let kernels = Kernels {
        empty: function("everwarm_empty")?,
        fma: function("everwarm_fma")?,
        stream: function("everwarm_stream")?,
        matmul: function("everwarm_matmul")?,
        ping: function("everwarm_ping")?,
        ticks: function("everwarm_ticks")?,
    };
    Ok((kernels, driver.memory_alloc(16)?))
}

/// A power of two well above the cache, and at most a quarter of the memory.
fn ring_bytes(about: &About) -> u64 {
    let wanted = (RING_CACHES * about.cache).max(RING_MIN).next_power_of_two();
    let quarter = (about.memory / 4).max(1 << 20);
    // The largest power of two that is no more than the quarter.
    wanted.min(1 << quarter.ilog2())
}

/// The lock; a thread that panicked while it held it left nothing half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Refusal {
    /// True if memory was short, which hurts nothing else.
    pub fn is_out_of_memory(&self) -> bool {
        self.code == Refusal::OUT_OF_MEMORY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_holds_the_cache_several_times_and_leaves_the_memory() {
        let about = |memory, cache| About {
            name: String::new(),
            multiprocessors: 1,
            memory,
            cache,
            capability: String::new(),
            cuda: String::new(),
        };
        assert_eq!(ring_bytes(&about(141 << 30, 60 << 20)), 512 << 20);
        assert_eq!(ring_bytes(&about(8 << 30, 0)), 256 << 20);
        assert_eq!(ring_bytes(&about(800 << 20, 60 << 20)), 128 << 20, "a quarter, rounded down");
    }
}
