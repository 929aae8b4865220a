//! The M2 study's figures on the machine: each function runs one experiment from a start phase.

use super::*;
use everwarm_dvfs::Chip;

/// One figure: what it is, what is expected, and what was measured from each phase.
pub struct Claim {
    pub id: &'static str,
    pub low: f64,
    pub high: f64,
    pub measured: Vec<f64>,
}

impl Claim {
    /// Share of the phases in which it holds.
    pub fn held(&self) -> f64 {
        let inside = |m: &&f64| **m >= self.low - 1e-9 && **m <= self.high + 1e-9;
        self.measured.iter().filter(inside).count() as f64 / self.measured.len() as f64
    }
}

type Figures = Vec<(&'static str, f64, f64, f64)>;

fn p(c: &Completion) -> f64 {
    f64::from(c.pstate.0)
}

fn ms(from: &Completion, to: &Completion) -> f64 {
    to.gpu_start.since(from.gpu_start).as_ms()
}

fn rate(c: &Completion, kernel: &Kernel) -> f64 {
    kernel.flops().or(kernel.bytes()).unwrap() / took(c) / 1e6
}

/// Seconds of load and a phase of up to a sample period, so that no experiment meets a new machine.
fn used(chip: &Chip, phase: f64) -> Rig {
    let mut rig = Rig::new(chip.clone());
    rig.sync_for(&alu(0.58), 300.0 + phase, 0.0);
    rig
}

pub fn steady(chip: &Chip, phase: f64) -> Figures {
    let mut rig = used(chip, phase);
    let mut out = Figures::new();
    for (id, kernel, expected) in
        [("steady.alu_long", alu(5.8), 903.0), ("steady.alu_short", alu(0.58), 872.0)]
    {
        rig.in_flight(&alu(5.8), 2, 3000.0, 0.0);
        let all = rig.sync(&kernel, 200, 0.0);
        let rates = all.iter().map(|c| rate(c, &kernel)).collect();
        out.push((id, expected - 10.0, expected + 10.0, median(rates)));
    }
    out
}

pub fn gap_sweep(chip: &Chip, phase: f64) -> Figures {
    let mut rig = used(chip, phase);
    const GAPS: [f64; 12] =
        [0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0];
    let mut run = |kernel: &Kernel| {
        let mut by_gap: Vec<Vec<Vec<Completion>>> = vec![Vec::new(); 12];
        for _ in 0..8 {
            for (n, gap) in GAPS.into_iter().enumerate() {
                rig.idle(gap);
                by_gap[n].push(rig.sync(kernel, 6, 0.0));
            }
        }
        by_gap
    };
    let streams = run(&STREAM);
    let alus = run(&alu(0.58));
    let first = |runs: &[Vec<Completion>], f: &dyn Fn(&Completion) -> f64| {
        median(runs.iter().map(|r| f(&r[0])).collect())
    };
    let stream = |n: usize| first(&streams[n], &|c| rate(c, &STREAM));
    let highest = alus.iter().flatten().flatten().map(p).fold(0.0, f64::max);
    let sixth = median(streams.iter().flatten().map(|r| rate(&r[5], &STREAM)).collect());
    let mut out = vec![
        ("steady.stream", 92.0, 96.0, sixth),
        ("gap.stream_first_1ms", 90.0, 98.0, stream(2)),
        ("gap.stream_first_2ms", 35.0, 38.0, stream(3)),
        ("gap.stream_first_1s", 34.0, 38.0, stream(11)),
        ("gap.commit_to_start_1ms", 0.12, 0.18, first(&alus[2], &latency)),
        ("gap.commit_to_start_2ms", 0.37, 0.49, first(&alus[3], &latency)),
        ("gap.commit_to_start_1s", 0.69, 0.89, first(&alus[11], &latency)),
        ("gap.alu_first_2ms", 595.0, 620.0, first(&alus[3], &|c| rate(c, &alu(0.58)))),
        ("gap.alu_first_5ms", 3.0, 3.0, first(&alus[4], &p)),
        ("gap.never_past_p4", 4.0, 4.0, highest),
    ];
    for runs in &alus[7..] {
        out.push(("gap.alu_first_50ms", 1.0, 1.0, first(runs, &p)));
    }
    out
}

/// Time from the first start to the first buffer at or above `at`.
fn reaches(all: &[Completion], at: u8) -> f64 {
    all.iter().find(|c| c.pstate.0 >= at).map_or(f64::NAN, |c| ms(&all[0], c))
}

pub fn ramp(chip: &Chip, phase: f64) -> Figures {
    let mut rig = used(chip, phase);
    let rounds: Vec<_> = (0..6)
        .map(|_| {
            rig.idle(500.0);
            rig.sync(&alu(0.58), 40, 0.0)
        })
        .collect();
    let over = |f: &dyn Fn(&[Completion]) -> f64| median(rounds.iter().map(|r| f(r)).collect());
    let mut out = vec![
        ("ramp.p1_plateau_500ms_idle", 32.0, 42.0, over(&|r| reaches(r, 2))),
        ("ramp.p4_by_500ms_idle", 41.0, 53.0, over(&|r| reaches(r, 4))),
    ];
    rig.sync(&alu(0.58), 3000, 0.0);
    rig.idle(2000.0);
    let all = rig.sync(&alu(0.58), 3000, 0.0);
    let sag = all.iter().filter(|c| (100.0..=240.0).contains(&ms(&all[0], c)));
    let held = |state: u8| {
        let from = all.iter().find(|c| c.pstate.0 == state && ms(&all[0], c) > 300.0);
        let Some(from) = from else { return 0.0 };
        let to = all.iter().find(|c| c.gpu_start > from.gpu_start && c.pstate.0 != state);
        ms(from, to.unwrap())
    };
    let steady = took(&all[2999]);
    let first_500: Vec<_> = all.iter().filter(|c| ms(&all[0], c) < 500.0).collect();
    let lost: f64 = first_500.iter().map(|c| took(c) - steady).sum();
    let last_low = all.iter().take(2000).rev().find(|c| c.pstate.0 < 8);
    let last_low = last_low.map_or(0.0, |c| ms(&all[0], c));
    let share = first_500.len() as f64 / (500.0 / (steady + gaps(&all)[2000]));
    out.extend([
        ("ramp.p1_plateau_2s_idle", 13.0, 21.0, reaches(&all[1..], 2)),
        ("ramp.p4_after_plateau_2s_idle", 0.0, 8.0, reaches(&all, 4) - reaches(&all, 2)),
        ("ramp.sag", 2.0, 2.0, sag.map(p).fold(9.0, f64::min)),
        ("ramp.p5_at", 396.0, 446.0, reaches(&all, 5)),
        ("ramp.p8_at", 419.0, 469.0, last_low),
        ("ramp.window", 5.0, 11.0, held(5)),
        ("ramp.window", 5.0, 11.0, held(6)),
        ("ramp.window", 5.0, 11.0, held(7)),
        ("ramp.first_500ms_share", 0.59, 0.65, share),
        ("ramp.loss_sync", 177.0, 207.0, lost),
    ]);
    out
}

pub fn deep(chip: &Chip, phase: f64) -> Figures {
    let mut out = Figures::new();
    let n = 300 + (phase / 0.65) as usize;
    let run = |extra: f64, gap: f64| {
        let mut rig = used(chip, phase);
        rig.idle(700.0);
        rig.deep(&alu(0.58), n);
        if extra > 0.0 {
            rig.in_flight(&alu(0.58), 4, extra, 0.0);
        }
        rig.idle(gap);
        rig.deep(&alu(0.58), 30)
    };
    let warm = span(&run(0.0, 0.0));
    out.push(("deep.burst_total_warm", 18.0, 22.0, warm));
    for extra in [0.0, 60.0, 300.0] {
        out.push(("deep.first_50ms", 8.0, 8.0, p(&run(extra, 50.0)[0])));
        out.push(("deep.first_100ms", 8.0, 8.0, p(&run(extra, 100.0)[0])));
        out.push(("deep.first_350ms", 1.0, 1.0, p(&run(extra, 350.0)[0])));
        out.push(("deep.100ms stays", 18.0, 22.0, span(&run(extra, 100.0))));
    }
    out.push(("deep.first_200ms", 1.0, 4.0, p(&run(0.0, 200.0)[0])));
    for gap in [350.0, 500.0, 750.0, 1000.0] {
        let total = span(&run(0.0, gap));
        out.push(("deep.burst_total_cold", 29.0, 38.0, total));
        out.push(("deep.ramp_tax", 9.0, 18.0, total - warm));
    }
    let cold = run(0.0, 2000.0);
    out.push(("deep.deep_idle_start", 1.7, 1.9, latency(&cold[0])));
    out.push(("deep.deep_idle_first_buffer", 1.6, 2.4, took(&cold[0]) - took(&cold[1])));
    out
}

pub fn patterns(chip: &Chip, phase: f64) -> Figures {
    let mut out = Figures::new();
    let mut rig = used(chip, phase);
    for (kernel, depth) in [
        (alu(0.58), 1),
        (alu(2.3), 1),
        (alu(5.8), 1),
        (alu(0.58), 2),
        (alu(0.58), 4),
        (alu(0.58), 8),
    ] {
        rig.idle(300.0);
        let all = rig.in_flight(&kernel, depth, 3000.0, 0.0);
        out.push(("pattern.all_reach_p8", 8.0, 8.0, f64::from(settled(&all).0)));
        let steady = median(all[all.len() * 2 / 5..].iter().map(took).collect());
        let lost: f64 = all.iter().map(|c| (took(c) - steady).max(0.0)).sum();
        if depth >= 4 || took(&all[all.len() - 1]) > 5.0 {
            out.push(("pattern.loss_long_or_deep", 23.0, 29.0, lost));
            out.push(("pattern.ramp_long_or_deep", 50.0, 100.0, reaches(&all, 8)));
        } else if depth == 1 && took(&all[all.len() - 1]) < 1.0 {
            out.push(("pattern.ramp_sync_short", 410.0, 490.0, reaches(&all, 8)));
        }
    }
    out
}

pub fn queue_gaps(chip: &Chip, phase: f64) -> Figures {
    let mut rig = used(chip, phase);
    let round_trip = (chip.host.commit_to_start + chip.host.completion_to_host).as_ms();
    let mut run = |kernel: f64, gap: f64| {
        rig.idle(300.0);
        rig.sync_for(&alu(kernel), 3000.0, (gap - round_trip).max(0.0))
    };
    let state = |all: &[Completion]| f64::from(settled(all).0);
    let mut out = Figures::new();
    let sync = run(0.58, 0.0);
    out.push(("queue.sync_round_trip", 0.1, 0.34, median(gaps(&sync))));
    for gap in [0.40, 0.43, 0.46] {
        let all = run(0.58, gap);
        out.push(("queue.short_kernel_holds", 8.0, 8.0, state(&all)));
        if gap == 0.43 {
            let busy: f64 = all[all.len() / 2..].iter().map(took).sum();
            let util = busy / span(&all[all.len() / 2..]);
            out.push(("queue.short_kernel_holds_util", 0.57, 0.66, util));
        }
    }
    for gap in [0.54, 0.57, 0.65, 0.9, 1.3, 1.9] {
        let all = run(0.58, gap);
        out.push(("queue.short_kernel_falls", 1.0, 1.0, state(&all)));
        if gap == 0.57 {
            let busy: f64 = all.iter().map(took).sum();
            out.push(("queue.short_kernel_falls_duty", 0.72, 0.78, busy / span(&all)));
        }
    }
    out.push(("queue.mid_kernel_at_cliff", 8.0, 8.0, state(&run(2.3, 0.45))));
    let mut seen = Vec::new();
    for gap in [0.45, 0.6, 0.75, 0.9, 1.05, 1.2, 1.35] {
        seen.push(state(&run(2.3, gap)));
    }
    let falling = seen.windows(2).all(|w| w[1] <= w[0]);
    seen.dedup();
    let different = if falling { seen.len() as f64 } else { 0.0 };
    out.push(("queue.mid_kernel_degrades", 3.0, 8.0, different));
    for gap in [0.5, 0.7, 0.8] {
        out.push(("queue.long_kernel_holds", 8.0, 8.0, state(&run(5.8, gap))));
    }
    for gap in [2.1, 2.5, 3.0, 4.0, 5.0] {
        out.push(("queue.long_kernel_power_gated", 2.0, 4.0, state(&run(5.8, gap))));
    }
    out.push(("queue.sleep_budget_ok", 8.0, 8.0, state(&run(0.58, round_trip + 0.125))));
    for delay in [0.0, 0.125, 0.5] {
        rig.idle(300.0);
        let all = rig.in_flight(&alu(0.58), 4, 3000.0, delay);
        out.push(("queue.in_flight_gap", 0.03, 0.07, median(gaps(&all))));
        out.push(("queue.in_flight_holds", 8.0, 8.0, state(&all)));
    }
    out
}

pub fn power(chip: &Chip, phase: f64) -> Figures {
    let mut out = Figures::new();
    let mut rig = used(chip, phase);
    let mut measure = |kernel: Option<Kernel>| {
        rig.idle(500.0);
        let mut read = [0.0; 3];
        for n in 0..2 {
            let before = rig.machine.counters();
            let mut at = 0.0;
            match &kernel {
                Some(kernel) => {
                    at = f64::from(settled(&rig.sync_for(kernel, 2000.0, 0.0)).0);
                }
                None => rig.idle(2000.0),
            }
            let after = rig.machine.counters();
            let span = after.at.since(before.at);
            if n == 1 {
                read[0] = ((after.gpu_energy - before.gpu_energy) / span).as_w();
                read[1] = ((after.cpu_energy - before.cpu_energy) / span).as_w();
                read[2] = at;
            }
        }
        read
    };
    out.push(("power.idle_gpu", 0.06, 0.1, measure(None)[0]));
    for length in [0.07, 0.3, 1.0, 2.5, 5.5] {
        let [gpu, cpu, state] = measure(Some(group(length)));
        out.push(("power.keep_warm_gpu", 0.52, 0.59, gpu));
        out.push(("power.keep_warm_pstate", 8.0, 8.0, state));
        match length {
            0.07 => out.push(("power.keep_warm_cpu_short", 0.96, 1.26, cpu)),
            5.5 => out.push(("power.keep_warm_cpu_long", 0.05, 0.11, cpu)),
            _ => {}
        }
    }
    out.push(("power.null_buffers_cpu", 1.47, 1.87, measure(Some(Kernel::Empty))[1]));
    out
}

/// An experiment: all its figures from one start phase.
pub type Experiment = fn(&Chip, f64) -> Figures;

pub const EXPERIMENTS: [Experiment; 7] =
    [steady, gap_sweep, ramp, deep, patterns, queue_gaps, power];

/// All figures from all phases, in the order of the experiments.
pub fn claims(chip: &Chip, phases: &[f64]) -> Vec<Claim> {
    let mut all: Vec<Claim> = Vec::new();
    for experiment in EXPERIMENTS {
        for &phase in phases {
            for (id, low, high, measured) in experiment(chip, phase) {
                match all.iter_mut().find(|c| c.id == id) {
                    Some(claim) => claim.measured.push(measured),
                    None => all.push(Claim { id, low, high, measured: vec![measured] }),
                }
            }
        }
    }
    all
}
