//! What holds for any submission: times, residencies and energy add up, and it does not matter when
//! a caller looks.

mod common;
mod random;

use common::*;
use everwarm_dvfs::Chip;
use everwarm_sim::{Completion, Counters, Machine, QueueId};
use everwarm_units::{Instant, PState, Span};
use everwarm_workload::Kernel;
use proptest::prelude::*;
use random::chips;

/// A commit, some time after the one before, to one of three queues.
type Step = (Span, usize, Kernel);

fn kernel() -> impl Strategy<Value = Kernel> {
    prop_oneof![
        Just(Kernel::Empty),
        (0u32..30_000).prop_map(|i| Kernel::Fma { iterations: i, threads: 65_536 }),
        (0u32..300_000).prop_map(|i| Kernel::Fma { iterations: i, threads: 32 }),
        (0u32..30_000, 1u32..10_000)
            .prop_map(|(iterations, threads)| Kernel::Fma { iterations, threads }),
        (0u64..200_000_000).prop_map(|bytes| Kernel::Stream { bytes }),
        (1u32..1500).prop_map(|n| Kernel::Matmul { n }),
        (0.0..1e10, 0.0..1e8, prop_oneof![Just(0.0), 0.0..1e9])
            .prop_map(|(flops, bytes, resident)| Kernel::Modelled { flops, bytes, resident }),
    ]
}

fn gap() -> impl Strategy<Value = Span> {
    prop_oneof![
        4 => (0u64..1_000_000).prop_map(Span::ns),
        3 => (0u64..10_000_000).prop_map(Span::ns),
        2 => (0u64..400_000_000).prop_map(Span::ns),
        1 => (1_000_000_000u64..2_000_000_000).prop_map(Span::ns),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((gap(), 0usize..3, kernel()), 1..60)
}

/// How a caller lets time pass.
#[derive(Clone, Copy, Debug)]
enum Pace {
    Jump,
    Events,
    Steps(u64),
}

struct Run {
    machine: Machine,
    queues: Vec<QueueId>,
    completions: Vec<Completion>,
}

impl Run {
    fn new(chip: Chip) -> Run {
        let mut machine = Machine::new(chip);
        let queues = (0..3).map(|_| machine.open_queue()).collect();
        Run { machine, queues, completions: Vec::new() }
    }

    fn pass(&mut self, to: Instant, pace: Pace) {
        while self.machine.now() < to {
            let next = match pace {
                Pace::Jump => to,
                Pace::Events => self.machine.next_event().unwrap_or(to).min(to),
                Pace::Steps(ns) => (self.machine.now() + Span::ns(ns)).min(to),
            };
            self.machine.advance(next);
            let _ = self.machine.counters();
            self.completions.extend(std::iter::from_fn(|| self.machine.poll()));
        }
    }

    fn of(chip: Chip, steps: &[Step], pace: Pace) -> Run {
        let mut run = Run::new(chip);
        for (gap, queue, kernel) in steps {
            run.pass(run.machine.now() + *gap, pace);
            run.machine.commit(run.machine.now(), run.queues[*queue], kernel);
        }
        // Longer than all the work that there can be, at the lowest clock.
        run.pass(run.machine.now() + Span::s(20), pace);
        run
    }

    fn counters(&self) -> Counters {
        self.machine.counters()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_does_not_matter_when_a_caller_looks(chip in chips(), steps in steps(), ns in 50_000u64..5_000_000) {
        let jump = Run::of(chip.clone(), &steps, Pace::Jump);
        for pace in [Pace::Jump, Pace::Events, Pace::Steps(ns)] {
            let other = Run::of(chip.clone(), &steps, pace);
            prop_assert_eq!(&jump.completions, &other.completions);
            prop_assert_eq!(jump.counters(), other.counters());
        }
    }

    #[test]
    fn every_buffer_runs_once_in_order_and_costs_what_it_costs(chip in chips(), steps in steps()) {
        let run = Run::of(chip.clone(), &steps, Pace::Jump);
        prop_assert_eq!(run.completions.len(), steps.len());
        prop_assert!(run.completions.windows(2).all(|w| w[0].observed <= w[1].observed));
        for queue in &run.queues {
            let own: Vec<_> = run.completions.iter().filter(|c| c.queue == *queue).collect();
            for pair in own.windows(2) {
                prop_assert!(pair[0].buffer < pair[1].buffer);
                prop_assert!(pair[0].gpu_end + chip.host.buffer_gap <= pair[1].gpu_start);
            }
        }
        let stalls = chip.wake.deep_idle_stall + chip.wake.memory_ready;
        for c in &run.completions {
            prop_assert!(c.gpu_start >= c.committed + chip.host.commit_to_start);
            prop_assert_eq!(c.observed, c.gpu_end + chip.host.completion_to_host);
            prop_assert!((1..=chip.top().0).contains(&c.pstate.0));
            let kernel = &steps[c.buffer.0 as usize].2;
            let took = c.gpu_end.since(c.gpu_start);
            let fastest = run.machine.execution(kernel, chip.top());
            let slowest = run.machine.execution(kernel, PState(1)) + stalls;
            prop_assert!(fastest <= took + Span::ns(10) && took <= slowest + Span::ns(10));
        }
    }

    #[test]
    fn residencies_sum_to_time(chip in chips(), steps in steps()) {
        let run = Run::of(chip.clone(), &steps, Pace::Jump);
        let counters = run.counters();
        prop_assert_eq!(counters.residency.len(), chip.pstates.len() + 1);
        let sum: Span = counters.residency.iter().copied().sum();
        prop_assert_eq!(sum, counters.at.since(Instant::ZERO));
        prop_assert!(counters.busy <= sum);
        let below_base = &counters.residency[1..usize::from(chip.controller.base_pstate)];
        prop_assert!(below_base.iter().all(|span| span.is_zero()));
        let submitted = chip.host.submission_energy * steps.len() as f64;
        prop_assert!((counters.cpu_energy.as_j() - submitted.as_j()).abs() < 1e-9);

    }
}

/// Only the FMA chain: all of its time but a known overhead is computing.
fn chains() -> impl Strategy<Value = Vec<Step>> {
    let gap = prop_oneof![3 => 0u64..5_000_000, 1 => 0u64..1_500_000_000].prop_map(Span::ns);
    let threads = prop_oneof![Just(65_536u32), 1u32..6000];
    let kernel = (2_000u32..20_000, threads)
        .prop_map(|(iterations, threads)| Kernel::Fma { iterations, threads });
    prop::collection::vec((gap, 0usize..3, kernel), 1..25)
}

fn share_filled(chip: &Chip, kernel: &Kernel) -> f64 {
    match *kernel {
        Kernel::Fma { threads, .. } => (f64::from(threads) / chip.threads_to_fill()).min(1.0),
        _ => panic!("only chains here"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn energy_is_the_integral_of_power(chip in chips(), steps in chains()) {
        let done = Run::of(chip.clone(), &steps, Pace::Jump).completions;
        let p = &chip.power;
        let ratio = |state: PState| {
            chip.pstates[state.index() - 1].power_limit / chip.pstates[chip.pstates.len() - 1].power_limit
        };
        let floor = |state: PState| match state {
            PState::OFF => p.off.as_w(),
            on => (p.idle.as_w() * ratio(on)).max(p.off.as_w()),
        };
        let dynamic = (p.full - p.idle).as_w();
        // The same commits again, power read off at each small step from state and running buffers.
        let mut run = Run::new(chip.clone());
        let mut joules = 0.0;
        let end = done.iter().map(|c| c.gpu_end).max().unwrap() + Span::ms(5);
        let mut due = Instant::ZERO + steps[0].0;
        let mut next = 0;
        while run.machine.now() < end {
            let at = run.machine.now();
            if at == due && next < steps.len() {
                run.machine.commit(at, run.queues[steps[next].1], &steps[next].2);
                next += 1;
                due = steps.get(next).map_or(Instant::FAR_FUTURE, |s| at + s.0);
                continue;
            }
            let state = run.machine.counters().pstate;
            let to = match state {
                PState::OFF => due.min(end),
                _ => (at + Span::us(20)).min(due).min(end),
            };
            run.machine.advance(to);
            joules += floor(state) * to.since(at).as_secs();
            if state != PState::OFF {
                for c in &done {
                    let ran = to.min(c.gpu_end).since(at.max(c.gpu_start)).as_secs();
                    let filled = share_filled(&chip, &steps[c.buffer.0 as usize].2);
                    joules += dynamic * ratio(state) * filled * ran;
                }
            }
        }
        let measured = run.machine.counters().gpu_energy.as_j();
        let idling = (chip.kernels.overhead + chip.wake.deep_idle_stall).as_secs();
        let less = dynamic * (1.0 - p.memory_share) * idling * steps.len() as f64;
        prop_assert!(measured <= 1.01 * joules, "{} J against {} J", measured, joules);
        prop_assert!(measured >= 0.99 * joules - less, "{} J against {} J", measured, joules);
    }

    #[test]
    fn an_idle_gap_can_be_passed_in_parts(chip in chips(), gap in gap(), cut in 0.0..1.0f64) {
        let first = |cuts: &[Span]| {
            let mut rig = Rig::new(chip.clone());
            rig.deep(&alu(0.58), 300);
            cuts.iter().for_each(|part| rig.machine.advance(rig.now() + *part));
            (rig.deep(&alu(0.58), 30), rig.machine.counters())
        };
        let part = Span::from_ms(gap.as_ms() * cut);
        prop_assert_eq!(first(&[gap]), first(&[part, gap.saturating_sub(part)]));
    }

    #[test]
    fn queues_may_close_at_any_time(chip in chips(), steps in steps(), closes in prop::collection::vec(0usize..8, 60)) {
        let mut run = Run::new(chip.clone());
        let mut outstanding = [0usize; 3];
        for ((gap, queue, kernel), close) in steps.iter().zip(closes) {
            run.pass(run.machine.now() + *gap, Pace::Events);
            run.machine.commit(run.machine.now(), run.queues[*queue], kernel);
            outstanding[*queue] += 1;
            if close < 3 {
                run.machine.close_queue(run.queues[close]);
                run.queues[close] = run.machine.open_queue();
                outstanding[close] = 0;
            }
        }
        run.pass(run.machine.now() + Span::s(20), Pace::Events);
        for (queue, expected) in run.queues.iter().zip(outstanding) {
            let told = run.completions.iter().filter(|c| c.queue == *queue).count();
            prop_assert_eq!(told, expected);
        }
        let counters = run.counters();
        prop_assert_eq!(counters.pstate, PState::OFF);
        prop_assert_eq!(counters.residency.into_iter().sum::<Span>(), counters.at.since(Instant::ZERO));
        prop_assert!(run.machine.next_event().is_none());
    }
}
