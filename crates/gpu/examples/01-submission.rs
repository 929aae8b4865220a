//! What submission costs on a device, and what the device tells: `01-submission vulkan:0`.
//!
//! Times of the commit call, of commit to start and of end to observation, gaps between buffers by
//! how many are in flight, clocks as kernels count them, bandwidth and arithmetic, what a first
//! buffer after idle meets. With a number of seconds as second argument it only opens the device and
//! leaves it idle for so long.

use everwarm_gpu::{Backend, Completion, Error, Queue, open};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;

fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let id = words.next().unwrap_or_else(everwarm_gpu::default_device);
    let begun = std::time::Instant::now();
    let mut device = open(&id)?;
    println!("{id}: {}, opened in {:.0?}", device.device().name, begun.elapsed());
    for (name, value) in &device.device().facts {
        println!("  {name}: {value}");
    }
    if let Some(seconds) = words.next().and_then(|word| word.parse().ok()) {
        let later = device.now() + Span::s(seconds);
        device.sleep_until(later);
        return Ok(());
    }
    let of = device.device();
    println!("  FMA iterations/ms: {:.0}", of.fma_iterations_per_ms);
    println!("  FMA iterations/ms, one group: {:.0}", of.fma_iterations_per_ms_group);
    let queue = device.queue()?;
    let kernels = [
        ("empty", Kernel::Empty),
        ("fma 20 us", device.device().fma(Span::us(20), Kernel::FMA_THREADS)),
        ("fma 200 us", device.device().fma(Span::us(200), Kernel::FMA_THREADS)),
        ("group 200 us", device.device().fma(Span::us(200), Kernel::GROUP_THREADS)),
    ];
    println!("\nus: p50 / p99 / most     in flight");
    for (name, kernel) in kernels {
        for depth in [1, 2, 4, 16, 64] {
            submission(device.as_mut(), queue, name, kernel, depth)?;
        }
    }
    work(device.as_mut(), queue)?;
    after_idle(device.as_mut(), queue)?;
    println!("\ncounters: {:?}", device.counters()?);
    Ok(())
}

/// Keeps `depth` buffers in flight.
fn submission(
    device: &mut dyn Backend,
    queue: Queue,
    name: &str,
    kernel: Kernel,
    depth: usize,
) -> Result<(), Error> {
    let mut calls = Vec::new();
    let mut landed: Vec<Completion> = Vec::new();
    let until = device.now() + Span::ms(600);
    let mut in_flight = 0;
    while device.now() < until || in_flight > 0 {
        if in_flight < depth && device.now() < until {
            let before = device.now();
            device.commit(queue, &kernel)?;
            calls.push(device.now().since(before).as_us());
            in_flight += 1;
        } else if let Some(completion) = device.wait(Instant::FAR_FUTURE)? {
            landed.push(completion);
            in_flight -= 1;
        }
    }
    let (skip, us) = (landed.len() / 4, |later: Instant, earlier| later.since(earlier).as_us());
    let landed = &landed[skip..];
    println!("{name}, {} buffers, {depth} in flight", landed.len());
    show("  commit call", calls.split_off(skip));
    show("  gap", landed.windows(2).map(|p| us(p[1].gpu_start, p[0].gpu_end)).collect());
    show("  on the GPU", landed.iter().map(|c| us(c.gpu_end, c.gpu_start)).collect());
    if depth == 1 {
        show("  commit to start", landed.iter().map(|c| us(c.gpu_start, c.committed)).collect());
        show("  end to observed", landed.iter().map(|c| us(c.observed, c.gpu_end)).collect());
    }
    Ok(())
}

fn show(what: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
    if !values.is_empty() {
        println!("{what:18} {:9.2} {:9.2} {:9.2}", at(0.5), at(0.99), at(1.0));
    }
}

fn land(device: &mut dyn Backend) -> Result<Completion, Error> {
    let deadline = device.now() + Span::s(60);
    Ok(device.wait(deadline)?.expect("it ends within a minute"))
}

/// Long kernels of each kind: rates, and the clock where kernels count it.
fn work(device: &mut dyn Backend, queue: Queue) -> Result<(), Error> {
    println!();
    let of = device.device();
    let kernels = [
        ("fma 5 ms", of.fma(Span::ms(5), Kernel::FMA_THREADS)),
        ("fma 50 ms", of.fma(Span::ms(50), Kernel::FMA_THREADS)),
        ("group 5 ms", of.fma(Span::ms(5), Kernel::GROUP_THREADS)),
        ("stream 16 MB", Kernel::Stream { bytes: 16 << 20 }),
        ("stream 4 GB", Kernel::Stream { bytes: 4 << 30 }),
        ("matmul 512", Kernel::Matmul { n: 512 }),
        ("matmul 4096", Kernel::Matmul { n: 4_096 }),
        ("modelled", Kernel::Modelled { flops: 1e11, bytes: 1e9, resident: 0.0 }),
    ];
    for (name, kernel) in kernels {
        let on_cpu = device.device().facts.iter().any(|(name, _)| name == "software");
        if on_cpu && name.contains(['4', 'd']) {
            continue; // minutes
        }
        for _ in 0..8 {
            device.commit(queue, &kernel)?;
        }
        let mut last = land(device)?;
        for _ in 1..8 {
            last = land(device)?;
        }
        let ms = last.gpu_end.since(last.gpu_start).as_ms();
        let rate = |amount: Option<f64>, unit| {
            amount.map_or(String::new(), |a| format!(", {:.3} T{unit}/s", a / ms / 1e9))
        };
        let (flops, bytes) = (rate(kernel.flops(), "FLOP"), rate(kernel.bytes(), "B"));
        println!("{name:14} {ms:9.3} ms{flops}{bytes}, clock {:?}", last.clock);
    }
    Ok(())
}

/// The first buffer after some idle time, and a second one.
fn after_idle(device: &mut dyn Backend, queue: Queue) -> Result<(), Error> {
    println!("\nafter idle: call, commit to start, on the GPU (us), clock; then a second one");
    let kernel = device.device().fma(Span::ms(1), Kernel::FMA_THREADS);
    for idle in [1, 10, 100, 500, 2_000, 5_000] {
        let later = device.now() + Span::ms(idle);
        device.sleep_until(later);
        let mut line = format!("{idle:5} ms:");
        for _ in 0..2 {
            let before = device.now();
            device.commit(queue, &kernel)?;
            let call = device.now().since(before).as_us();
            let c = land(device)?;
            line += &format!(
                " {call:8.1} {:9.1} {:9.1} {:?}",
                c.gpu_start.since(c.committed).as_us(),
                c.gpu_end.since(c.gpu_start).as_us(),
                c.clock.map(|clock| clock.as_mhz().round()),
            );
        }
        println!("{line}");
    }
    Ok(())
}
