//! A GPU that is a thread and a model of time: it does no arithmetic, but ends when it should.
//!
//! Command buffers run one at a time in commit order, unless those of one queue write to nothing
//! together: then they overlap, as Metal lets them. Stamps are of CLOCK_MONOTONIC, as the host's
//! clock of the code under test is on Linux. Tests can make it fail.

use crate::commands::{Finished, Sent};
use crate::msl::Kernel;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Threads of one threadgroup of the largest size.
pub const GROUP_MOST: usize = 1024;

/// The longest memory in one piece.
pub const LENGTH_MOST: usize = 1 << 30;

/// From a commit to the start on an idle GPU. Unit: s.
const LATENCY: f64 = 20e-6;

/// What a command buffer costs besides its work. Unit: s.
const FIXED: f64 = 2e-6;

/// Memory traffic. Unit: B/s.
const BANDWIDTH: f64 = 100e9;

/// Arithmetic of products. Unit: operations/s.
const ARITHMETIC: f64 = 1e12;

/// Seconds on the host's clock.
pub fn now() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the structure that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// How long a dispatch takes. Unit: s. `words` are its arguments given by value, `threads` its grid.
pub fn duration(kernel: &Kernel, words: &[u32], threads: [usize; 3]) -> f64 {
    let word = |index: usize| f64::from(words.get(index).copied().unwrap_or(0));
    match kernel.name.as_str() {
        // A millionth of a second an iteration when 65,536 threads share it, a quarter for few.
        "fma_chain" => word(0) * (0.25 + 0.75 * threads[0] as f64 / 65_536.0) * 1e-6,
        "streaming_read" => word(0) * 16.0 / BANDWIDTH,
        "matrix_product" => 2.0 * (4.0 * word(0)).powi(3) / ARITHMETIC,
        _ => 0.0,
    }
}

/// Bytes that a dispatch reaches in its argument `index`, as kernels.metal has it.
pub fn reach(kernel: &Kernel, index: usize, words: &[u32], threads: [usize; 3]) -> usize {
    let word = |index: usize| words.get(index).map_or(0, |word| *word as usize);
    match (kernel.name.as_str(), index) {
        ("nothing", 0) => 4 * threads[0],
        ("fma_chain" | "streaming_read", 0) => 4 * threads[0].min(65_536),
        ("streaming_read", 1) => 16 * (word(1) + 1),
        // A thread makes four rows of four; those beyond the matrix would write outside.
        ("matrix_product", 0) => 64 * word(0) * word(0).max(threads[0]).max(threads[1]),
        ("matrix_product", 1 | 2) => 64 * word(0) * word(0),
        _ => 0,
    }
}

/// What a test wants to go wrong.
#[derive(Default)]
struct Trouble {
    /// Error code and text of the next command buffer.
    failure: Option<(isize, String)>,
    /// Added to stamps. Unit: s.
    shift: f64,
}

static TROUBLE: Mutex<Trouble> = Mutex::new(Trouble { failure: None, shift: 0.0 });
static OVERTAKING: AtomicBool = AtomicBool::new(false);

fn trouble() -> std::sync::MutexGuard<'static, Trouble> {
    TROUBLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next command buffer fails with this code.
pub fn next_fails(code: isize, text: &str) {
    trouble().failure = Some((code, text.to_owned()));
}

/// Stamps are of a clock that is ahead by so many seconds.
pub fn shift_stamps(seconds: f64) {
    trouble().shift = seconds;
}

/// Handlers of two command buffers are called in the wrong order.
pub fn let_handlers_overtake(on: bool) {
    OVERTAKING.store(on, Ordering::SeqCst);
}

/// Command buffers of which the GPU still holds something.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Waits until the GPU holds nothing any more.
pub fn wait_until_idle() {
    while PENDING.load(Ordering::SeqCst) > 0 {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Tells of a command buffer and lets go of it.
fn tell(finished: Finished) {
    finished.tell();
    PENDING.fetch_sub(1, Ordering::SeqCst);
}

/// Gives the GPU a command buffer.
pub fn send(buffer: Sent) {
    PENDING.fetch_add(1, Ordering::SeqCst);
    static GPU: OnceLock<Mutex<Sender<Sent>>> = OnceLock::new();
    let gpu = GPU.get_or_init(|| {
        let (sender, work) = channel();
        let spawned = std::thread::Builder::new().name("fake GPU".into()).spawn(move || run(&work));
        spawned.expect("a thread can be started");
        Mutex::new(sender)
    });
    let gpu = gpu.lock().unwrap_or_else(PoisonError::into_inner);
    gpu.send(buffer).expect("the GPU runs as long as the process");
}

/// What the GPU did last for a queue.
#[derive(Clone, Default)]
struct Last {
    queue: usize,
    start: f64,
    end: f64,
    written: Vec<usize>,
}

fn run(work: &Receiver<Sent>) {
    let (mut free, mut lasts) = (0.0f64, Vec::<Last>::new());
    let mut held: Option<Finished> = None;
    loop {
        let next = match held {
            None => work.recv().ok(),
            Some(_) => work.recv_timeout(Duration::from_millis(5)).ok(),
        };
        let Some(buffer) = next else {
            match held.take() {
                Some(finished) => tell(finished),
                None => return,
            }
            continue;
        };
        let (start, end) = place(&buffer, &mut free, &mut lasts);
        std::thread::sleep(Duration::from_secs_f64((end - now()).max(0.0)));
        let (failure, shift) = {
            let mut trouble = trouble();
            (trouble.failure.take(), trouble.shift)
        };
        let finished = buffer.finish([start + shift, end + shift], failure);
        match held.take() {
            Some(earlier) => {
                tell(finished);
                tell(earlier);
            }
            None if OVERTAKING.load(Ordering::SeqCst) => held = Some(finished),
            None => tell(finished),
        }
    }
}

/// When a command buffer runs.
fn place(buffer: &Sent, free: &mut f64, lasts: &mut Vec<Last>) -> (f64, f64) {
    let written = buffer.written();
    let last = lasts.iter().position(|last| last.queue == buffer.queue());
    let depends = |last: &Last| {
        last.written.is_empty() || written.iter().any(|memory| last.written.contains(memory))
    };
    let ready = match last.map(|at| &lasts[at]) {
        Some(last) if !depends(last) => last.start.max(last.end - 1e-6),
        _ => *free,
    };
    let start = ready.max(buffer.committed() + LATENCY);
    let end = start + FIXED + buffer.duration();
    *free = free.max(end);
    let new = Last { queue: buffer.queue(), start, end, written };
    match last {
        Some(at) => lasts[at] = new,
        None => lasts.push(new),
    }
    (start, end)
}
