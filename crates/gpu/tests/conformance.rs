//! What every backend must do, walked over the table: a new backend is covered without a change
//! here. Devices that the machine lacks are named and skipped.

use everwarm_gpu::backend::TABLE;
use everwarm_gpu::{Backend, Completion, Error, open};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;

/// Runs `check` on each device there is.
fn each_device(check: impl Fn(&mut dyn Backend)) {
    let mut checked = 0;
    for found in TABLE.iter().flat_map(|entry| (entry.list)()) {
        match found.state {
            Ok(_) => {
                let mut backend = open(&found.id).expect("a listed device opens");
                check(backend.as_mut());
                checked += 1;
            }
            Err(why) => eprintln!("{} is skipped: {why}", found.id),
        }
    }
    assert!(checked > 0, "at least the simulator is always there");
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

#[test]
fn a_queue_runs_in_commit_order_on_one_time_base() {
    each_device(|backend| {
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
    });
}

#[test]
fn buffers_in_flight_are_limited_and_the_limit_is_told() {
    each_device(|backend| {
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
    });
}

#[test]
fn gpu_time_grows_with_the_work() {
    each_device(|backend| {
        let queue = backend.queue().unwrap();
        let mut time = |ms| {
            // Warmed up, so that the clock does not change under the comparison.
            let kernel = fma(backend, Span::ms(ms));
            for _ in 0..600 / ms {
                backend.commit(queue, &kernel).unwrap();
                land(backend, 1);
            }
            backend.commit(queue, &kernel).unwrap();
            let last = land(backend, 1)[0];
            last.gpu_end.since(last.gpu_start).as_ms()
        };
        let (short, long) = (time(3), time(12));
        assert!((3.0..5.0).contains(&(long / short)), "{short} ms and {long} ms");
    });
}

#[test]
fn counters_never_go_back() {
    each_device(|backend| {
        let queue = backend.queue().unwrap();
        let kernel = fma(backend, Span::ms(2));
        let mut last = backend.counters().unwrap();
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
                let gained = now_in.iter().copied().sum::<Span>().as_ms()
                    - last_in.iter().copied().sum::<Span>().as_ms();
                let passed = now.at.since(last.at).as_ms();
                assert!((gained - passed).abs() < 0.01 * passed + 0.01, "{gained} of {passed} ms");
            }
            last = now;
        }
    });
}

#[test]
fn waiting_ends_at_its_deadline() {
    each_device(|backend| {
        let queue = backend.queue().unwrap();
        let deadline = backend.now() + Span::ms(3);
        assert_eq!(backend.wait(deadline).unwrap(), None, "nothing was committed");
        assert!(backend.now() >= deadline);
        backend.commit(queue, &fma(backend, Span::ms(50))).unwrap();
        let deadline = backend.now() + Span::ms(5);
        assert_eq!(backend.wait(deadline).unwrap(), None, "50 ms of work don't end in 5");
        assert!(backend.now() >= deadline);
        assert!(backend.now() < deadline + Span::ms(40), "and the wait was not for the work");
        assert_eq!(backend.poll().unwrap(), None);
        land(backend, 1);
    });
}

#[test]
fn a_past_deadline_returns_at_once() {
    each_device(|backend| {
        let later = backend.now() + Span::ms(2);
        backend.sleep_until(later);
        let now = backend.now();
        backend.sleep_until(Instant::ZERO);
        assert_eq!(backend.wait(Instant::ZERO).unwrap(), None);
        assert!(backend.now() < now + Span::ms(20));
    });
}

#[test]
fn a_handle_can_be_dropped_with_work_in_flight() {
    each_device(|backend| {
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
    });
}

#[test]
fn an_unknown_device_is_refused_with_what_exists() {
    let check = |id: &str, expected: &[&str]| {
        let error = open(id).map(|_| ()).unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "`{error}` names `{part}`");
        }
    };
    check("m2", &["`m2`", "KIND:NAME", "sim:m2"]);
    check("rocm:0", &["`rocm:0`", "no kind `rocm`", "sim:m2"]);
    check("sim:m99", &["m99", "m2", "sim:FILE.toml"]);
    check("sim:none.toml", &["none.toml", "can't be read"]);
    for entry in TABLE.iter().filter(|entry| entry.hardware) {
        for found in (entry.list)() {
            if let Err(why) = found.state {
                check(&found.id, &[&why, "sim:m2"]);
            }
        }
    }
}
