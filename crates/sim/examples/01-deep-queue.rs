//! How fast the engine is: a million short buffers through one queue that is kept deep.
//!
//! `cargo run --release -p everwarm-sim --example 01-deep-queue`

use everwarm_dvfs::Chip;
use everwarm_sim::Machine;
use everwarm_units::Instant;
use everwarm_workload::Kernel;
use std::time::Instant as WallInstant;

fn main() {
    let (buffers, depth) = (1_000_000, 1_000);
    let chip = Chip::built_in("m2").expect("m2 is built in");
    let mut machine = Machine::new(chip);
    let queue = machine.open_queue();
    let kernel = Kernel::Fma { iterations: 200, threads: Kernel::FMA_THREADS };
    let began = WallInstant::now();
    let mut last = Instant::ZERO;
    for committed in 0..buffers {
        if committed >= depth {
            last = next_end(&mut machine);
        }
        machine.commit(machine.now(), queue, &kernel);
    }
    let wall = began.elapsed().as_secs_f64();
    println!(
        "{buffers} buffers, {:.1} s of the GPU, in {wall:.3} s: {:.2} million buffers a second",
        last.as_ms() / 1e3,
        f64::from(buffers) / wall / 1e6
    );
}

/// Lets time pass until a buffer's end is observed.
fn next_end(machine: &mut Machine) -> Instant {
    loop {
        if let Some(done) = machine.poll() {
            return done.gpu_end;
        }
        let next = machine.next_event().expect("buffers are outstanding");
        machine.advance(next);
    }
}
