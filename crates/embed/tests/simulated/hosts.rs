//! Random hosts on several chips: what holds for all of them.
//!
//! Whether a host can keep the budget is told here from the chip alone, with a margin on both
//! sides: a host that can at the top clock must, and one that can't even at the lowest, where
//! kernels run longest, must be told so. Between the two the clock settles where the gap is met.

use crate::run::{Host, Outcome, run};
use everwarm_dvfs::Chip;
use everwarm_embed::gap_budget;
use everwarm_embed::inflight::{Limits, Verdict};
use everwarm_embed::units::{PState, Span};
use proptest::prelude::*;

const CHIPS: [&str; 5] = ["m2", "m1", "m2-pro", "m1-pro", "m2-max"];

/// Virtual time of a run, about.
const LENGTH: Span = Span::s(4);

fn hosts() -> impl Strategy<Value = Host> {
    (0u64..2500, 0u64..600, 0u64..=15, 60u64..3000).prop_map(
        |(buffer, unit, jitter_pct, kernel)| {
            let [buffer, unit, kernel] = [buffer, unit, kernel].map(Span::us);
            Host { buffer, unit, jitter_pct, kernel }
        },
    )
}

fn limits(chip: &str) -> impl Strategy<Value = Limits> + use<> {
    let gap_max = gap_budget(&format!("sim:{chip}")).unwrap();
    let depths = prop_oneof![Just(1usize), Just(2), Just(4), Just(16)];
    (depths, prop_oneof![Just(1u32), Just(4), Just(8)]).prop_map(
        move |(in_flight_max, chunk_max)| {
            // Latency has tests of its own.
            let latency_max = Span::s(10);
            Limits { in_flight_max, chunk_max, latency_max, ..Limits::for_gap(gap_max) }
        },
    )
}

fn cases() -> impl Strategy<Value = (&'static str, Host, Limits)> {
    let chips = (0..CHIPS.len()).prop_map(|n| CHIPS[n]);
    chips.prop_flat_map(|chip| (Just(chip), hosts(), limits(chip)))
}

/// A gap that a host can make on a chip at a p-state, under limits. Unit: ms; what is below 0 tells
/// how much room there is.
struct Gap {
    /// If long gaps fall together, as the formula of the crate's `estimate.rs` has it.
    worst: f64,
    /// If all are alike: each buffer waits for the one `n` before it.
    even: f64,
}

/// The gap with the size of chunk that makes it shortest.
fn gap(chip: &Chip, pstate: PState, host: Host, limits: Limits, jitter: f64) -> Gap {
    let round_trip = (chip.host.completion_to_host + chip.host.commit_to_start).as_ms();
    let slower = chip.clock(chip.top()) / chip.clock(pstate);
    let fixed = chip.kernels.overhead.as_ms()
        + 1e3 * chip.kernels.overhead_cycles.as_n() / chip.clock(pstate).as_hz();
    let depth = limits.in_flight_max as f64;
    let gap = |units: u32| {
        let kernel = (host.kernel * u64::from(units)).as_ms() * slower + fixed;
        let encode = host.encode(units).as_ms() * (1.0 + jitter * host.jitter_pct as f64 / 100.0);
        let worst = round_trip + encode - (depth - 1.0) * kernel;
        let even = (round_trip + encode + kernel) / depth - kernel;
        Gap { worst: worst.max(encode - kernel), even: even.max(encode - kernel) }
    };
    let sizes = std::iter::successors(Some(1), |n| Some(2 * n));
    let gaps: Vec<Gap> = sizes.take_while(|n| *n <= limits.chunk_max).map(gap).collect();
    let least = |of: fn(&Gap) -> f64| gaps.iter().map(of).fold(f64::INFINITY, f64::min);
    Gap { worst: least(|gap| gap.worst), even: least(|gap| gap.even) }
}

/// Requests that together last about as long as a run should, by the slower of host and GPU.
fn requests(host: Host) -> Vec<u64> {
    let unit = host.kernel.max(host.encode(1));
    let units = (LENGTH.as_nanos() / unit.as_nanos()).max(64);
    vec![units / 3, units / 3, units - 2 * (units / 3)]
}

fn work_is_whole(it: &Outcome, requests: &[u64]) {
    let mut next = vec![0; requests.len()];
    for ran in &it.ran {
        let chunk = ran.landed.chunk;
        let request = chunk.request.0 as usize;
        assert_eq!(chunk.first, next[request], "in order, nothing twice");
        next[request] += u64::from(chunk.units);
        assert_eq!(chunk.last, next[request] == requests[request]);
    }
    assert_eq!(next, requests);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// The gap stays under the budget whenever the host can, a host that can't is told, no bound is
    /// ever exceeded, and the work is the same.
    #[test]
    fn random_hosts((chip, host, limits) in cases()) {
        let id = format!("sim:{chip}");
        let requests = requests(host);
        let it = run(&id, host, limits, &requests);
        work_is_whole(&it, &requests);
        prop_assert!(it.in_flight_max <= limits.in_flight_max);
        prop_assert!(it.ran.iter().all(|r| r.landed.chunk.units <= limits.chunk_max));
        let budget = limits.gap_max.as_ms();
        let chip = Chip::built_in(chip).unwrap();
        let at_top = gap(&chip, chip.top(), host, limits, 1.0).worst;
        let at_base = gap(&chip, PState(1), host, limits, -1.0).even;
        if at_top < 0.9 * budget {
            prop_assert_eq!(it.verdict, Verdict::Holds, "{:?} at best {} ms", it.plan, at_top);
            let exceed = it.exceed(0.3, limits.gap_max);
            prop_assert!(exceed <= 0.1, "{} of gaps, {:?}, at best {} ms", exceed, it.plan, at_top);
        }
        if at_base > 1.02 * budget {
            let told = matches!(it.verdict, Verdict::TooSlow(_));
            prop_assert!(told, "{:?} {:?} at best {} ms", it.verdict, it.plan, at_base);
        }
    }

    /// No buffer is committed behind so much work that its end would be further away than allowed,
    /// whatever the clock does. Two are let through before any kernel time is known.
    #[test]
    fn latency_is_bounded((chip, host, limits) in cases(), latency_ms in 2u64..40) {
        let limits = Limits { latency_max: Span::ms(latency_ms), ..limits };
        let requests = requests(host);
        let it = run(&format!("sim:{chip}"), host, limits, &requests);
        work_is_whole(&it, &requests);
        for pair in it.ran.windows(2).skip(2) {
            let [before, this] = [pair[0].completion, pair[1].completion];
            let behind = this.committed < before.gpu_end;
            let away = this.gpu_end.since(this.committed);
            let most = limits.latency_max + Span::us(200); // and its own way to the GPU
            prop_assert!(!behind || away <= most, "{} {:?}", away, it.plan);
        }
    }
}
