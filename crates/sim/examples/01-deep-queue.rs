//! How fast the engine is: short buffers through queues that are kept deep.
//!
//! `cargo run --release -p everwarm-sim --example 01-deep-queue [MILLIONS [CASES]]`

use everwarm_dvfs::Chip;
use everwarm_sim::{Machine, QueueId};
use everwarm_units::Instant;
use everwarm_workload::Kernel;
use std::time::Instant as WallInstant;

/// The kernel of the n-th buffer.
type Work<'a> = &'a dyn Fn(u64) -> Kernel;

/// Buffers that wait in each queue.
const DEPTH: u64 = 1_000;

fn main() {
    let millions =
        std::env::args().nth(1).map_or(1.0, |n| n.parse().expect("a number of millions"));
    let buffers = (millions * 1e6) as u64;
    let short = |_| Kernel::Fma { iterations: 200, threads: Kernel::FMA_THREADS };
    let varying = |n: u64| Kernel::Fma {
        iterations: 50 + (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u32 * 4,
        threads: Kernel::FMA_THREADS,
    };
    let beside = |n: u64| match n % 2 {
        0 => short(n),
        _ => Kernel::Fma { iterations: 4_000, threads: Kernel::GROUP_THREADS },
    };
    let cases: [(&str, u64, Work<'_>); 5] = [
        ("one queue", 1, &short),
        ("one queue, varying lengths", 1, &varying),
        ("four queues", 4, &short),
        ("four queues, varying lengths", 4, &varying),
        ("a hold beside full kernels", 2, &beside),
    ];
    let wanted = std::env::args().nth(2).map_or(5, |n| n.parse().expect("a number of cases"));
    for (name, queues, kernel) in cases.into_iter().take(wanted) {
        run(name, buffers, queues, kernel);
    }
    if let Some(peak) = peak_memory() {
        println!("most memory: {peak}");
    }
}

/// As the system tells it, where it does.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().to_owned())
}

fn run(name: &str, buffers: u64, queues: u64, kernel: Work<'_>) {
    let mut machine = Machine::new(Chip::built_in("m2").expect("m2 is built in"));
    let all: Vec<QueueId> = (0..queues).map(|_| machine.open_queue()).collect();
    let began = WallInstant::now();
    let (mut committed, mut done, mut last) = (0, 0, Instant::ZERO);
    while done < buffers {
        while committed < buffers && committed - done < DEPTH * queues {
            let queue = all[(committed % queues) as usize];
            machine.commit(machine.now(), queue, &kernel(committed));
            committed += 1;
        }
        // As a host that looks once in a while.
        while let Some(next) = machine.next_event() {
            machine.advance(next);
            let mut any = false;
            while let Some(completion) = machine.poll() {
                (done, last, any) = (done + 1, completion.gpu_end, true);
            }
            if any {
                break;
            }
        }
    }
    let wall = began.elapsed().as_secs_f64();
    let counters = machine.counters();
    println!(
        "{name:30} {buffers} buffers, {:8.1} s of the GPU, {:.6} J, in {wall:.3} s: {:5.2} million a second",
        last.as_ms() / 1e3,
        counters.gpu_energy.as_j(),
        buffers as f64 / wall / 1e6
    );
}
