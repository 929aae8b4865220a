//! Random chips: whatever a chip file may say, as far as it makes sense together.
#![allow(dead_code, reason = "each test binary uses its part")]

use everwarm_dvfs::{Chip, OperatingPoint, WakeStart};
use everwarm_units::{BytesPerSecond, Hertz, Span, Volts, Watts};
use proptest::prelude::*;
use proptest::sample::select;

fn span(ms: impl Strategy<Value = f64>) -> impl Strategy<Value = Span> {
    ms.prop_map(Span::from_ms)
}

/// P-states with ascending clocks, voltages and limits.
fn pstates() -> impl Strategy<Value = Vec<OperatingPoint>> {
    let step = (10.0..400.0f64, 0.0..100.0f64, 0.0..5.0f64);
    (100.0..1000.0f64, prop::collection::vec(step, 0..12)).prop_map(|(lowest, steps)| {
        let (mut mhz, mut mv, mut w) = (lowest, 500.0, 3.0);
        let mut all = vec![(mhz, mv, w)];
        for (more_mhz, more_mv, more_w) in steps {
            (mhz, mv, w) = (mhz + more_mhz, mv + more_mv, w + more_w);
            all.push((mhz, mv, w));
        }
        let point = |(mhz, mv, w)| OperatingPoint {
            clock: Hertz::mhz(mhz),
            voltage: Volts::mv(mv),
            power_limit: Watts::w(w),
        };
        all.into_iter().map(point).collect()
    })
}

/// Commit to start by idle time: it never gets shorter.
fn wake_start(least: Span) -> impl Strategy<Value = Vec<WakeStart>> {
    let step = (0.5..500.0f64, 0.0..1.0f64);
    prop::collection::vec(step, 1..5).prop_map(move |steps| {
        let (mut idle, mut latency) = (Span::ZERO, least);
        let entry = |(more_idle, more_latency)| {
            idle += Span::from_ms(more_idle);
            latency += Span::from_ms(more_latency);
            WakeStart { idle, latency }
        };
        steps.into_iter().map(entry).collect()
    })
}

fn with_controller(chip: Chip) -> impl Strategy<Value = Chip> {
    let top = chip.top().0;
    let regulator = (50.0..99.0, 1.0..20.0f64, 0.0..30.0, 0.0..15.0, 0.0..5000.0, 0.0..100.0f64);
    let lasting = (0.0..80.0f64, 0.0..20.0f64);
    let boost = (50.0..100.0f64, 0.0..100.0f64, 1.0..4.0f64, 0.0..6.0f64, lasting);
    let shape = (0.1..1.0f64, 0.5..1.0f64, 0u32..12);
    let times = (
        span(1.0..20.0f64),
        span(0.5..10.0f64),
        span(20.0..2000.0f64),
        span(0.0..1.0f64),
        span(0.5..8.0f64),
    );
    (Just(chip), 1..=top, regulator, boost, shape, times).prop_map(
        |(mut chip, base, regulator, boost, shape, times)| {
            let c = &mut chip.controller;
            c.base_pstate = base;
            (c.target_utilization_pct, c.filter_periods, c.proportional_gain, ..) = regulator;
            (.., c.integral_gain, c.output_limit_pct, c.filter_start_pct) = regulator;
            (c.boost_min_utilization_pct, c.boost_step_pct, c.boost_periods_burst, ..) = boost;
            c.boost_periods = c.boost_periods_burst + boost.3;
            (c.lasting_boost_periods, c.lasting_boost_periods_burst) = boost.4;
            (c.boost_rise, c.boost_fade, c.reset_periods) = shape;
            (c.sample_period, c.idle_off_delay, c.forget_after, c.credited_gap, c.burst) = times;
            chip
        },
    )
}

fn with_the_rest(chip: Chip) -> impl Strategy<Value = Chip> {
    let host = (0.0..1.0f64, span(0.0..0.3f64), span(0.0..0.1f64), span(0.0..0.3f64));
    host.prop_flat_map(move |(known, commit_to_start, buffer_gap, completion_to_host)| {
        let mut chip = chip.clone();
        chip.host.commit_to_start = commit_to_start;
        chip.host.commit_to_firmware = Span::from_ms(known * commit_to_start.as_ms());
        (chip.host.buffer_gap, chip.host.completion_to_host) = (buffer_gap, completion_to_host);
        let deep = (span(10.0..2000.0f64), span(0.0..4.0f64), span(0.0..2.0f64));
        let wiring = (span(0.0..2000.0f64), 1.0..1000.0f64);
        (Just(chip), wake_start(commit_to_start), deep, wiring, 1.0..200.0f64)
    })
    .prop_map(|(mut chip, start, (after, stall, memory), (unwired, rate), scale)| {
        (chip.wake.unwired_after, chip.wake.wiring_rate) = (unwired, BytesPerSecond::gb_s(rate));
        chip.wake.start = start;
        chip.wake.deep_idle_after = after.max(chip.controller.idle_off_delay);
        (chip.wake.deep_idle_stall, chip.wake.memory_ready) = (stall, memory);
        chip.kernels.fma_threads_per_cycle *= scale / 20.0;
        chip.kernels.flops_per_cycle *= scale / 20.0;
        chip.kernels.bandwidth = chip.kernels.bandwidth * (scale / 20.0);
        chip
    })
}

/// Built-in chips, those with other p-states, and those with nearly everything changed.
pub fn chips() -> impl Strategy<Value = Chip> {
    let built_in = || select(Chip::names()).prop_map(|name| Chip::built_in(name).unwrap());
    let other_states = (built_in(), pstates()).prop_map(|(mut chip, pstates)| {
        chip.pstates = pstates;
        chip.controller.base_pstate = chip.controller.base_pstate.min(chip.top().0);
        chip
    });
    prop_oneof![
        1 => built_in(),
        3 => other_states.prop_flat_map(with_controller).prop_flat_map(with_the_rest),
    ]
}

/// Chips that a maker might build: other p-states, and each of a built-in controller's parameters up
/// to a third off.
pub fn likely_chips() -> impl Strategy<Value = Chip> {
    let built_in = select(Chip::names()).prop_map(|name| Chip::built_in(name).unwrap());
    let factors = prop::collection::vec(0.75..1.33f64, 12);
    (built_in, pstates(), any::<bool>(), factors).prop_map(|(mut chip, pstates, own, by)| {
        if own {
            chip.pstates = pstates;
        }
        let c = &mut chip.controller;
        c.base_pstate = c.base_pstate.min(chip.pstates.len() as u8);
        let percents = [&mut c.target_utilization_pct, &mut c.boost_min_utilization_pct];
        percents.into_iter().zip(&by).for_each(|(value, by)| *value = (*value * by).min(98.0));
        let numbers = [
            &mut c.filter_periods,
            &mut c.proportional_gain,
            &mut c.integral_gain,
            &mut c.output_limit_pct,
            &mut c.lasting_boost_periods,
        ];
        numbers.into_iter().zip(&by[2..]).for_each(|(value, by)| *value *= by);
        c.boost_step_pct = (c.boost_step_pct * by[7]).min(100.0);
        for (span, by) in
            [&mut c.sample_period, &mut c.credited_gap, &mut c.burst].into_iter().zip(&by[8..])
        {
            *span = Span::from_ms(span.as_ms() * by);
        }
        chip
    })
}
