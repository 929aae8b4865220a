//! What the kernels do, as far as a host can tell.

use super::{fault, host_ns, rule};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// The kernels' names, in any order.
pub const NAMES: [&str; 6] = [
    "everwarm_empty",
    "everwarm_fma",
    "everwarm_stream",
    "everwarm_matmul",
    "everwarm_ping",
    "everwarm_ticks",
];

/// Bursts of the timer so far.
pub static BURSTS: AtomicUsize = AtomicUsize::new(0);

/// A launch with its parameters copied, as the driver does.
pub struct Job {
    kernel: usize,
    submitted: u64,
    words: [u64; 9],
    blocks: u32,
}

/// Sizes of the parameters, as `kernels.ptx` declares them.
fn sizes(kernel: usize) -> &'static [usize] {
    match NAMES[kernel] {
        "everwarm_empty" => &[8, 8, 4, 4],
        "everwarm_fma" => &[8, 8, 4, 4, 4, 4, 8],
        "everwarm_stream" => &[8, 8, 4, 4, 8, 8, 8, 8, 8],
        "everwarm_matmul" => &[8, 8, 4, 4, 8, 8, 8, 4],
        _ => &[8, 4],
    }
}

impl Job {
    pub fn read(kernel: usize, blocks: u32, parameters: *mut *mut c_void) -> Job {
        let mut words = [0; 9];
        for (n, size) in sizes(kernel).iter().enumerate() {
            // SAFETY: as many addresses were given as the kernel has parameters, each of its size; the
            // table of sizes is held against `kernels.ptx` by whoever changes either.
            let from = unsafe { *parameters.add(n) };
            words[n] = match size {
                // SAFETY: as above.
                4 => u64::from(unsafe { from.cast::<u32>().read_unaligned() }),
                // SAFETY: as above.
                _ => unsafe { from.cast::<u64>().read_unaligned() },
            };
        }
        Job { kernel, submitted: host_ns(), words, blocks }
    }

    /// Execution time. Unit: ns.
    fn takes(&self) -> u64 {
        let [.., a, b, c, d, _] = self.words;
        match NAMES[self.kernel] {
            "everwarm_empty" => 1_000,
            // 8 cycles an iteration at 2 GHz.
            "everwarm_fma" => {
                rule(a > 0 && b > 0, "a chain of nothing");
                rule(u64::from(self.blocks) * 256 >= b, "fewer threads than asked for");
                4 * a
            }
            // 1 TB/s.
            "everwarm_stream" => {
                rule((b + 1).is_power_of_two() && c <= b && d > 0, "a ring that does not fit");
                d * 16 / 1_000 + 1_000
            }
            "everwarm_matmul" => 2 * d * d * d / 10_000 + 1_000,
            _ => 0,
        }
    }
}

/// The device's timer at a time of the host: another start, 20 ppm too fast, and with steps.
fn timer(host: u64) -> u64 {
    let step = (fault(6) as u64).max(32);
    let ns = 1_700_000_000_000_000_000 + host + host / 50_000;
    ns / step * step
}

fn word(address: u64) -> &'static AtomicU64 {
    // SAFETY: a word of memory that the backend keeps while its kernels run.
    unsafe { &*(address as *const AtomicU64) }
}

pub fn run(job: &Job, free_at: &mut u64) {
    let name = NAMES[job.kernel];
    if name == "everwarm_ping" || name == "everwarm_ticks" {
        std::thread::sleep(Duration::from_millis(fault(10) as u64));
    }
    match name {
        "everwarm_ping" => ping(job.words[0], job.words[1]),
        "everwarm_ticks" => {
            let step = (fault(6) as u64).max(32);
            for n in 0..job.words[1] {
                word(job.words[0] + 8 * n).store(timer(host_ns()) + step * n, Ordering::SeqCst);
            }
        }
        _ => work(job, free_at),
    }
}

/// Takes its time and stamps.
fn work(job: &Job, free_at: &mut u64) {
    let start = (job.submitted + 3_000).max(*free_at + 1_000);
    let end = start + job.takes();
    *free_at = end;
    std::thread::sleep(Duration::from_nanos(end.saturating_sub(host_ns())));
    while host_ns() < end {
        std::thread::yield_now();
    }
    // A device that is gone, and one that forgets to say.
    if fault(3) != 0 || fault(4) != 0 {
        return;
    }
    let (slot, flags) = (job.words[0], job.words[3]);
    let cycles = |ns: u64| (2 * ns) | 1;
    if flags & 1 != 0 {
        let fresh = (0..5).all(|n| word(slot + 8 * n).load(Ordering::SeqCst) == 0);
        rule(fresh, "a slot was used again before it was empty");
        let stamps = [timer(start), cycles(start), timer(end), cycles(end)];
        for (n, stamp) in stamps.into_iter().enumerate() {
            word(slot + 8 * n as u64).store(stamp, Ordering::SeqCst);
        }
    }
    if flags & 2 != 0 {
        word(slot + 32).store(timer(end), Ordering::SeqCst);
    }
}

fn ping(mailbox: u64, rounds: u64) {
    BURSTS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: as `word`.
    let number = unsafe { &*(mailbox as *const AtomicU32) };
    for round in 1..=rounds {
        let since = host_ns();
        loop {
            let asked = number.load(Ordering::SeqCst);
            if asked == u32::MAX || host_ns() - since > 50_000_000 {
                return;
            }
            if u64::from(asked) >= round {
                break;
            }
            std::thread::yield_now();
        }
        word(mailbox + 56 + 8 * round).store(timer(host_ns()), Ordering::SeqCst);
    }
}
