//! The checks that every backend must pass. Who includes this file says on which devices:
//! [`suite!`] makes one test of each check.
//!
//! Here is what concerns one queue and time; `several.rs` has what concerns more of something,
//! `work.rs` what can be run and what is refused. What happens when a device is lost can't be asked of
//! a healthy one: backends test that on their own.

#[path = "several.rs"]
mod several;
#[path = "work.rs"]
mod work;

pub use several::*;
pub use work::*;

use everwarm_gpu::{Backend, Completion, Counters, Error, Queue, Ticket, open};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;

/// One test of each check; `$on_devices` runs a check on the devices in question.
macro_rules! suite {
    ($on_devices:path) => {
        suite! { $on_devices:
            a_new_handle_counts_from_0,
            a_queue_runs_in_commit_order_on_one_time_base,
            buffers_in_flight_are_limited_and_the_limit_is_told,
            gpu_time_grows_with_the_work,
            counters_never_go_back,
            waiting_ends_at_its_deadline,
            a_past_deadline_returns_at_once,
            a_handle_can_be_dropped_with_work_in_flight,
            queues_keep_their_own_order,
            handles_share_one_time_base,
            two_threads_work_at_once,
            two_processes_work_at_once,
            a_handle_that_ends_leaves_the_others_alone,
            every_kernel_runs,
            more_bytes_take_longer,
            a_kernel_of_nothing_is_harmless,
            work_beyond_the_memory_is_refused,
            a_queue_that_is_not_open_is_refused,
            queues_are_limited_and_the_limit_is_told,
            a_clock_that_can_not_be_held_is_refused,
            a_commit_does_not_wait,
            depth_hides_the_host
        }

        #[test]
        fn another_process() {
            suite::another_process();
        }
    };
    ($on_devices:path: $($check:ident),+) => {
        $(#[test]
        fn $check() {
            $on_devices(suite::$check);
        })+
    };
}

/// Waits for `n` completions, for ten seconds at most.
fn land(backend: &mut dyn Backend, n: usize) -> Vec<Completion> {
    let deadline = backend.now() + Span::s(10);
    let landed = (0..n).map(|i| {
        let completion = backend.wait(deadline).expect("the device stays");
        completion.unwrap_or_else(|| panic!("completion {i} of {n} came within 10 s"))
    });
    landed.collect()
}

fn fma(backend: &dyn Backend, span: Span) -> Kernel {
    backend.device().fma(span, Kernel::FMA_THREADS)
}

/// Whatever a backend does to find out about its device, it leaves no trace in what it counts.
pub fn a_new_handle_counts_from_0(backend: &mut dyn Backend) {
    assert!(backend.now() < Instant::ZERO + Span::s(1), "{} at the beginning", backend.now());
    assert_eq!(backend.poll().unwrap(), None);
    let queue = backend.queue().unwrap();
    assert_eq!(queue, Queue(0));
    assert_eq!(backend.commit(queue, &Kernel::Empty).unwrap(), Ticket(0));
    land(backend, 1);
}

pub fn a_queue_runs_in_commit_order_on_one_time_base(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let kernel = fma(backend, Span::us(500));
    let before = backend.now();
    let tickets: Vec<_> = (0..8).map(|_| backend.commit(queue, &kernel).unwrap()).collect();
    let landed = land(backend, 8);
    assert_eq!(landed.iter().map(|c| c.ticket).collect::<Vec<_>>(), tickets);
    for c in &landed {
        assert!(before <= c.committed && c.committed <= c.gpu_start, "{c:?}");
        assert!(c.gpu_start < c.gpu_end && c.gpu_end <= c.observed, "{c:?}");
        assert!(c.observed <= backend.now(), "{c:?}");
    }
    for pair in landed.windows(2) {
        assert!(pair[0].gpu_end <= pair[1].gpu_start, "{pair:?} overlap");
    }
}

pub fn buffers_in_flight_are_limited_and_the_limit_is_told(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let max = backend.device().in_flight_max;
    for _ in 0..max {
        backend.commit(queue, &Kernel::Empty).unwrap();
    }
    let error = backend.commit(queue, &Kernel::Empty).unwrap_err();
    assert!(matches!(error, Error::Limit { limit, .. } if limit == max), "{error}");
    assert!(error.to_string().contains(&max.to_string()), "{error}");
    land(backend, 1);
    backend.commit(queue, &Kernel::Empty).expect("one has landed, so one fits again");
    land(backend, max);
}

pub fn gpu_time_grows_with_the_work(backend: &mut dyn Backend) {
    // A driver on the CPU shares it: its neighbours may halve what it gets at any time.
    let on_cpu = backend.device().facts.iter().any(|(name, _)| name == "software");
    let (right, tries) = if on_cpu { (2.0..8.0, 3) } else { (3.0..5.0, 1) };
    let times: Vec<_> = (0..tries).map(|_| times_of_10_and_40_ms(backend)).collect();
    assert!(times.iter().any(|[short, long]| right.contains(&(long / short))), "{times:?} ms");
}

/// The GPU time of two kernels of which one should take four times as long. Unit: ms.
fn times_of_10_and_40_ms(backend: &mut dyn Backend) -> [f64; 2] {
    let queue = backend.queue().unwrap();
    // In turn, so that both lengths see the same clock and the same neighbours on the machine. The
    // first half warms up; the shortest time of the rest is the one that nothing disturbed. Both are
    // long against what any buffer costs besides.
    let kernels = [10, 40].map(|ms| fma(backend, Span::ms(ms)));
    let (rounds, depth) = (60, 8);
    let mut landed = Vec::new();
    for n in 0..rounds {
        backend.commit(queue, &kernels[n % 2]).unwrap();
        // Several are in flight: a host that is held up for a moment must not cool it down.
        if n >= depth {
            landed.extend(land(backend, 1));
        }
    }
    landed.extend(land(backend, depth));
    let time = |c: &Completion| c.gpu_end.since(c.gpu_start).as_ms();
    [0, 1].map(|which| {
        let of_it = landed.iter().skip(rounds / 2 + which).step_by(2);
        of_it.map(time).fold(f64::INFINITY, f64::min)
    })
}

pub fn counters_never_go_back(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let kernel = fma(backend, Span::ms(2));
    let first = backend.counters().unwrap();
    let mut last = first.clone();
    // Firmware sums its states up now and then: docs/devices/metal.md says how far off a sum may be.
    let exact = backend.device().simulated;
    let slack = |passed: f64| if exact { 0.01 * passed + 0.01 } else { passed / 50.0 + 5.0 };
    let sums_to_time = |now: &Counters, then: &Counters| {
        let (Some(now_in), Some(then_in)) = (&now.residency, &then.residency) else { return };
        let sum = |states: &[Span]| states.iter().copied().sum::<Span>().as_ms();
        let (gained, passed) = (sum(now_in) - sum(then_in), now.at.since(then.at).as_ms());
        assert!((gained - passed).abs() < slack(passed), "{gained} of {passed} ms");
    };
    for step in 0..20 {
        if step % 3 == 0 {
            let later = backend.now() + Span::ms(5);
            backend.sleep_until(later);
        } else {
            backend.commit(queue, &kernel).unwrap();
            land(backend, 1);
        }
        let now = backend.counters().unwrap();
        assert!(now.at > last.at);
        assert!(now.gpu_energy >= last.gpu_energy, "{now:?} after {last:?}");
        assert!(now.cpu_energy >= last.cpu_energy, "{now:?} after {last:?}");
        if let (Some(now_in), Some(last_in)) = (&now.residency, &last.residency) {
            assert!(now_in.iter().zip(last_in).all(|(n, l)| n >= l));
        }
        sums_to_time(&now, &last);
        last = now;
    }
    sums_to_time(&last, &first);
}

pub fn waiting_ends_at_its_deadline(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let deadline = backend.now() + Span::ms(3);
    assert_eq!(backend.wait(deadline).unwrap(), None, "nothing was committed");
    assert!(backend.now() >= deadline);
    backend.commit(queue, &fma(backend, Span::ms(300))).unwrap();
    let deadline = backend.now() + Span::ms(5);
    assert_eq!(backend.wait(deadline).unwrap(), None, "300 ms of work don't end in 5");
    assert!(backend.now() >= deadline);
    assert!(backend.now() < deadline + Span::ms(250), "and the wait was not for the work");
    assert_eq!(backend.poll().unwrap(), None);
    land(backend, 1);
}

pub fn a_past_deadline_returns_at_once(backend: &mut dyn Backend) {
    let later = backend.now() + Span::ms(2);
    backend.sleep_until(later);
    let now = backend.now();
    backend.sleep_until(Instant::ZERO);
    assert_eq!(backend.wait(Instant::ZERO).unwrap(), None);
    assert!(backend.now() < now + Span::ms(200));
}

pub fn a_handle_can_be_dropped_with_work_in_flight(backend: &mut dyn Backend) {
    let mut other = open(&backend.device().id).unwrap();
    let queue = other.queue().unwrap();
    let kernel = fma(other.as_ref(), Span::ms(5));
    for _ in 0..4 {
        other.commit(queue, &kernel).unwrap();
    }
    drop(other);
    let queue = backend.queue().unwrap();
    backend.commit(queue, &Kernel::Empty).expect("the device still serves others");
    land(backend, 1);
}
