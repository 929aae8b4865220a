//! Chips that nobody has seen, and runs of them as an instrument would record them.

use everwarm_dvfs::{Chip, OperatingPoint};
use everwarm_lab::{manifest, records, run_on_chip, scenario};
use everwarm_record::Run;
use everwarm_units::{BytesPerSecond, Hertz, Span};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The scenarios that are fitted.
pub const PROBES: [&str; 5] = ["fit-idle", "fit-wake", "fit-decay", "fit-ramp", "fit-gaps"];

pub struct Dice(ChaCha8Rng);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Evenly between `low` and `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly on a logarithmic scale.
    pub fn log(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// About normal, with deviation 1: twelve even ones.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.between(0.0, 1.0)).sum::<f64>() - 6.0
    }
}

/// A chip whose every value that matters to time is drawn anew.
pub fn random_chip(seed: u64) -> Chip {
    let mut dice = Dice::new(seed);
    let mut chip = Chip::built_in("m2").unwrap();
    let mut clock = dice.log(250.0, 700.0);
    let states = 4 + (dice.between(0.0, 6.999)) as usize;
    chip.pstates = (0..states)
        .map(|n| {
            let point = OperatingPoint { clock: Hertz::mhz(clock), ..chip.pstates[n.min(7)] };
            clock *= dice.log(1.06, 1.45);
            point
        })
        .collect();
    let controller = &mut chip.controller;
    controller.base_pstate = 1;
    controller.sample_period = Span::from_ms(dice.log(4.0, 14.0));
    controller.idle_off_delay = Span::from_ms(dice.log(0.9, 9.0));
    controller.target_utilization_pct = dice.between(75.0, 90.0);
    controller.filter_periods = dice.between(2.5, 9.0);
    controller.proportional_gain *= dice.log(0.6, 1.7);
    controller.integral_gain *= dice.log(0.6, 1.7);
    controller.output_limit_pct = dice.log(300.0, 5_000.0);
    controller.boost_step_pct = dice.between(30.0, 70.0);
    controller.boost_periods_burst = dice.between(1.3, 3.5);
    controller.boost_periods = controller.boost_periods_burst + dice.between(0.5, 4.0);
    controller.lasting_boost_periods = dice.log(12.0, 60.0);
    controller.lasting_boost_periods_burst = dice.log(3.0, 10.0);
    controller.filter_start_pct = dice.between(10.0, 60.0);
    let host = &mut chip.host;
    host.commit_to_start = Span::from_ms(dice.log(0.08, 0.25));
    host.commit_to_firmware = Span::from_ms(dice.between(0.3, 0.9) * host.commit_to_start.as_ms());
    host.completion_to_host = Span::from_ms(dice.log(0.06, 0.2));
    host.buffer_gap = Span::from_ms(dice.log(0.02, 0.07));
    // A credited gap that no loop can keep would leave nothing to see.
    let round_trip = (host.commit_to_start + host.completion_to_host).as_ms();
    controller.credited_gap = Span::from_ms(dice.log(1.3 * round_trip, 1.4));
    let slower = dice.log(0.6, 2.0);
    for start in &mut chip.wake.start {
        let latency = 0.5 + slower * start.latency.as_ms();
        start.latency = Span::from_ms(latency);
        start.idle = start.idle.max(chip.controller.idle_off_delay);
    }
    chip.wake.start.dedup_by_key(|start| start.idle);
    chip.wake.memory_ready = Span::from_ms(dice.log(0.3, 1.2));
    chip.wake.deep_idle_stall = Span::from_ms(dice.log(0.6, 3.0));
    chip.kernels.overhead = Span::from_ms(dice.between(0.008, 0.03));
    chip.kernels.fma_threads_per_cycle *= dice.log(0.5, 4.0);
    chip.kernels.bandwidth = BytesPerSecond::gb_s(dice.log(60.0, 400.0));
    chip.id = format!("random-{seed}");
    chip
}

/// The probes on `chip`, as they happened.
pub fn record(chip: &Chip) -> Vec<Run> {
    let one = |name: &str| {
        let run = run_on_chip(&scenario(name).unwrap(), chip).unwrap();
        let text = everwarm_lab::SCENARIOS.iter().find(|one| one.name == name).unwrap().text;
        let manifest = manifest(&run, text);
        let mut run = records(&run, manifest);
        // No real GPU tells.
        run.dispatches.iter_mut().for_each(|dispatch| dispatch.pstate = None);
        run.telemetry.clear();
        run
    };
    PROBES.map(one).into()
}

/// The same as an instrument sees it: 1 % of noise on durations, microseconds on instants, and one
/// buffer in 200 that took half as long again.
pub fn noisy(mut runs: Vec<Run>, seed: u64) -> Vec<Run> {
    let mut dice = Dice::new(seed);
    for dispatch in runs.iter_mut().flat_map(|run| &mut run.dispatches) {
        let took = (dispatch.gpu_end_ns - dispatch.gpu_start_ns) as f64;
        let strange = if dice.between(0.0, 1.0) < 0.005 { 1.5 } else { 1.0 };
        let took = took * (1.0 + 0.01 * dice.normal()) * strange;
        let start = dispatch.gpu_start_ns as f64 + 2_000.0 * dice.normal();
        dispatch.gpu_start_ns = start.max(dispatch.committed_ns as f64) as u64;
        dispatch.gpu_end_ns = dispatch.gpu_start_ns + took.max(1.0) as u64;
        let observed = dispatch.observed_ns as f64 + 5_000.0 * dice.normal().abs();
        dispatch.observed_ns = (observed as u64).max(dispatch.gpu_end_ns);
    }
    runs
}

/// How far the findings in noise are from the truth, by kind. Unit: share.
pub struct Errors {
    pub kinds: Vec<(&'static str, Vec<f64>)>,
    /// States of the chip that were seen, of how many.
    pub seen: (usize, usize),
}

pub fn errors(chip: &Chip, found: &everwarm_lab::fit::Findings) -> Errors {
    let truth = everwarm_lab::fit::read_off(&record(chip)).unwrap().0;
    let top = chip.clock(chip.top()).as_hz();
    let shares: Vec<f64> = chip.clocks().iter().map(|clock| clock.as_hz() / top).collect();
    let off = |is: f64, told: f64| (told / is - 1.0).abs();
    let clocks: Vec<f64> = found
        .iter()
        .filter(|(name, _)| name.starts_with("clock "))
        .map(|(_, f)| shares.iter().map(|is| off(*is, f.value)).fold(f64::INFINITY, f64::min))
        .collect();
    let idle_off = found.get("idle-off");
    let is = chip.controller.idle_off_delay.as_ms();
    let of = |start: &str| -> Vec<f64> {
        let named = truth.iter().filter(|(name, _)| name.starts_with(start));
        named
            .map(|(name, f)| found.get(name).map_or(1.0, |told| off(f.value, told.value)))
            .collect()
    };
    Errors {
        seen: (clocks.len(), shares.len()),
        kinds: vec![
            ("plateau clocks", clocks),
            ("idle-off", vec![idle_off.map_or(1.0, |f| off(is, f.value))]),
            ("decay", of("decay")),
            ("gap cliff", of("cliff")),
            ("ramp", of("ramp")),
        ],
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
