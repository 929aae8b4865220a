//! What a command buffer costs the engine, by how it is submitted.
//!
//! `cargo bench -p everwarm-sim`; `docs/performance.md` has the figures and what they mean.

mod cases;

use cases::{CASES, cpu_time};
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use everwarm_dvfs::Chip;
use std::hint::black_box;
use std::time::Duration;

/// Buffers of one measurement.
const BUFFERS: u64 = 20_000;

/// CPU time of the process, written as other times are.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, began: Duration) -> Duration {
        cpu_time() - began
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn engine(criterion: &mut Criterion<CpuTime>) {
    let chip = Chip::built_in("m2").expect("m2 is built in");
    let mut group = criterion.benchmark_group("engine");
    group.throughput(Throughput::Elements(BUFFERS));
    group.warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(3));
    group.sample_size(20);
    for case in CASES {
        group.bench_with_input(BenchmarkId::from_parameter(case.name), &case, |bench, case| {
            bench.iter(|| case.run(black_box(&chip), BUFFERS).1);
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = engine
}
criterion_main!(benches);
