//! What must hold of any chip and any load: more idle is never faster, a deeper queue never slower.
//!
//! A controller that samples makes the first law false to the letter. A buffer that comes a little
//! later may meet the next decision a little earlier in its life: so idle times are compared where
//! the phase is the same (once the GPU is gated, its timer begins anew with power). And a buffer of
//! several samples may be served better by a controller that has forgotten everything than by one
//! that has half faded, as the M2 study measured: so the law is held for the state in which a buffer
//! begins, and for all of a buffer that ends before anything is decided.

mod common;
mod random;

use common::Rig;
use everwarm_dvfs::Chip;
use everwarm_sim::Completion;
use everwarm_units::{PState, Span};
use everwarm_workload::Kernel;
use proptest::prelude::*;
use random::{chips, likely_chips};

/// A load before the idle time: kernels on three queues, with gaps.
type Load = Vec<(Span, usize, Kernel)>;

fn kernel() -> impl Strategy<Value = Kernel> {
    prop_oneof![
        (0u32..20_000).prop_map(|iterations| Kernel::Fma { iterations, threads: 65_536 }),
        (0u32..100_000).prop_map(|iterations| Kernel::Fma { iterations, threads: 32 }),
        (0u64..100_000_000).prop_map(|bytes| Kernel::Stream { bytes }),
        // No memory to be wired: once begun, wiring goes on while the GPU idles, so more idle helps it.
        (0.0..1e10, 0.0..1e8)
            .prop_map(|(flops, bytes)| { Kernel::Modelled { flops, bytes, resident: 0.0 } }),
    ]
}

fn load() -> impl Strategy<Value = Load> {
    let gap = prop_oneof![4 => 0u64..1_000_000, 1 => 0u64..100_000_000].prop_map(Span::ns);
    let repeat = 1usize..40;
    let part = (gap, 0usize..3, kernel(), repeat)
        .prop_map(|(gap, queue, kernel, n)| vec![(gap, queue, kernel); n]);
    prop::collection::vec(part, 1..6).prop_map(|parts| parts.concat())
}

/// The first buffer after `load` and so much more idle time than gating takes.
fn first_after(chip: &Chip, load: &Load, idle: Span, kernel: &Kernel) -> Completion {
    let mut rig = Rig::new(chip.clone());
    let others = [rig.machine.open_queue(), rig.machine.open_queue()];
    for (gap, queue, kernel) in load {
        rig.machine.advance(rig.now() + *gap);
        let queue = [rig.queue, others[0], others[1]][*queue];
        rig.machine.commit(rig.now(), queue, kernel);
    }
    while let Some(next) = rig.machine.next_event() {
        rig.machine.advance(next);
        while rig.machine.poll().is_some() {}
    }
    rig.machine.advance(rig.now() + chip.controller.idle_off_delay + idle);
    assert_eq!(rig.machine.counters().pstate, PState::OFF);
    rig.commit(kernel);
    rig.wait()
}

/// Ends before the controller can decide anything.
fn ends_before_a_sample(chip: &Chip, done: &Completion) -> bool {
    done.gpu_end.since(done.committed) < chip.controller.sample_period
}

fn idle() -> impl Strategy<Value = Span> {
    prop_oneof![0u64..50_000_000, 0u64..3_000_000_000].prop_map(Span::ns)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn more_idle_never_makes_the_first_dispatch_faster(
        chip in chips(), load in load(), a in idle(), b in idle(), kernel in kernel(),
    ) {
        let (short, long) = (a.min(b), a.max(b));
        let early = first_after(&chip, &load, short, &kernel);
        let late = first_after(&chip, &load, long, &kernel);
        prop_assert!(late.pstate <= early.pstate, "{} after {}, {} after {}", early.pstate, short, late.pstate, long);
        let latency = |c: &Completion| c.gpu_start.since(c.committed);
        prop_assert!(latency(&early) <= latency(&late));
        if ends_before_a_sample(&chip, &late) {
            prop_assert!(early.gpu_end.since(early.committed) <= late.gpu_end.since(late.committed));
        }
    }

    #[test]
    fn a_deeper_queue_never_ramps_slower(
        chip in likely_chips(), load in load(), idle in idle(), iterations in 500u32..20_000,
        depths in (1usize..8, 1usize..8), n in 20usize..300,
    ) {
        let kernel = Kernel::Fma { iterations, threads: 65_536 };
        let run = |depth: usize| {
            let mut rig = Rig::new(chip.clone());
            for (gap, _, kernel) in &load {
                rig.machine.advance(rig.now() + *gap);
                rig.machine.commit(rig.now(), rig.queue, kernel);
            }
            while rig.machine.next_event().is_some() { let _ = rig.wait(); }
            rig.machine.advance(rig.now() + chip.controller.idle_off_delay + idle);
            let start = rig.now();
            (0..depth.min(n)).for_each(|_| rig.commit(&kernel));
            let mut ends = Vec::new();
            for k in 0..n {
                ends.push(rig.wait().gpu_end.since(start));
                if k + depth < n { rig.commit(&kernel); }
            }
            ends
        };
        let (shallow, deep) = (run(depths.0.min(depths.1)), run(depths.0.max(depths.1)));
        for (k, (s, d)) in shallow.iter().zip(&deep).enumerate() {
            prop_assert!(*d <= *s + Span::ns(2 * k as u64 + 10), "buffer {} ends after {} deep, {} shallow", k, d, s);
        }
    }
}
