//! The CUDA backend, unchanged, on a driver without a GPU that fails: what is told, and that nothing
//! panics, hangs or is kept.

#![cfg(target_os = "linux")]

mod cuda_fake;

use cuda_fake::{Fake, Fault, build, fake};
use everwarm_gpu::backend::TABLE;
use everwarm_gpu::backend::cuda::yardstick;
use everwarm_gpu::{Backend, Error, Monotonic, open, watch};
use everwarm_units::{Hertz, Span, Watts};
use everwarm_workload::Kernel;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Codes of the driver.
const NO_DEVICE: u32 = 100;
const UNAVAILABLE: u32 = 46;
const ILLEGAL_ADDRESS: u32 = 700;

/// One test at a time on a healthy fake; afterwards no rule is broken and nothing is held.
fn with_fake(test: impl Fn(&Fake)) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fake = fake();
    test(fake);
    assert_eq!(fake.broken(), "");
    assert_eq!(fake.held(), 0, "all is given back");
}

fn land(backend: &mut dyn Backend) -> Result<everwarm_gpu::Completion, Error> {
    let deadline = backend.now() + Span::s(10);
    Ok(backend.wait(deadline)?.expect("it ends within 10 s"))
}

#[test]
fn a_lost_device_is_told_once_and_for_all_and_comes_back_for_a_new_handle() {
    with_fake(|fake| {
        let mut backend = open("cuda:0").unwrap();
        let queue = backend.queue().unwrap();
        backend.commit(queue, &backend.device().fma(Span::ms(2), Kernel::FMA_THREADS)).unwrap();
        fake.set(Fault::Lost, ILLEGAL_ADDRESS);
        let began = Monotonic::now();
        let error = land(backend.as_mut()).unwrap_err();
        assert!(matches!(error, Error::Lost { .. }), "{error}");
        assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{error}");
        assert!(Monotonic::now().since(began) < Span::s(5), "and it is told soon");
        fake.set(Fault::Lost, 0);
        // The context is beyond help, whatever the driver says later.
        assert_eq!(backend.commit(queue, &Kernel::Empty).unwrap_err(), error);
        assert_eq!(backend.poll().unwrap_err(), error);
        assert_eq!(backend.counters().unwrap_err(), error);
        assert!(matches!(backend.queue().unwrap_err(), Error::Lost { .. }));
        drop(backend);
        let mut backend = open("cuda:0").unwrap();
        let queue = backend.queue().unwrap();
        backend.commit(queue, &Kernel::Empty).unwrap();
        land(backend.as_mut()).unwrap();
    });
}

#[test]
fn a_launch_that_fails_and_a_kernel_that_says_nothing_are_lost_devices() {
    with_fake(|fake| {
        let mut backend = open("cuda:0").unwrap();
        let queue = backend.queue().unwrap();
        fake.set(Fault::Launch, 719);
        let error = backend.commit(queue, &Kernel::Empty).unwrap_err().to_string();
        assert!(error.contains("cuda:0 is gone: cuLaunchKernel said error 719"), "{error}");
        fake.set(Fault::Launch, 0);
        drop(backend);

        let mut backend = open("cuda:0").unwrap();
        let queue = backend.queue().unwrap();
        fake.set(Fault::Mute, 1);
        backend.commit(queue, &Kernel::Empty).unwrap();
        let error = land(backend.as_mut()).unwrap_err().to_string();
        assert!(error.contains("without saying when"), "{error}");
        fake.set(Fault::Mute, 0);
    });
}

#[test]
fn memory_that_runs_out_hurts_only_what_wants_it() {
    with_fake(|fake| {
        let mut backend = open("cuda:0").unwrap();
        let queue = backend.queue().unwrap();
        fake.set(Fault::Memory, 1);
        for kernel in [Kernel::Stream { bytes: 1 << 20 }, Kernel::Matmul { n: 64 }] {
            let error = backend.commit(queue, &kernel).unwrap_err();
            assert!(matches!(error, Error::Memory { .. }), "{error}");
            assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY (2)"), "{error}");
        }
        assert!(matches!(backend.queue().unwrap_err(), Error::Memory { .. }));
        backend.commit(queue, &Kernel::Empty).expect("this needs no memory");
        land(backend.as_mut()).unwrap();
        let error = open("cuda:1").map(drop).unwrap_err();
        assert!(matches!(error, Error::NoDevice { .. }), "{error}");
        fake.set(Fault::Memory, 0);
        backend.commit(queue, &Kernel::Stream { bytes: 1 << 20 }).expect("there is room again");
        land(backend.as_mut()).unwrap();
        // Never, whatever is free: the fake has 4 GiB.
        let error = backend.commit(queue, &Kernel::Stream { bytes: u64::MAX }).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let error = backend.commit(queue, &Kernel::Matmul { n: 20_000 }).unwrap_err();
        assert!(error.to_string().contains("wants 4.8 GB of memory, and has 4.3 GB"), "{error}");
    });
}

#[test]
fn a_context_that_is_refused_leaves_nothing_behind() {
    with_fake(|fake| {
        fake.set(Fault::Context, UNAVAILABLE);
        let error = open("cuda:0").map(drop).unwrap_err();
        fake.set(Fault::Context, 0);
        assert!(matches!(error, Error::NoDevice { .. }), "{error}");
        assert!(error.to_string().contains("CUDA_ERROR_DEVICE_UNAVAILABLE (46)"), "{error}");
    });
}

#[test]
fn listing_and_watching_make_no_context() {
    with_fake(|fake| {
        let cuda = TABLE.iter().find(|entry| entry.prefix == "cuda").unwrap();
        let found = (cuda.list)();
        assert_eq!(found.iter().map(|f| f.id.as_str()).collect::<Vec<_>>(), ["cuda:0", "cuda:1"]);
        assert_eq!(found[0].state.as_deref(), Ok("Fake GPU"));
        let power =
            |n: usize| found[n].facts.iter().find(|f| f.0 == "power now").unwrap().1.clone();
        // The second one is found by its place on the bus.
        assert_eq!([power(0), power(1)], ["100 W", "200 W"]);
        fake.set(Fault::Reasons, 0x4 | 0x1);
        let counters = watch("cuda:1").unwrap().read().unwrap();
        fake.set(Fault::Reasons, 0);
        assert_eq!(counters.power, Some(Watts::w(200.0)));
        assert_eq!(counters.clock, Some(Hertz::mhz(1980.0)));
        assert_eq!(counters.memory_clock, Some(Hertz::mhz(3201.0)));
        assert_eq!(counters.limited_by, Some(vec!["power cap".to_owned()]));
        assert_eq!((counters.temperature, counters.residency), (None, None), "nobody tells these");
        assert_eq!(fake.held(), 0);
    });
}

#[test]
fn handles_of_a_process_share_one_context() {
    with_fake(|fake| {
        let first = open("cuda:0").unwrap();
        let with_one = fake.held();
        let second = open("cuda:0").unwrap();
        // A second one adds its timer's stream and mailbox, and neither context nor kernels.
        assert_eq!(fake.held() - with_one, 2);
        drop(first);
        drop(second);
    });
}

#[test]
fn a_coarse_timer_is_told_and_tells_no_clock_of_short_work() {
    with_fake(|fake| {
        fake.set(Fault::TimerStep, 1_024);
        let mut backend = open("cuda:0").unwrap();
        let queue = backend.queue().unwrap();
        let facts = &backend.device().facts;
        let step = facts.iter().find(|fact| fact.0 == "GPU timer step").unwrap().1.as_str();
        assert_eq!(step, "1024 ns");
        let mut clock = |us: u32| {
            let kernel = Kernel::Fma { iterations: 250 * us, threads: 64 };
            backend.commit(queue, &kernel).unwrap();
            land(backend.as_mut()).unwrap().clock
        };
        assert_eq!(clock(50), None);
        let clock = clock(500).expect("500 us are many steps").as_mhz();
        assert!((1_980.0..2_020.0).contains(&clock), "{clock} MHz, and the fake runs at 2 GHz");
        fake.set(Fault::TimerStep, 0);
    });
}

#[test]
fn what_is_refused_half_way_is_given_back() {
    with_fake(|fake| {
        let backend = open("cuda:0").unwrap();
        let held = fake.held();
        fake.set(Fault::Pointer, 1);
        assert!(open("cuda:0").is_err() && yardstick::Bare::open("cuda:0").is_err());
        fake.set(Fault::Pointer, 0);
        assert_eq!(fake.held(), held);
        drop(backend);
    });
}

#[test]
fn a_device_that_is_busy_for_seconds_can_be_opened() {
    with_fake(|fake| {
        fake.set(Fault::Busy, 2_500);
        let opened = std::thread::scope(|scope| {
            let opened = scope.spawn(|| open("cuda:0").map(drop));
            std::thread::sleep(std::time::Duration::from_millis(100));
            fake.set(Fault::Busy, 0);
            opened.join().unwrap()
        });
        opened.unwrap();
    });
}

#[test]
fn memory_is_made_ready_before_the_commit() {
    with_fake(|fake| {
        let mut backend = open("cuda:0").unwrap();
        let queue = backend.queue().unwrap();
        fake.set(Fault::SlowMemory, 50);
        let asked = backend.now();
        backend.commit(queue, &Kernel::Stream { bytes: 1 << 20 }).unwrap();
        fake.set(Fault::SlowMemory, 0);
        let landed = land(backend.as_mut()).unwrap();
        assert!(landed.committed.since(asked) >= Span::ms(50), "{landed:?} asked for at {asked}");
        assert!(landed.gpu_start.since(landed.committed) < Span::ms(20), "{landed:?}");
    });
}

#[test]
fn a_handle_that_is_never_idle_reads_its_timer_again() {
    with_fake(|fake| {
        let mut backend = open("cuda:0").unwrap();
        let queue = backend.queue().unwrap();
        let kernel = backend.device().fma(Span::ms(5), Kernel::FMA_THREADS);
        let before = fake.bursts();
        for _ in 0..4 {
            backend.commit(queue, &kernel).unwrap();
        }
        let end = backend.now() + Span::s(5);
        while backend.now() < end {
            land(backend.as_mut()).unwrap();
            backend.commit(queue, &kernel).unwrap();
        }
        let bursts = fake.bursts() - before;
        assert!((2..=6).contains(&bursts), "{bursts} bursts in 5 s");
    });
}

#[test]
fn a_second_handle_knows_how_fast_the_timer_is() {
    with_fake(|_| {
        for _ in 0..2 {
            let backend = open("cuda:0").unwrap();
            let facts = &backend.device().facts;
            let stamps = facts.iter().find(|fact| fact.0 == "GPU stamps on the host's clock");
            let stamps = &stamps.unwrap().1;
            let ppm = stamps.split(", ").nth(1).and_then(|ppm| ppm.strip_suffix(" ppm"));
            let ppm: f64 = ppm.unwrap().parse().unwrap();
            // On a busy machine a reading is late by microseconds, and so the rate off by some ppm.
            assert!((ppm + 20.0).abs() < 10.0, "{stamps}; the fake is 20 ppm too fast");
        }
    });
}

/// Prints why `cuda:0` can't be opened, for [`what_is_wrong_with_a_driver_is_told`].
#[test]
fn says_why() {
    if std::env::var_os("EVERWARM_TEST_SAY").is_some() {
        println!("why: {}", open("cuda:0").map(drop).unwrap_err());
    }
}

#[test]
fn what_is_wrong_with_a_driver_is_told() {
    let check = |configuration: &str, expected: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["says_why", "--exact", "--nocapture"])
            .env("EVERWARM_TEST_SAY", "1")
            .env("LD_LIBRARY_PATH", build(&[configuration]))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected) && output.status.success(), "{configuration}: {text}");
    };
    check("old_driver", "libcuda.so.1 has no cuDeviceGetUuid: the driver is too old");
    check("refusing_driver", &format!("cuInit said CUDA_ERROR_NO_DEVICE ({NO_DEVICE})"));
    check("empty_driver", "no CUDA: the driver has no device");
    check("blank_library", "libcuda.so.1 has no cuInit");
}
