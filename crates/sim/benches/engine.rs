//! What a command buffer costs the engine, by how it is submitted.
//!
//! `cargo bench -p everwarm-sim`; `docs/performance.md` has the figures and what they mean.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use everwarm_dvfs::Chip;
use everwarm_sim::Machine;
use everwarm_units::Span;
use everwarm_workload::Kernel;
use std::hint::black_box;
use std::time::Duration;

/// Buffers of one measurement.
const BUFFERS: u64 = 20_000;

const SHORT: Kernel = Kernel::Fma { iterations: 200, threads: Kernel::FMA_THREADS };
const SLIVER: Kernel = Kernel::Fma { iterations: 4_000, threads: Kernel::GROUP_THREADS };

/// How buffers are submitted.
#[derive(Clone, Copy)]
struct Load {
    queues: u64,
    /// In flight over all queues.
    depth: u64,
    /// Time that the host sleeps before each commit.
    idle: Span,
    kernel: fn(u64) -> Kernel,
}

fn varying(n: u64) -> Kernel {
    let iterations = 50 + (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u32 * 4;
    Kernel::Fma { iterations, threads: Kernel::FMA_THREADS }
}

fn run(chip: &Chip, load: Load) -> u64 {
    let mut machine = Machine::new(chip.clone());
    let queues: Vec<_> = (0..load.queues).map(|_| machine.open_queue()).collect();
    let (mut committed, mut done) = (0, 0);
    while done < BUFFERS {
        while committed < BUFFERS && committed - done < load.depth {
            if !load.idle.is_zero() {
                machine.advance(machine.now() + load.idle);
            }
            let queue = queues[(committed % load.queues) as usize];
            machine.commit(machine.now(), queue, &(load.kernel)(committed));
            committed += 1;
        }
        let Some(next) = machine.next_event() else { break };
        machine.advance(next);
        while let Some(completion) = machine.poll() {
            black_box(completion);
            done += 1;
        }
    }
    machine.now().as_nanos()
}

fn engine(criterion: &mut Criterion) {
    let chip = Chip::built_in("m2").expect("m2 is built in");
    let deep = Load { queues: 1, depth: 1_000, idle: Span::ZERO, kernel: |_| SHORT };
    let beside: fn(u64) -> Kernel = |n| if n % 2 == 0 { SHORT } else { SLIVER };
    let cases = [
        ("deep queue", deep),
        ("deep queue, varying lengths", Load { kernel: varying, ..deep }),
        ("four queues", Load { queues: 4, depth: 4_000, ..deep }),
        ("four queues, varying lengths", Load { queues: 4, depth: 4_000, kernel: varying, ..deep }),
        ("hold beside full kernels", Load { queues: 2, kernel: beside, ..deep }),
        ("synchronous loop", Load { depth: 1, ..deep }),
        ("gated before each", Load { depth: 1, idle: Span::ms(5), ..deep }),
    ];
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(BUFFERS));
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    group.sample_size(20);
    for (name, load) in cases {
        group.bench_with_input(BenchmarkId::from_parameter(name), &load, |bench, load| {
            bench.iter(|| run(black_box(&chip), *load));
        });
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
