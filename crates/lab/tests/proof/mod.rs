//! Chips that nobody has seen, and runs of them as an instrument would record them.

mod instrument;
mod truth;

use everwarm_dvfs::{Chip, ControllerParameters, OperatingPoint};
use everwarm_lab::fit::Findings;
use everwarm_lab::{manifest, records, run_on_backend, scenario};
use everwarm_record::Run;
use everwarm_units::{BytesPerSecond, Cycles, Hertz, Span};
use instrument::Instrument;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
pub use truth::truth;

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
    pstates(&mut chip, &mut dice);
    controller(&mut chip.controller, &mut dice);
    let host = &mut chip.host;
    host.commit_to_start = Span::from_ms(dice.log(0.08, 0.25));
    host.commit_to_firmware = Span::from_ms(dice.between(0.3, 0.9) * host.commit_to_start.as_ms());
    host.completion_to_host = Span::from_ms(dice.log(0.06, 0.2));
    host.buffer_gap = Span::from_ms(dice.log(0.02, 0.07));
    // A credited gap that no loop can keep would leave nothing to see.
    let round_trip = (host.commit_to_start + host.completion_to_host).as_ms();
    chip.controller.credited_gap = Span::from_ms(dice.log(1.3 * round_trip, 1.4));
    wake(&mut chip, &mut dice);
    chip.kernels.overhead = Span::from_ms(dice.between(0.008, 0.03));
    chip.kernels.overhead_cycles = Cycles::n(dice.between(0.0, 6000.0));
    chip.kernels.fma_threads_per_cycle *= dice.log(0.5, 4.0);
    chip.kernels.bandwidth = BytesPerSecond::gb_s(dice.log(60.0, 400.0));
    chip.id = format!("random-{seed}");
    chip
}

/// 4 to 10 states that are used, above up to two that are not.
fn pstates(chip: &mut Chip, dice: &mut Dice) {
    let mut clock = dice.log(250.0, 700.0);
    let below = dice.between(0.0, 2.999) as usize;
    let states = below + 4 + dice.between(0.0, 6.999) as usize;
    let published = chip.pstates.clone();
    let point = |n: usize| {
        let point = OperatingPoint { clock: Hertz::mhz(clock), ..published[n.min(7)] };
        clock *= dice.log(1.06, 1.45);
        point
    };
    chip.pstates = (0..states).map(point).collect();
    chip.controller.base_pstate = 1 + below as u8;
}

fn controller(controller: &mut ControllerParameters, dice: &mut Dice) {
    controller.sample_period = Span::from_ms(dice.log(4.0, 14.0));
    controller.idle_off_delay = Span::from_ms(dice.log(0.9, 9.0));
    controller.target_utilization_pct = dice.between(75.0, 90.0);
    controller.filter_periods = dice.between(2.5, 9.0);
    controller.proportional_gain *= dice.log(0.6, 1.7);
    controller.integral_gain *= dice.log(0.6, 1.7);
    controller.output_limit_pct = dice.log(300.0, 5_000.0);
    controller.reset_periods = dice.between(3.0, 10.999) as u32;
    controller.forget_after = Span::from_ms(dice.log(300.0, 1200.0));
    controller.filter_start_pct = dice.between(10.0, 60.0);
    controller.boost_min_utilization_pct = dice.between(85.0, 95.0);
    controller.boost_step_pct = dice.between(30.0, 70.0);
    controller.burst = Span::from_ms(dice.log(2.0, 5.0));
    controller.boost_periods_burst = dice.between(1.3, 3.5);
    controller.boost_periods = controller.boost_periods_burst + dice.between(0.5, 4.0);
    controller.lasting_boost_periods = dice.log(12.0, 60.0);
    controller.lasting_boost_periods_burst = dice.log(3.0, 10.0);
    controller.boost_rise = dice.between(0.6, 1.0);
    controller.boost_fade = dice.between(0.85, 0.97);
}

fn wake(chip: &mut Chip, dice: &mut Dice) {
    let slower = dice.log(0.6, 2.0);
    let mut last = 0.0;
    for start in &mut chip.wake.start {
        // Each step of its own, but never sooner after a longer idle time.
        let latency: f64 = 0.4 + slower * dice.log(0.7, 1.4) * start.latency.as_ms();
        last = latency.max(last);
        start.latency = Span::from_ms(last);
        start.idle = start.idle.max(chip.controller.idle_off_delay);
    }
    chip.wake.start.dedup_by_key(|start| start.idle);
    chip.wake.memory_ready = Span::from_ms(dice.log(0.3, 1.2));
    chip.wake.deep_idle_after = Span::from_ms(dice.log(800.0, 1900.0));
    chip.wake.deep_idle_stall = Span::from_ms(dice.log(0.6, 3.0));
}

/// The probes on `chip`, as the instrument shows them.
pub fn record(chip: &Chip, seed: u64) -> Vec<Run> {
    let one = |name: &str| {
        let device = Box::new(Instrument::new(chip, seed));
        let run = run_on_backend(&scenario(name).unwrap(), device).unwrap();
        let text = everwarm_lab::SCENARIOS.iter().find(|one| one.name == name).unwrap().text;
        let manifest = manifest(&run, text);
        records(&run, manifest)
    };
    PROBES.map(one).into()
}

/// How far the findings in noise are from the truth, by kind. Unit: share.
pub struct Errors {
    pub kinds: Vec<(&'static str, Vec<f64>)>,
    /// States that the chip uses and that were seen, of how many.
    pub seen: (usize, usize),
    /// Clocks that were found and are none: further than 1 % from all.
    pub false_clocks: usize,
    /// What is true and was not found.
    pub missed: Vec<String>,
    /// What was found and is not so.
    pub invented: Vec<String>,
}

pub fn errors(chip: &Chip, found: &Findings) -> Errors {
    let truth = truth(chip);
    let top = chip.clock(chip.top()).as_hz();
    let used = &chip.clocks()[usize::from(chip.controller.base_pstate) - 1..];
    let shares: Vec<f64> = used.iter().map(|clock| clock.as_hz() / top).collect();
    let off = |is: f64, told: f64| (told / is - 1.0).abs();
    let told = found.iter().filter(|(name, _)| name.starts_with("clock ")).map(|(_, f)| f.value);
    let told: Vec<f64> = told.collect();
    let nearest = |all: &[f64], to: f64| {
        all.iter().map(|is| (to / is - 1.0).abs()).fold(f64::INFINITY, f64::min)
    };
    let clocks: Vec<f64> = told.iter().map(|told| nearest(&shares, *told)).collect();
    let seen = shares.iter().filter(|is| nearest(&told, **is) < 0.01).count();
    let of = |start: &str| -> Vec<f64> {
        let named = truth.iter().filter(|(name, _)| name.starts_with(start));
        named.filter_map(|(name, is)| Some(off(*is, found.get(name)?.value))).collect()
    };
    let kinds = ["idle-off", "decay", "cliff", "ramp"];
    let compared = |name: &&String| kinds.iter().any(|kind| name.starts_with(kind));
    let lacking = |name: &&String| !found.contains_key(*name);
    let beyond = |name: &&String| !truth.contains_key(*name);
    Errors {
        seen: (seen, shares.len()),
        false_clocks: clocks.iter().filter(|off| **off > 0.01).count(),
        missed: truth.keys().filter(lacking).cloned().collect(),
        invented: found.keys().filter(compared).filter(beyond).cloned().collect(),
        kinds: std::iter::once(("plateau clocks", clocks))
            .chain(kinds.iter().map(|kind| (*kind, of(kind))))
            .collect(),
    }
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
