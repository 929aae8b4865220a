//! The engine's own rules, whatever the controller does: the clock is pinned where it matters.

mod common;

use common::*;
use everwarm_units::{PState, Span};
use everwarm_workload::Kernel;

fn close(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "{got}, expected {expected} +- {tolerance}");
}

#[test]
fn a_pinned_clock_gives_the_plateaus() {
    let rates = [277.0, 382.0, 504.0, 604.0, 692.0, 771.0, 835.0, 872.0];
    for (n, rate) in rates.into_iter().enumerate() {
        let mut rig = Rig::new(m2());
        rig.machine.pin(Some(PState(n as u8 + 1)));
        let all = rig.sync(&alu(0.58), 20, 0.0);
        close(alu(0.58).flops().unwrap() / took(&all[19]) / 1e6, rate, 8.0);
        let streams = rig.sync(&STREAM, 5, 0.0);
        close(STREAM.bytes().unwrap() / took(&streams[4]) / 1e6, 92.5, 2.5);
    }
}

#[test]
fn two_full_kernels_take_turns_and_a_sliver_delays_nobody() {
    let mut rig = Rig::new(m2());
    rig.machine.pin(Some(PState(8)));
    rig.deep(&alu(2.3), 1);
    let alone = span(&rig.deep(&alu(2.3), 10));
    let other = rig.machine.open_queue();
    for _ in 0..20 {
        rig.machine.commit(rig.now(), other, &group(5.5));
    }
    rig.idle(10.0);
    let (own, rest): (Vec<_>, Vec<_>) =
        rig.deep(&alu(2.3), 30).into_iter().partition(|c| c.queue == rig.queue);
    assert!(own.len() >= 10 && rest.len() > 2);
    close(span(&own[..10]), alone, 0.1);

    let mut rig = Rig::new(m2());
    rig.machine.pin(Some(PState(8)));
    let other = rig.machine.open_queue();
    for _ in 0..5 {
        rig.machine.commit(rig.now(), other, &alu(2.3));
    }
    let order: Vec<bool> =
        rig.deep(&alu(2.3), 10).iter().map(|c| c.queue == other).take(10).collect();
    assert!(order.windows(2).all(|w| w[0] != w[1]), "they alternate: {order:?}");
}

#[test]
fn gating_costs_what_it_costs() {
    let mut rig = Rig::new(m2());
    rig.sync(&STREAM, 6, 0.0);
    for (gap, expected, stream) in
        [(1.0, 0.15, 94.0), (2.0, 0.43, 36.5), (100.0, 0.64, 36.5), (1000.0, 0.79, 36.0)]
    {
        rig.idle(gap);
        let all = rig.sync(&STREAM, 6, 0.0);
        close(latency(&all[0]), expected, 0.04);
        close(STREAM.bytes().unwrap() / took(&all[0]) / 1e6, stream, 4.0);
        close(latency(&all[5]), 0.15, 1e-6);
    }
    rig.idle(2000.0);
    rig.machine.pin(Some(PState(8)));
    let all = rig.sync(&alu(0.58), 2, 0.0);
    close(latency(&all[0]), 1.8, 0.05);
    close(took(&all[0]) - took(&all[1]), 2.0, 0.01);
}

#[test]
fn a_queued_buffer_hides_the_round_trip() {
    let mut rig = Rig::new(m2());
    let sync = rig.sync(&alu(0.58), 10, 0.0);
    let host = &m2().host;
    let round_trip = (host.completion_to_host + host.commit_to_start).as_ms();
    gaps(&sync).into_iter().for_each(|gap| close(gap, round_trip, 1e-6));
    for delay in [0.0, 0.125, 0.5] {
        let all = rig.in_flight(&alu(0.58), 4, 100.0, delay);
        close(median(gaps(&all)), 0.05, 0.02);
    }
}

#[test]
fn memory_that_nobody_keeps_wired_is_waited_for_once() {
    let model = |resident| Kernel::Modelled { flops: 1e9, bytes: 1e6, resident };
    let chip = m2();
    let wiring = 1e9 / chip.wake.wiring_rate.as_b_s() * 1e3;
    let waits = |idle: f64, resident: f64, warm: bool| {
        let mut rig = Rig::new(m2());
        rig.sync(&alu(0.58), 10, 0.0);
        rig.idle(idle);
        if warm {
            // Any work begins the wiring, also that of others.
            rig.sync(&alu(5.8), 1, 0.0);
        }
        let all = rig.sync(&model(resident), 2, 0.0);
        [&all[0], &all[1]].map(|c| c.gpu_start.since(c.committed).as_ms())
    };
    let after = chip.wake.unwired_after.as_ms();
    for (idle, warm, expected) in
        [(after - 10.0, false, 0.0), (after + 10.0, false, wiring), (after + 10.0, true, 0.0)]
    {
        let [kept, rewired] = [0.0, 1e9].map(|resident| waits(idle, resident, warm));
        close(rewired[0] - kept[0], expected, 1e-3);
        close(rewired[1] - kept[1], 0.0, 1e-3);
    }
}

#[test]
fn energy_of_gpu_and_cpu() {
    let power = |rig: &mut Rig, kernel: Option<&Kernel>| {
        if let Some(kernel) = kernel {
            rig.sync_for(kernel, 2000.0, 0.0);
        } else {
            rig.idle(2000.0);
        }
        let before = rig.machine.counters();
        match kernel {
            Some(kernel) => drop(rig.sync_for(kernel, 2000.0, 0.0)),
            None => rig.idle(2000.0),
        }
        let after = rig.machine.counters();
        let span = after.at.since(before.at);
        let gpu = (after.gpu_energy - before.gpu_energy) / span;
        let cpu = (after.cpu_energy - before.cpu_energy) / span;
        (gpu.as_w(), cpu.as_w())
    };
    let mut rig = Rig::new(m2());
    close(power(&mut rig, None).0, 0.08, 1e-9);
    for (ms, cpu, tolerance) in [(5.5, 0.08, 0.03), (0.07, 1.11, 0.15)] {
        let got = power(&mut rig, Some(&group(ms)));
        close(got.0, 0.555, 0.035);
        close(got.1, cpu, tolerance);
    }
    close(power(&mut rig, Some(&Kernel::Empty)).1, 1.67, 0.2);
    close(power(&mut rig, Some(&alu(5.8))).0, 8.0, 0.6);
}

#[test]
fn a_closed_queue_ends_what_runs_and_drops_the_rest() {
    let mut rig = Rig::new(m2());
    rig.machine.pin(Some(PState(8)));
    let other = rig.machine.open_queue();
    for _ in 0..10 {
        rig.machine.commit(rig.now(), other, &alu(5.8));
    }
    rig.idle(4.0);
    rig.machine.close_queue(other);
    let done = rig.deep(&alu(0.58), 1);
    let start = done[0].gpu_start.as_ms();
    assert!((5.8..10.0).contains(&start), "it waited for one buffer of the ten: {start} ms");
    rig.idle(100.0);
    assert!(rig.machine.poll().is_none() && rig.machine.next_event().is_none());
}

#[test]
fn a_gpu_that_was_woken_for_nothing_is_gated_again() {
    let mut rig = Rig::new(m2());
    let other = rig.machine.open_queue();
    rig.machine.commit(rig.now(), other, &alu(5.8));
    rig.machine.close_queue(other);
    rig.idle(100.0);
    let counters = rig.machine.counters();
    assert_eq!(counters.pstate, PState::OFF);
    assert_eq!(counters.busy, Span::ZERO);
}
