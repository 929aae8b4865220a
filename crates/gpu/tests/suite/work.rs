//! Checks of what can be run, of what can't, and of how it is refused.

use super::{fma, land};
use everwarm_gpu::{Backend, Error, Monotonic, Queue};
use everwarm_units::{Hertz, PState, Span};
use everwarm_workload::Kernel;

/// The device still does what it should.
fn is_well(backend: &mut dyn Backend, queue: Queue) {
    backend.commit(queue, &Kernel::Empty).expect("the device still works");
    land(backend, 1);
}

pub fn every_kernel_runs(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let kernels = [
        Kernel::Empty,
        fma(backend, Span::us(200)),
        Kernel::Fma { iterations: 1000, threads: Kernel::GROUP_THREADS },
        Kernel::Fma { iterations: 1, threads: 1 },
        Kernel::Stream { bytes: 33_600_000 },
        Kernel::Stream { bytes: 1 },
        Kernel::Matmul { n: 256 },
        Kernel::Matmul { n: 33 },
        Kernel::Modelled { flops: 1e9, bytes: 1e6, resident: 0.0 },
        Kernel::Modelled { flops: 0.0, bytes: 0.0, resident: 1e6 },
    ];
    for kernel in kernels {
        let before = backend.now();
        backend.commit(queue, &kernel).unwrap_or_else(|error| panic!("{kernel:?}: {error}"));
        let c = land(backend, 1)[0];
        assert!(before <= c.committed && c.committed <= c.gpu_start, "{kernel:?}: {c:?}");
        assert!(c.gpu_start <= c.gpu_end && c.gpu_end <= c.observed, "{kernel:?}: {c:?}");
        if let Some(clock) = c.clock {
            assert!(Hertz::mhz(10.0) < clock && clock < Hertz::ghz(10.0), "{kernel:?}: {clock}");
        }
        if let (Some(pstate), Some(table)) = (c.pstate, &backend.device().pstates) {
            assert!(pstate > PState::OFF && pstate.index() <= table.len(), "{kernel:?}: {pstate}");
        }
    }
}

pub fn more_bytes_take_longer(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let sizes = [64_000_000, 512_000_000];
    let mut shortest = [Span::MAX; 2];
    for n in 0..8 {
        backend.commit(queue, &Kernel::Stream { bytes: sizes[n % 2] }).unwrap();
        let c = land(backend, 1)[0];
        shortest[n % 2] = shortest[n % 2].min(c.gpu_end.since(c.gpu_start));
    }
    let ratio = shortest[1].as_ms() / shortest[0].as_ms();
    assert!((3.0..24.0).contains(&ratio), "8 times the bytes: {shortest:?}");
}

pub fn a_kernel_of_nothing_is_harmless(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let odd = |flops, bytes| Kernel::Modelled { flops, bytes, resident: 0.0 };
    let kernels = [
        Kernel::Fma { iterations: 0, threads: 0 },
        Kernel::Fma { iterations: 0, threads: 64 },
        Kernel::Fma { iterations: 1, threads: 0 },
        Kernel::Stream { bytes: 0 },
        Kernel::Matmul { n: 0 },
        odd(f64::NAN, 0.0),
        odd(0.0, f64::NAN),
        odd(-1e9, -1e9),
    ];
    // A model takes any cost, and virtual time as long as it lasts.
    let endless = [odd(1e30, 0.0), odd(f64::INFINITY, 0.0), odd(0.0, f64::INFINITY)];
    let real = !backend.device().simulated;
    let kernels = kernels.into_iter().chain(endless.into_iter().filter(|_| real));
    for kernel in kernels {
        match backend.commit(queue, &kernel) {
            Ok(_) => drop(land(backend, 1)),
            Err(Error::Unsupported { .. }) => {}
            Err(other) => panic!("{kernel:?}: {other}"),
        }
        is_well(backend, queue);
    }
}

pub fn work_beyond_the_memory_is_refused(backend: &mut dyn Backend) {
    if backend.device().simulated {
        return; // A model has no memory that could run out.
    }
    let queue = backend.queue().unwrap();
    for kernel in [Kernel::Matmul { n: u32::MAX }, Kernel::Matmul { n: 10_000_000 }] {
        let error = backend.commit(queue, &kernel).expect_err("no device has so much memory");
        assert!(matches!(error, Error::Unsupported { .. } | Error::Limit { .. }), "{error}");
        is_well(backend, queue);
    }
}

pub fn a_queue_that_is_not_open_is_refused(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    for wrong in [Queue(queue.0 + 1), Queue(u32::MAX)] {
        let error = backend.commit(wrong, &Kernel::Empty).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
        assert!(error.to_string().contains(&format!("queue {}", wrong.0)), "{error}");
    }
    is_well(backend, queue);
}

pub fn queues_are_limited_and_the_limit_is_told(backend: &mut dyn Backend) {
    let mut last = None;
    let error = loop {
        match backend.queue() {
            Ok(queue) => last = Some(queue),
            Err(error) => break error,
        }
        assert!(last.is_none_or(|queue| queue.0 < 100_000), "queues without an end");
    };
    assert!(matches!(error, Error::Limit { .. }), "{error}");
    is_well(backend, last.expect("one at least"));
}

pub fn a_clock_that_can_not_be_held_is_refused(backend: &mut dyn Backend) {
    let error = backend.pin(Some(PState(u8::MAX))).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    backend.pin(None).expect("giving the clock back is always possible");
}

pub fn a_commit_does_not_wait(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let long = fma(backend, Span::ms(100));
    let began = Monotonic::now();
    for _ in 0..3 {
        backend.commit(queue, &long).unwrap();
    }
    let took = Monotonic::now().since(began);
    if !backend.device().virtual_time {
        assert!(took < Span::ms(100), "three commits of 100 ms of work took {took}");
    }
    land(backend, 3);
    // The memory of a read may have to be made once; then a read waits no more than a chain.
    let read = Kernel::Stream { bytes: 64_000_000 };
    backend.commit(queue, &read).unwrap();
    land(backend, 1);
    backend.commit(queue, &long).unwrap();
    let began = Monotonic::now();
    backend.commit(queue, &read).unwrap();
    let took = Monotonic::now().since(began);
    assert!(backend.device().virtual_time || took < Span::ms(50), "a read took {took} to commit");
    land(backend, 2);
}

pub fn depth_hides_the_host(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let kernel = fma(backend, Span::ms(1));
    // The gaps between 40 buffers with so many in flight.
    let mut median_gap = |depth: usize| {
        let mut landed = Vec::new();
        for n in 0..40 {
            backend.commit(queue, &kernel).unwrap();
            if n + 1 >= depth {
                landed.extend(land(backend, 1));
            }
        }
        landed.extend(land(backend, depth - 1));
        let mut gaps: Vec<_> =
            landed.windows(2).map(|pair| pair[1].gpu_start.since(pair[0].gpu_end)).collect();
        gaps.sort();
        gaps[gaps.len() / 2]
    };
    let rounds: Vec<_> = (0..3).map(|_| (median_gap(1), median_gap(4))).collect();
    assert!(rounds.iter().any(|(sync, deep)| deep < sync), "sync and deep: {rounds:?}");
}
