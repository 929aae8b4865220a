//! The loads under which the engine is timed, and the host that submits them: one list for
//! `cargo bench -p everwarm-sim`, the example `01-deep-queue` and, through it, `cargo xtask bench`.
//!
//! Time is the process's own CPU time, so that others on the machine cost a figure little.

use everwarm_dvfs::Chip;
use everwarm_sim::{Machine, QueueId};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;
use std::time::Duration;

/// A way of submitting buffers.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    queues: u64,
    /// In flight in each queue.
    depth: u64,
    /// Time that the host sleeps before each commit.
    idle: Span,
    /// The kernel of the n-th buffer.
    kernel: fn(u64) -> Kernel,
}

const DEEP: Case =
    Case { name: "one queue", queues: 1, depth: 1_000, idle: Span::ZERO, kernel: short };

pub const CASES: [Case; 7] = [
    DEEP,
    Case { name: "one queue, varying lengths", kernel: varying, ..DEEP },
    Case { name: "four queues", queues: 4, ..DEEP },
    Case { name: "four queues, varying lengths", queues: 4, kernel: varying, ..DEEP },
    Case { name: "a hold beside full kernels", queues: 2, kernel: beside, ..DEEP },
    Case { name: "a synchronous loop", depth: 1, ..DEEP },
    // Longer than the M2 takes to switch itself off.
    Case { name: "off before each", depth: 1, idle: Span::ms(5), ..DEEP },
];

fn short(_: u64) -> Kernel {
    Kernel::Fma { iterations: 200, threads: Kernel::FMA_THREADS }
}

fn varying(n: u64) -> Kernel {
    let iterations = 50 + (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u32 * 4;
    Kernel::Fma { iterations, threads: Kernel::FMA_THREADS }
}

fn beside(n: u64) -> Kernel {
    match n % 2 {
        0 => short(n),
        _ => Kernel::Fma { iterations: 4_000, threads: Kernel::GROUP_THREADS },
    }
}

impl Case {
    /// Submits `buffers` to a new machine and takes every completion; returns the machine and the
    /// end of its last buffer.
    pub fn run(&self, chip: &Chip, buffers: u64) -> (Machine, Instant) {
        let mut machine = Machine::new(chip.clone());
        let queues: Vec<QueueId> = (0..self.queues).map(|_| machine.open_queue()).collect();
        let mut next_queue = queues.iter().copied().cycle();
        let (mut committed, mut done, mut last) = (0, 0, Instant::ZERO);
        while done < buffers {
            while committed < buffers && committed - done < self.depth * self.queues {
                let queue = next_queue.next().expect("there is a queue");
                machine.commit(machine.now() + self.idle, queue, &(self.kernel)(committed));
                committed += 1;
            }
            // As a host that sleeps until it hears of something.
            let before = done;
            while done == before {
                machine.advance(machine.next_event().expect("buffers are in flight"));
                while let Some(completion) = machine.poll() {
                    (done, last) = (done + 1, completion.gpu_end);
                }
            }
        }
        (machine, last)
    }
}

/// CPU time of this process so far.
pub fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
