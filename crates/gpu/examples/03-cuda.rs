//! A first look at an NVIDIA GPU: what a dispatch costs over the bare driver, how quickly a commit
//! returns, what lies between two command buffers, how the GPU wakes, and which power it draws with
//! and without a context.
//!
//! ```sh
//! cargo run --release -p everwarm-gpu --example 03-cuda -- cuda:0
//! ```
//!
//! Every line is `what: p50 p90 p99 max (count)`; times in microseconds.

use everwarm_gpu::backend::cuda::yardstick::Bare;
use everwarm_gpu::{
    Backend, Completion, Counters, Error, Monotonic, Queue, Telemetry, open, watch,
};
use everwarm_units::Span;
use everwarm_workload::Kernel;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let id = std::env::args().nth(1).unwrap_or_else(|| "cuda:0".to_owned());
    let only_open = std::env::args().nth(2).is_some();
    let mut watch = watch(&id)?;
    let watch = watch.as_mut();
    if only_open {
        println!("before opening: {:?}", watch.read()?.clock);
        return opening(&id).map(drop).map_err(Into::into);
    }
    power(watch, "without a context")?;
    let mut gpu = opening(&id)?;
    let gpu_ref = gpu.as_mut();
    power(watch, "with an idle context")?;
    let queue = gpu_ref.queue()?;
    overhead(gpu_ref, queue, &id)?;
    gaps(gpu_ref, queue)?;
    waking(gpu_ref, queue, watch)?;
    steady(gpu_ref, queue, watch)?;
    costs(gpu_ref, queue)?;
    holding(gpu_ref, queue, watch)?;
    drop(gpu);
    power(watch, "after the context was closed")?;
    Ok(())
}

/// Opens the device and prints what it tells.
fn opening(id: &str) -> Result<Box<dyn Backend>, Error> {
    let begin = Monotonic::now();
    let gpu = open(id)?;
    println!("open: {}", Monotonic::now().since(begin));
    println!("{}", gpu.device().name);
    for (name, value) in &gpu.device().facts {
        println!("  {name}: {value}");
    }
    let (full, group) =
        (gpu.device().fma_iterations_per_ms, gpu.device().fma_iterations_per_ms_group);
    println!("FMA iterations a ms: {full:.0} full, {group:.0} one group");
    Ok(gpu)
}

/// What a hold draws: two small kernels of 1 ms in flight, for four seconds.
fn holding(gpu: &mut dyn Backend, queue: Queue, watch: &mut dyn Telemetry) -> Result<(), Error> {
    for threads in [Kernel::GROUP_THREADS, Kernel::FMA_THREADS] {
        // What ran before has left the average by then.
        let later = gpu.now() + Span::s(2);
        gpu.sleep_until(later);
        let kernel = gpu.device().fma(Span::ms(1), threads);
        let before = watch.read()?;
        gpu.commit(queue, &kernel)?;
        for _ in 0..4_000 {
            gpu.commit(queue, &kernel)?;
            land(gpu)?;
        }
        land(gpu)?;
        let after = watch.read()?;
        let clock = after.clock.map(|clock| clock.as_mhz());
        println!(
            "hold with {threads} threads: {:?} W by the energy counter, {clock:?} MHz",
            spent(&before, &after)
        );
    }
    Ok(())
}

/// Power between two readings of the energy counter. Unit: W.
fn spent(before: &Counters, after: &Counters) -> Option<f64> {
    let energy = after.gpu_energy?.as_j() - before.gpu_energy?.as_j();
    Some(energy / after.at.since(before.at).as_secs())
}

/// Percentiles of times in us.
fn print(what: &str, mut ns: Vec<u64>) {
    ns.sort_unstable();
    let at = |share: f64| ns[((ns.len() - 1) as f64 * share).round() as usize] as f64 / 1e3;
    println!("{what}: {:.2} {:.2} {:.2} {:.2} ({})", at(0.5), at(0.9), at(0.99), at(1.0), ns.len());
}

fn power(watch: &mut dyn Telemetry, what: &str) -> Result<(), Error> {
    let before = watch.read()?;
    for _ in 0..10 {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let now = watch.read()?;
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        println!(
            "{what}: {} SM {} memory {} {} limited by {:?}",
            text(now.power.map(|v| v.to_string())),
            text(now.clock.map(|v| v.to_string())),
            text(now.memory_clock.map(|v| v.to_string())),
            text(now.temperature.map(|v| v.to_string())),
            now.limited_by,
        );
    }
    let after = watch.read()?;
    println!("{what}: {:?} W by the energy counter", spent(&before, &after));
    Ok(())
}

fn land(gpu: &mut dyn Backend) -> Result<Completion, Error> {
    let deadline = gpu.now() + Span::s(20);
    gpu.wait(deadline)?.ok_or(Error::Lost { device: "it".into(), why: "no completion".into() })
}

/// The bare driver and the backend by turns, each dispatch alone on the device.
fn overhead(gpu: &mut dyn Backend, queue: Queue, id: &str) -> Result<(), Error> {
    const TIMES: usize = 5_000;
    let bare = Bare::open(id)?;
    let mut times: [Vec<u64>; 4] = std::array::from_fn(|_| Vec::with_capacity(TIMES));
    let (mut start, mut seen) = (Vec::with_capacity(TIMES), Vec::with_capacity(TIMES));
    for n in 0..TIMES + 100 {
        let begin = Monotonic::now();
        bare.launch()?;
        let launched = Monotonic::now();
        while !bare.has_ended() {
            std::hint::spin_loop();
        }
        let ended = Monotonic::now();
        let again = Monotonic::now();
        gpu.commit(queue, &Kernel::Empty)?;
        let committed = Monotonic::now();
        let c = land(gpu)?;
        let landed = Monotonic::now();
        if n >= 100 {
            let spans = [(begin, launched), (begin, ended), (again, committed), (again, landed)];
            for (times, (from, to)) in times.iter_mut().zip(spans) {
                times.push(to.since(from).as_nanos());
            }
            start.push(c.gpu_start.since(c.committed).as_nanos());
            seen.push(c.observed.since(c.gpu_end).as_nanos());
        }
    }
    let [launch, round, commit, backend_round] = times;
    print("bare launch returns after", launch);
    print("backend commit returns after", commit);
    print("bare launch to its end seen", round);
    print("backend commit to its end seen", backend_round);
    print("commit to start on the GPU", start);
    print("end on the GPU to seen", seen);
    // Commits that find others in flight.
    let mut commits = Vec::new();
    for _ in 0..200 {
        for _ in 0..32 {
            let begin = Monotonic::now();
            gpu.commit(queue, &Kernel::Empty)?;
            commits.push(Monotonic::now().since(begin).as_nanos());
        }
        for _ in 0..32 {
            land(gpu)?;
        }
    }
    print("backend commit returns after, 32 in a row", commits);
    Ok(())
}

/// From one buffer's end to the next one's start, by how many are in flight.
fn gaps(gpu: &mut dyn Backend, queue: Queue) -> Result<(), Error> {
    for us in [20, 100, 1_000] {
        let kernel = gpu.device().fma(Span::us(us), Kernel::FMA_THREADS);
        for depth in [1, 2, 4, 8, 16] {
            let times = if us == 1_000 { 200 } else { 1_000 };
            let mut done: Vec<Completion> = Vec::with_capacity(times);
            for n in 0..times {
                gpu.commit(queue, &kernel)?;
                if n + 1 >= depth {
                    done.push(land(gpu)?);
                }
            }
            while done.len() < times {
                done.push(land(gpu)?);
            }
            let gaps = done.windows(2).map(|pair| pair[1].gpu_start.since(pair[0].gpu_end));
            print(&format!("gap, {us} us kernels, {depth} in flight"), nanos(gaps));
            if depth == 16 {
                print(
                    &format!("execution of a {us} us kernel"),
                    nanos(done.iter().map(|c| c.gpu_end.since(c.gpu_start))),
                );
            }
        }
    }
    Ok(())
}

fn nanos(spans: impl Iterator<Item = Span>) -> Vec<u64> {
    spans.map(Span::as_nanos).collect()
}

/// The first dispatch after nothing for a while.
fn waking(gpu: &mut dyn Backend, queue: Queue, watch: &mut dyn Telemetry) -> Result<(), Error> {
    let kernel = gpu.device().fma(Span::ms(1), Kernel::FMA_THREADS);
    for (idle, times) in [(1, 50), (10, 30), (100, 10), (1_000, 3)] {
        let (mut start, mut ran, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..times {
            let later = gpu.now() + Span::ms(idle);
            gpu.sleep_until(later);
            gpu.commit(queue, &kernel)?;
            let c = land(gpu)?;
            start.push(c.gpu_start.since(c.committed));
            ran.push(c.gpu_end.since(c.gpu_start));
            clocks.extend(c.clock.map(|clock| clock.as_mhz() as u64));
        }
        print(&format!("after {idle} ms idle: commit to start"), nanos(start.into_iter()));
        print(&format!("after {idle} ms idle: 1 ms of FMA took"), nanos(ran.into_iter()));
        println!(
            "after {idle} ms idle: clock {:?} to {:?} MHz, NVML {:?}",
            clocks.iter().min(),
            clocks.iter().max(),
            watch.read()?.clock.map(|clock| clock.as_mhz())
        );
    }
    Ok(())
}

/// The clock in steady work, as the kernels count it and as NVML tells it.
fn steady(gpu: &mut dyn Backend, queue: Queue, watch: &mut dyn Telemetry) -> Result<(), Error> {
    let kernel = gpu.device().fma(Span::ms(5), Kernel::FMA_THREADS);
    let before = watch.read()?;
    let mut clocks = Vec::new();
    let mut told = Vec::new();
    for n in 0..400 {
        gpu.commit(queue, &kernel)?;
        if n >= 3 {
            clocks.extend(land(gpu)?.clock.map(|clock| clock.as_mhz()));
        }
        if n % 20 == 19 {
            told.extend(watch.read()?.clock.map(|clock| clock.as_mhz()));
        }
    }
    for _ in 0..3 {
        land(gpu)?;
    }
    let after = watch.read()?;
    clocks.sort_by(f64::total_cmp);
    println!(
        "steady: clock {:?} .. {:?} .. {:?} MHz, NVML {told:?}",
        clocks.first(),
        clocks.get(clocks.len() / 2),
        clocks.last()
    );
    println!(
        "steady: {:?} W by the energy counter, {:?} by the power reading",
        spent(&before, &after),
        after.power.map(|power| power.as_w())
    );
    Ok(())
}

/// What the other kernels reach.
fn costs(gpu: &mut dyn Backend, queue: Queue) -> Result<(), Error> {
    let chain = |iterations, threads| Kernel::Fma { iterations, threads };
    let kernels = [
        Kernel::Stream { bytes: 1 << 20 },
        Kernel::Stream { bytes: 64 << 20 },
        Kernel::Stream { bytes: 1 << 30 },
        Kernel::Stream { bytes: 16 << 30 },
        Kernel::Matmul { n: 1_000 },
        Kernel::Matmul { n: 8_192 },
        chain(100_000, Kernel::GROUP_THREADS),
        chain(100_000, Kernel::FMA_THREADS),
        chain(10_000, 1 << 20),
        Kernel::Modelled { flops: 1e12, bytes: 1e9, resident: 0.0 },
    ];
    for kernel in kernels {
        let mut best = Span::MAX;
        for _ in 0..5 {
            gpu.commit(queue, &kernel)?;
            let c = land(gpu)?;
            best = best.min(c.gpu_end.since(c.gpu_start));
        }
        let per_s = |amount: f64| amount / best.as_secs();
        println!(
            "{kernel:?}: {best}; {:.3e} flop/s, {:.3e} B/s",
            per_s(kernel.flops().unwrap_or(0.0)),
            per_s(kernel.bytes().unwrap_or(0.0))
        );
    }
    for kernel in [Kernel::Stream { bytes: u64::MAX }, Kernel::Matmul { n: 500_000 }] {
        match gpu.commit(queue, &kernel) {
            Err(error) => println!("refused: {error}"),
            Ok(_) => println!("{kernel:?} runs: {:?}", land(gpu)?),
        }
    }
    Ok(())
}
