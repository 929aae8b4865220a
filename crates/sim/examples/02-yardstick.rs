//! The deep queue that `yardstick/simpy_queue.py` runs in Python, here: its parameters, and what came
//! of it, as JSON.
//!
//! `cargo run --release -p everwarm-sim --example 02-yardstick [BUFFERS]`

#[path = "../benches/cases/mod.rs"]
#[expect(dead_code, reason = "only its clock is needed here")]
mod cases;

use cases::cpu_time;
use everwarm_dvfs::Chip;
use everwarm_sim::Machine;
use everwarm_units::{Instant, PState, Span};
use everwarm_workload::Kernel;

fn main() {
    let buffers: u64 = std::env::args().nth(1).map_or(20_000, |n| n.parse().expect("a number"));
    let chip = Chip::built_in("m2").expect("m2 is built in");
    let kernel = Kernel::Fma { iterations: 200, threads: Kernel::FMA_THREADS };
    let mut machine = Machine::new(chip.clone());
    let queue = machine.open_queue();
    let began = cpu_time();
    for _ in 0..buffers {
        machine.commit(Instant::ZERO, queue, &kernel);
    }
    let (mut end, mut left) = (Instant::ZERO, buffers);
    while left > 0 {
        machine.advance(machine.next_event().expect("buffers are in flight"));
        while let Some(done) = machine.poll_ended() {
            (end, left) = (done.gpu_end, left - 1);
        }
    }
    let seconds = (cpu_time() - began).as_secs_f64();
    println!(
        "{{\"buffers\": {buffers}, \"end_ns\": {}, \"pstate\": {}, \"seconds\": {seconds}, \"parameters\": {{{}}}}}",
        end.as_nanos(),
        machine.counters().pstate.0,
        parameters(&chip, buffers)
    );
}

fn parameters(chip: &Chip, buffers: u64) -> String {
    let c = &chip.controller;
    let k = &chip.kernels;
    let each = f64::from(Kernel::FMA_THREADS) / k.fma_threads_per_cycle;
    let base = c.base_pstate;
    let places: Vec<f64> = (base..=chip.top().0).map(|p| chip.boost_pct(PState(p))).collect();
    let clocks: Vec<f64> =
        (base..=chip.top().0).map(|p| chip.clock(PState(p)).as_hz() / 1e9).collect();
    let numbers = [
        ("buffers", buffers as f64),
        ("wake", chip.wake.latency(Span::MAX).as_nanos() as f64),
        ("stall", chip.wake.deep_idle_stall.as_nanos() as f64),
        ("buffer_gap", chip.host.buffer_gap.as_nanos() as f64),
        ("fixed", k.overhead.as_nanos() as f64),
        ("cycles", 200.0 * each + k.overhead_cycles.as_n()),
        ("sample_period", c.sample_period.as_nanos() as f64),
        ("target_utilization_pct", c.target_utilization_pct),
        ("filter_periods", c.filter_periods),
        ("filter_start_pct", c.filter_start_pct),
        ("proportional_gain", c.proportional_gain),
        ("integral_gain", c.integral_gain),
        ("output_limit_pct", c.output_limit_pct),
        ("reset_periods", f64::from(c.reset_periods)),
        ("boost_step_pct", c.boost_step_pct),
        ("boost_periods", c.boost_periods),
        ("boost_periods_burst", c.boost_periods_burst),
        ("lasting_boost_periods", c.lasting_boost_periods),
        ("lasting_boost_periods_burst", c.lasting_boost_periods_burst),
        ("boost_rise", c.boost_rise),
        ("boost_fade", c.boost_fade),
    ];
    // Not `map` on the array itself, over which the optimiser sits for ten minutes.
    let numbers: Vec<_> =
        numbers.iter().map(|(key, value)| format!("\"{key}\": {value}")).collect();
    let numbers = numbers.join(", ");
    format!("{numbers}, \"places\": {places:?}, \"clocks\": {clocks:?}")
}
