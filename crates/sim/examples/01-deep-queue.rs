//! How fast the engine is: short buffers through queues that are kept deep, and through a host that
//! waits for each.
//!
//! `cargo run --release -p everwarm-sim --example 01-deep-queue [MILLIONS [CASES]]`

#[path = "../benches/cases/mod.rs"]
mod cases;

use cases::{CASES, Case, cpu_time};
use everwarm_dvfs::Chip;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let millions = arguments.next().map_or(1.0, |n| n.parse().expect("a number of millions"));
    let wanted = arguments.next().map_or(CASES.len(), |n| n.parse().expect("a number of cases"));
    for case in CASES.iter().take(wanted) {
        run(case, ((millions * 1e6) as u64).max(1));
    }
    if let Some(peak) = peak_memory() {
        println!("most memory: {peak}");
    }
}

fn run(case: &Case, buffers: u64) {
    let chip = Chip::built_in("m2").expect("m2 is built in");
    let began = cpu_time();
    let (machine, last) = case.run(&chip, buffers);
    let seconds = (cpu_time() - began).as_secs_f64();
    println!(
        "{:30} {buffers} buffers, {:8.1} s of the GPU, {:.6} J, in {seconds:.4} s of CPU time: {:5.2} million a second",
        case.name,
        last.as_ms() / 1e3,
        machine.counters().gpu_energy.as_j(),
        buffers as f64 / seconds / 1e6
    );
}

/// As the system tells it, where it does.
fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().to_owned())
}
