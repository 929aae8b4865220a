//! That the work was really done, on whatever Vulkan device there is: on lavapipe in the project's
//! tests. Without one they say so and pass.

use super::check::{chain_end, separate};
use super::handle::{Gpu, Options};
use super::kernels::{filled, results};
use crate::{Backend, Completion, Error, Queue};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;

/// The first device, unmeasured; `plain` without what not every driver has.
fn device(plain: bool) -> Option<Gpu> {
    let found = super::list().into_iter().next().expect("a device, or why there is none");
    match found.state {
        Ok(_) => Some(Gpu::open("vulkan:0", Options { plain, measured: false }).unwrap()),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

fn run(gpu: &mut Gpu, queue: Queue, kernel: Kernel) -> Completion {
    gpu.commit(queue, &kernel).unwrap();
    let deadline = gpu.now() + Span::s(60);
    gpu.wait(deadline).unwrap().expect("it ends within a minute")
}

#[test]
fn a_chain_does_every_iteration_in_every_thread() {
    let Some(mut gpu) = device(false) else { return };
    let queue = gpu.queue().unwrap();
    // The last one goes on beyond what some drivers let one loop do.
    for (iterations, threads) in
        [(1, 1), (31, 32), (32, 33), (1_000, 65_536), (77, 300), (65_600 * 32 + 5, 32)]
    {
        run(&mut gpu, queue, Kernel::Fma { iterations, threads });
        let words = gpu.stock.words(0, 0, results::X + threads as usize).unwrap();
        assert_eq!(words[results::DONE], iterations);
        let ends = |fma: fn(f32, f32, f32) -> f32| {
            let table: Vec<u32> =
                (0..threads.min(256)).map(|t| chain_end(t, iterations.min(1_000), fma)).collect();
            table
        };
        if iterations > 1_000 {
            let end = words[results::X];
            let known = [f32::mul_add, separate].map(|fma| chain_end(0, iterations, fma));
            assert!(known.contains(&end), "{end:#x} of {known:x?}");
            continue;
        }
        let same = |table: Vec<u32>| {
            (0..threads as usize).all(|t| words[results::X + t] == table[t % 256])
        };
        assert!(same(ends(f32::mul_add)) || same(ends(separate)), "{iterations} x {threads}");
    }
}

#[test]
fn a_read_reads_every_byte_also_of_more_than_there_is() {
    let Some(mut gpu) = device(false) else { return };
    let queue = gpu.queue().unwrap();
    let mut sum = {
        let mut before = 0u32;
        move |gpu: &mut Gpu| {
            let sums = gpu.stock.words(0, results::SUMS, results::THREADS).unwrap();
            let now = sums.iter().fold(0u32, |a, b| a.wrapping_add(*b));
            let gained = now.wrapping_sub(before);
            before = now;
            gained
        }
    };
    run(&mut gpu, queue, Kernel::Stream { bytes: 16 });
    sum(&mut gpu);
    let windows = gpu.means.windows.clone();
    let total: u64 = windows.iter().map(|words| u64::from(*words)).sum();
    let all = |from: u64, words: u64| {
        let place = |at: u64| {
            let (mut window, mut at) = (0, at % total);
            while at >= u64::from(windows[window]) {
                at -= u64::from(windows[window]);
                window += 1;
            }
            (window as u32, at as u32)
        };
        (from..from + words).fold(0u32, |sum, at| {
            let (seed, word) = place(at);
            (0..4).fold(sum, |sum, n| sum.wrapping_add(filled(4 * word + n, seed)))
        })
    };
    let mut at = 1;
    for words in [1, 255, 100_000, total - 50_000, total + total / 2] {
        run(&mut gpu, queue, Kernel::Stream { bytes: 16 * words });
        assert_eq!(sum(&mut gpu), all(at, words), "{words} words");
        at = (at + words) % total;
    }
}

#[test]
fn a_product_is_the_product() {
    let Some(mut gpu) = device(false) else { return };
    let queue = gpu.queue().unwrap();
    for n in [1u32, 17, 64, 100, 257] {
        run(&mut gpu, queue, Kernel::Matmul { n });
        let made = gpu.stock.product(n).unwrap();
        let value = |seed, row, column| f64::from(f32::from_bits(filled(row * n + column, seed)));
        for (row, column) in [(0, 0), (n - 1, 0), (0, n - 1), (n / 2, n / 3), (n - 1, n - 1)] {
            let expected: f64 = (0..n).map(|k| value(0, row, k) * value(1, k, column)).sum();
            let got = f64::from(f32::from_bits(made[(row * n + column) as usize]));
            assert!((got / expected - 1.0).abs() < 1e-4, "{n}: {got}, {expected} expected");
        }
    }
}

#[test]
fn too_much_is_refused_and_the_device_goes_on() {
    let Some(mut gpu) = device(false) else { return };
    let queue = gpu.queue().unwrap();
    for kernel in [Kernel::Matmul { n: 1_000_000 }, Kernel::Stream { bytes: u64::MAX }] {
        let error = gpu.commit(queue, &kernel).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
    run(&mut gpu, queue, Kernel::Empty);
}

#[test]
fn queues_that_share_a_real_one_keep_their_order() {
    let Some(mut gpu) = device(false) else { return };
    let real = gpu.context.queues.len();
    let queues: Vec<Queue> = (0..2 * real + 1).map(|_| gpu.queue().unwrap()).collect();
    let mut tickets = vec![Vec::new(); queues.len()];
    for iterations in [3_000, 10, 1_000] {
        for queue in &queues {
            let kernel = Kernel::Fma { iterations, threads: 65_536 };
            tickets[queue.0 as usize].push(gpu.commit(*queue, &kernel).unwrap());
        }
    }
    let mut landed: Vec<Vec<Completion>> = vec![Vec::new(); queues.len()];
    for _ in 0..3 * queues.len() {
        let deadline = gpu.now() + Span::s(60);
        let completion = gpu.wait(deadline).unwrap().unwrap();
        landed[completion.queue.0 as usize].push(completion);
    }
    for (landed, tickets) in landed.iter().zip(&tickets) {
        assert_eq!(landed.iter().map(|c| c.ticket).collect::<Vec<_>>(), *tickets);
        assert!(landed.windows(2).all(|pair| pair[0].gpu_end <= pair[1].gpu_start));
    }
    // Those that share one run one after the other, whatever their lanes.
    let mut first: Vec<&Completion> = landed.iter().step_by(real).flatten().collect();
    first.sort_by_key(|c| c.ticket);
    assert!(first.windows(2).all(|pair| pair[0].gpu_end <= pair[1].gpu_start + Span::us(5)));
}

#[test]
fn stamps_are_placed_with_and_without_the_drivers_help() {
    for plain in [false, true] {
        let Some(mut gpu) = device(plain) else { return };
        let queue = gpu.queue().unwrap();
        for _ in 0..20 {
            let kernel = Kernel::Fma { iterations: 500, threads: 65_536 };
            gpu.commit(queue, &kernel).unwrap();
            while !gpu.lanes[0].has_landed().unwrap() {
                std::hint::spin_loop();
            }
            let observed = gpu.now();
            let (slot, stamps) = gpu.lanes[0].land().unwrap();
            let (start, end) = (gpu.at(stamps.start), gpu.at(stamps.end));
            let committed = gpu.lanes[0].slots[slot].committed;
            let error = gpu.timer.error();
            assert!(committed <= start + error, "{committed:?} {start:?} {error}");
            assert!(start < end && end <= observed + error, "{end:?} {observed:?} {error}");
            gpu.lanes[0].reset(slot).unwrap();
        }
    }
}

#[test]
fn what_has_landed_stays_until_it_was_taken() {
    let Some(mut gpu) = device(false) else { return };
    let queue = gpu.queue().unwrap();
    gpu.commit(queue, &Kernel::Empty).unwrap();
    while !gpu.lanes[0].has_landed().unwrap() {
        std::hint::spin_loop();
    }
    // As when the driver had no memory for what comes after.
    let looked = gpu.lanes[0].land().unwrap();
    assert_eq!(gpu.lanes[0].land().unwrap(), looked);
    assert!(gpu.poll().unwrap().is_some());
    let short = gpu.trouble("a test", ash::vk::Result::ERROR_OUT_OF_HOST_MEMORY);
    assert!(matches!(short, Error::Memory { .. }), "{short}");
    run(&mut gpu, queue, Kernel::Empty);
}

#[test]
fn a_buffer_that_stands_written_is_used_again() {
    let Some(mut gpu) = device(false) else { return };
    let queue = gpu.queue().unwrap();
    let kernels = [Kernel::Empty, Kernel::Fma { iterations: 9, threads: 32 }];
    for kernel in kernels {
        run(&mut gpu, queue, kernel);
    }
    let lane = &mut gpu.lanes[0];
    for kernel in kernels {
        let (slot, recorded) = lane.take(&kernel).unwrap();
        assert!(recorded, "{kernel:?}");
        lane.give_back(slot);
    }
    assert!(!lane.take(&Kernel::Fma { iterations: 10, threads: 32 }).unwrap().1);
}

#[test]
fn a_process_can_open_a_device_again_and_again() {
    // NVIDIA's driver can be loaded some ten times, then no more: it has to stay loaded.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..25 {
                    let Some(mut gpu) = device(false) else { return };
                    let queue = gpu.queue().unwrap();
                    run(&mut gpu, queue, Kernel::Empty);
                }
            });
        }
    });
}

#[test]
fn a_lost_device_stays_lost_and_goes_in_peace() {
    let Some(mut gpu) = device(false) else { return };
    let queue = gpu.queue().unwrap();
    gpu.commit(queue, &Kernel::Fma { iterations: 1_000, threads: 65_536 }).unwrap();
    let lost = gpu.trouble("a test", ash::vk::Result::ERROR_DEVICE_LOST);
    let check = |error: Error| assert_eq!(error, lost);
    check(gpu.commit(queue, &Kernel::Empty).unwrap_err());
    check(gpu.poll().unwrap_err());
    check(gpu.wait(Instant::ZERO).unwrap_err());
    check(gpu.counters().unwrap_err());
    check(gpu.queue().unwrap_err());
    assert!(lost.to_string().contains("vulkan:0 is gone"), "{lost}");
}
