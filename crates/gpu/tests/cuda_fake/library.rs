//! A CUDA driver and a management library without a GPU, compiled by the tests into a library that
//! the unchanged backend loads.
//!
//! It is here to see that the backend makes the right calls in the right order. It does not compile
//! PTX: it knows the kernels by name, takes as long as they would, and writes what they would. What
//! the real driver would only punish now and then is a broken rule here, told by `fake_broken`.
//! Faults are set by `fake_fault`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

mod kernels;
mod management;

/// Faults by number, see `cuda_fake/mod.rs`.
static FAULTS: [AtomicU32; 11] = [const { AtomicU32::new(0) }; 11];
static STATE: Mutex<State> = Mutex::new(State::new());

thread_local! {
    static CURRENT: Cell<bool> = const { Cell::new(false) };
}

struct State {
    context_shares: u32,
    modules: u32,
    streams: BTreeMap<usize, Stream>,
    /// Addresses and sizes.
    memory: BTreeMap<u64, usize>,
    next: usize,
    broken: Vec<String>,
}

struct Stream {
    jobs: Sender<kernels::Job>,
    pending: Arc<AtomicU64>,
}

impl State {
    const fn new() -> State {
        State {
            context_shares: 0,
            modules: 0,
            streams: BTreeMap::new(),
            memory: BTreeMap::new(),
            next: 1,
            broken: Vec::new(),
        }
    }
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn rule(holds: bool, what: &str) {
    if !holds {
        state().broken.push(what.to_owned());
    }
}

fn fault(number: usize) -> c_int {
    FAULTS[number].load(Ordering::SeqCst) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn fake_fault(number: u32, value: u32) {
    FAULTS[number as usize].store(value, Ordering::SeqCst);
}

/// Writes the broken rules as lines; returns how many there are.
#[unsafe(no_mangle)]
extern "C" fn fake_broken(text: *mut u8, room: usize) -> usize {
    let state = state();
    let joined = state.broken.join("\n");
    let count = joined.len().min(room.saturating_sub(1));
    write_text(text.cast(), room, &joined[..count]);
    state.broken.len()
}

/// Kernels that were asked for the timer, round after round.
#[unsafe(no_mangle)]
extern "C" fn fake_bursts() -> usize {
    kernels::BURSTS.load(Ordering::SeqCst)
}

/// What a process still holds: shares in the context, streams, pieces of memory, modules.
#[unsafe(no_mangle)]
extern "C" fn fake_held() -> usize {
    let state = state();
    state.context_shares as usize
        + state.streams.len()
        + state.memory.len()
        + state.modules as usize
}

fn write<T>(to: *mut T, value: T) -> c_int {
    // SAFETY: callers of the driver give a place for the answer.
    unsafe { to.write(value) };
    0
}

fn write_text(to: *mut c_char, room: usize, text: &str) -> c_int {
    let count = text.len().min(room - 1);
    // SAFETY: callers of the driver give a place of so much room.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), count);
        *to.add(count) = 0;
    }
    0
}

fn text(from: *const c_char) -> String {
    // SAFETY: callers of the driver give texts that end with a 0.
    unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
}

/// Calls that mean an object of a context.
fn in_context(call: &str) {
    rule(CURRENT.get(), &format!("{call} without a current context"));
}

#[cfg(not(blank_library))]
#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    if cfg!(refusing_driver) { 100 } else { 0 }
}
#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(to: *mut c_int) -> c_int {
    write(to, 12_040)
}
#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: c_int, to: *mut *const c_char) -> c_int {
    let name = match code {
        2 => c"CUDA_ERROR_OUT_OF_MEMORY",
        46 => c"CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => c"CUDA_ERROR_NO_DEVICE",
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        _ => return 1,
    };
    write(to, name.as_ptr())
}
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(to: *mut c_int) -> c_int {
    write(to, if cfg!(empty_driver) { 0 } else { 2 })
}
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(to: *mut c_int, ordinal: c_int) -> c_int {
    write(to, ordinal)
}
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(to: *mut c_char, room: c_int, _device: c_int) -> c_int {
    write_text(to, room as usize, "Fake GPU")
}
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(to: *mut c_int, which: c_int, _device: c_int) -> c_int {
    let value = match which {
        16 => 4,
        38 => 8 << 20,
        75 => 9,
        76 => 0,
        _ => return 1,
    };
    write(to, value)
}
#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(to: *mut usize, _device: c_int) -> c_int {
    write(to, 4 << 30)
}
#[cfg(not(old_driver))]
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid(to: *mut [u8; 16], device: c_int) -> c_int {
    write(to, [device as u8; 16])
}
#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(to: *mut c_char, room: c_int, device: c_int) -> c_int {
    write_text(to, room as usize, &format!("0000:0{device}:00.0"))
}
#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(to: *mut *mut c_void, device: c_int) -> c_int {
    if fault(5) != 0 {
        return fault(5);
    }
    state().context_shares += 1;
    write(to, (0x1000 + device as usize) as *mut c_void)
}
#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> c_int {
    let mut state = state();
    state.context_shares -= 1;
    0
}
#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    CURRENT.set(!context.is_null());
    0
}
#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(to: *mut *mut c_void, text: *const c_void) -> c_int {
    in_context("cuModuleLoadData");
    let text = self::text(text.cast());
    rule(text.contains(".target sm_"), "a module that is no PTX");
    state().modules += 1;
    write(to, 0x2000 as *mut c_void)
}
#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(_module: *mut c_void) -> c_int {
    in_context("cuModuleUnload");
    state().modules -= 1;
    0
}
#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(
    to: *mut *mut c_void,
    _module: *mut c_void,
    name: *const c_char,
) -> c_int {
    let name = text(name);
    match kernels::NAMES.iter().position(|known| *known == name) {
        Some(n) => write(to, (0x3000 + n) as *mut c_void),
        None => 500,
    }
}

fn allocate(bytes: usize) -> u64 {
    let layout = std::alloc::Layout::from_size_align(bytes.max(1), 4096).unwrap();
    // Untouched, so that large ones cost nothing.
    // SAFETY: the layout is not empty.
    let address = unsafe { std::alloc::alloc(layout) } as u64;
    state().memory.insert(address, bytes);
    address
}

fn release(address: u64, call: &str) -> c_int {
    let size = state().memory.remove(&address);
    rule(size.is_some(), &format!("{call} of memory that is not there"));
    if let Some(bytes) = size {
        let layout = std::alloc::Layout::from_size_align(bytes.max(1), 4096).unwrap();
        // SAFETY: it was allocated with this layout, and has just been forgotten.
        unsafe { std::alloc::dealloc(address as *mut u8, layout) };
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(to: *mut u64, bytes: usize) -> c_int {
    in_context("cuMemAlloc");
    if fault(2) != 0 || bytes > 4 << 30 {
        return 2;
    }
    std::thread::sleep(Duration::from_millis(fault(9) as u64));
    write(to, allocate(bytes))
}
#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    in_context("cuMemFree");
    release(address, "cuMemFree")
}
#[unsafe(no_mangle)]
extern "C" fn cuMemsetD32Async(
    address: u64,
    word: c_uint,
    words: usize,
    _stream: *mut c_void,
) -> c_int {
    in_context("cuMemsetD32Async");
    let inside = state().memory.get(&address).is_some_and(|bytes| words * 4 <= *bytes);
    rule(inside, "cuMemsetD32Async beyond its memory");
    if words * 4 <= 1 << 20 {
        // SAFETY: just seen to lie inside memory of ours.
        let words = unsafe { std::slice::from_raw_parts_mut(address as *mut u32, words) };
        words.fill(word);
    }
    0
}
#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(to: *mut *mut c_void, bytes: usize, flags: c_uint) -> c_int {
    in_context("cuMemHostAlloc");
    rule(flags == 3, "pinned memory that is not portable and mapped");
    if fault(2) != 0 {
        return 2;
    }
    write(to, allocate(bytes) as *mut c_void)
}
#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: *mut c_void) -> c_int {
    in_context("cuMemFreeHost");
    release(address as u64, "cuMemFreeHost")
}
#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(
    to: *mut u64,
    host: *mut c_void,
    _flags: c_uint,
) -> c_int {
    if fault(8) != 0 {
        return fault(8);
    }
    write(to, host as u64)
}
#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(to: *mut *mut c_void, flags: c_uint) -> c_int {
    in_context("cuStreamCreate");
    rule(flags == 1, "a stream that waits for the default one");
    let (jobs, queue) = channel::<kernels::Job>();
    let pending = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&pending);
    std::thread::spawn(move || {
        let mut free_at = 0;
        for job in queue {
            kernels::run(&job, &mut free_at);
            theirs.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let mut state = state();
    let number = state.next;
    state.next += 1;
    state.streams.insert(number, Stream { jobs, pending });
    write(to, number as *mut c_void)
}
#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> c_int {
    in_context("cuStreamDestroy");
    let gone = state().streams.remove(&(stream as usize));
    rule(gone.is_some(), "cuStreamDestroy of a stream that is not there");
    let idle = gone.is_some_and(|s| s.pending.load(Ordering::SeqCst) == 0);
    rule(idle || fault(3) != 0, "a stream was destroyed with work in it");
    0
}
fn pending(stream: *mut c_void, call: &str) -> u64 {
    in_context(call);
    let pending = state().streams.get(&(stream as usize)).map(|s| Arc::clone(&s.pending));
    rule(pending.is_some(), &format!("{call} of a stream that is not there"));
    pending.map_or(0, |pending| pending.load(Ordering::SeqCst))
}
#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: *mut c_void) -> c_int {
    match (pending(stream, "cuStreamQuery"), fault(3)) {
        (0, 0) => 0,
        (_, 0) => 600,
        (_, code) => code,
    }
}
#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> c_int {
    while pending(stream, "cuStreamSynchronize") > 0 {
        if fault(3) != 0 {
            return fault(3);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    fault(3)
}
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    _shared: c_uint,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    in_context("cuLaunchKernel");
    let shape = [grid_x, grid_y, grid_z, block_x, block_y, block_z];
    rule(shape.iter().all(|n| *n > 0) && block_x <= 1024, "a launch of no or too many threads");
    if fault(1) != 0 {
        return fault(1);
    }
    let job = kernels::Job::read(function as usize - 0x3000, grid_x, parameters);
    let state = state();
    let Some(stream) = state.streams.get(&(stream as usize)) else { return 400 };
    stream.pending.fetch_add(1, Ordering::SeqCst);
    stream.jobs.send(job).unwrap();
    0
}

/// CLOCK_MONOTONIC, counted from the first look.
fn host_ns() -> u64 {
    static BEGIN: Mutex<Option<Instant>> = Mutex::new(None);
    let begin = *BEGIN.lock().unwrap().get_or_insert_with(Instant::now);
    begin.elapsed().as_nanos() as u64
}
