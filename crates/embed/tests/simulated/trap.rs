//! The study's 444 MHz trap, with and without the helper.

use crate::run::{Host, Outcome, run};
use everwarm_embed::gap_budget;
use everwarm_embed::inflight::{Limits, Verdict, Why};
use everwarm_embed::units::{PState, Span};

/// 0.58 ms kernels and a host that takes 0.3 ms for each: 0.6 ms between two of a loop that waits.
const HOST: Host =
    Host { buffer: Span::us(300), unit: Span::ZERO, jitter_pct: 0, kernel: Span::us(580) };

fn limits() -> Limits {
    Limits::for_gap(gap_budget("sim:m2").unwrap())
}

fn synchronous() -> Outcome {
    run("sim:m2", HOST, Limits { in_flight_max: 1, ..limits() }, &[3000])
}

#[test]
fn the_budget_of_an_m2_is_the_studys() {
    assert_eq!(gap_budget("sim:m2"), Some(Span::us(500))); // study 1: about 0.5 ms
    assert_eq!(gap_budget("cuda:0"), None);
}

#[test]
fn a_loop_that_waits_is_trapped_and_says_so() {
    let it = synchronous();
    assert_eq!(it.last_pstate(), PState(1));
    assert_eq!(it.in_flight_max, 1);
    let Verdict::TooSlow(shortfall) = it.verdict else { panic!("{it:?}") };
    assert_eq!(shortfall.why, Why::InFlight);
    assert!(shortfall.to_string().contains("raise in_flight_max"), "{shortfall}");
}

#[test]
fn committing_ahead_escapes_it() {
    let (slow, fast) = (synchronous(), run("sim:m2", HOST, limits(), &[3000]));
    assert_eq!(fast.verdict, Verdict::Holds);
    assert_eq!(fast.last_pstate(), PState(8));
    assert!(fast.late(0.6).iter().all(|r| r.completion.pstate == Some(PState(8))));
    assert!(fast.exceed(0.9, Span::us(70)) == 0.0, "study 4.3: gaps of 0.03-0.07 ms");
    // At 444 of 1398 MHz with a gap of 0.6 ms against the top clock without one.
    let ratio = fast.rate(0.6) / slow.rate(0.6);
    assert!(ratio > 3.0, "{ratio}");
    assert!(fast.plan.in_flight <= 3, "no deeper than it needs: {:?}", fast.plan);
}

#[test]
fn the_next_request_begins_before_the_last_one_ends() {
    let it = run("sim:m2", HOST, limits(), &[40, 40, 40]);
    for pair in it.ran.windows(2).filter(|pair| pair[0].landed.chunk.last) {
        assert_ne!(pair[0].landed.chunk.request, pair[1].landed.chunk.request);
        assert!(pair[1].completion.committed < pair[0].completion.gpu_end);
    }
    assert_eq!(it.ran.iter().filter(|r| r.landed.chunk.last).count(), 3);
}

#[test]
fn a_larger_chunk_rescues_a_host_that_pays_for_each_buffer() {
    let host = Host { buffer: Span::us(1500), unit: Span::us(20), ..HOST };
    let small = run("sim:m2", host, limits(), &[4000]);
    let Verdict::TooSlow(shortfall) = small.verdict else { panic!("{:?}", small.verdict) };
    assert_eq!(shortfall.why, Why::Encode);
    let large = run("sim:m2", host, Limits { chunk_max: 8, ..limits() }, &[40_000]);
    assert_eq!(large.verdict, Verdict::Holds, "{:?}", large.plan);
    assert_eq!(large.last_pstate(), PState(8));
    assert!(large.plan.chunk <= 4, "no larger than it needs: {:?}", large.plan);
}

#[test]
fn a_latency_limit_is_kept_and_said_to_be_in_the_way() {
    // Two kernels at P1 take 3.8 ms, one takes 1.9.
    let limits = Limits { latency_max: Span::ms(3), ..limits() };
    let it = run("sim:m2", HOST, limits, &[3000]);
    let Verdict::TooSlow(shortfall) = it.verdict else { panic!("{:?}", it.plan) };
    assert_eq!(shortfall.why, Why::Latency);
    assert_eq!(it.plan.in_flight, 1);
    let after_the_first = it.ran.iter().skip(3);
    let queued = after_the_first.map(|r| r.completion.gpu_end.since(r.completion.committed));
    assert!(queued.max().unwrap() < Span::ms(3));
}
