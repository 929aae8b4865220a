//! What is found out about a device before its handle is given out: whether its driver really does
//! what it is told, how fast it is, what its cores' counters count.
//!
//! It takes about a second once in a process; later handles of the device go on from what was found.

use super::handle::{Gpu, Options};
use super::kernels::{CHAIN_CONSTANT, results};
use super::lane::{CoreStamps, Stamps};
use super::plan::{NARROW, ROUND};
use crate::calibrate::Once;
use crate::{Backend, Error, FmaRates, Monotonic, Queue, Timebase, calibrate};
use everwarm_units::Span;
use everwarm_workload::Kernel;

/// Rounds of the loop that the first chain makes: more than the 65,535 after which some drivers end
/// a loop without a word.
const ROUNDS: u32 = 70_000;

/// Rounds of one dispatch where that is so.
const ROUNDS_SHORT: u32 = 32_768;

/// How far the stamps of a shader may lie outside of those around its buffer. Source: shaders see a
/// timer with steps of about 1 us on some devices.
const SLACK: Span = Span::us(3);

/// A check that does not end within this will not end. Source: a core at 100 MHz takes 0.4 s.
const PATIENCE: Span = Span::s(20);

/// What was found out about a device in this process.
#[derive(Clone)]
struct Known {
    rounds_max: u32,
    arithmetic: &'static str,
    shader_tick: Option<f64>,
}

/// What tells devices apart.
type Card = (String, [u8; 16]);

static KNOWN: Once<Card, Known> = Once::new();

/// How fast devices and their timers are.
static RATES: Once<Card, (FmaRates, Timebase)> = Once::new();

/// Checks and measures a device that was just opened, and starts its time anew.
///
/// # Errors
/// [`Error::NoDevice`] if its driver does not do what it is told; [`Error::Lost`].
pub fn complete(gpu: &mut Gpu, options: Options) -> Result<(), Error> {
    let card = (gpu.context.card.name.clone(), gpu.context.card.uuid);
    let queue = gpu.queue()?;
    let found = KNOWN.of(card.clone(), || {
        let (rounds_max, arithmetic) = chain(gpu, queue)?;
        Ok(Known { rounds_max, arithmetic, shader_tick: shader_tick(gpu, queue)? })
    })?;
    gpu.means.rounds_max = found.rounds_max;
    gpu.shader_tick = found.shader_tick;
    if options.measured {
        let (rates, base) = RATES.of(card, || rates(gpu, queue))?;
        gpu.device.fma_iterations_per_ms = rates.full;
        gpu.device.fma_iterations_per_ms_group = rates.group;
        gpu.timer.continues(base);
    }
    gpu.device.facts = facts(gpu, &found);
    gpu.begin();
    Ok(())
}

/// How fast the device is, and its timer meanwhile.
fn rates(gpu: &mut Gpu, queue: Queue) -> Result<(FmaRates, Timebase), Error> {
    let rates = calibrate(gpu, queue)?;
    gpu.timer.read().map_err(|result| gpu.trouble("reading its timer", result))?;
    Ok((rates, gpu.timer.base().clone()))
}

/// Runs a long chain. Shape: rounds that one dispatch can make, and how it multiplies and adds.
fn chain(gpu: &mut Gpu, queue: Queue) -> Result<(u32, &'static str), Error> {
    let (mut iterations, mut done) = (ROUNDS * ROUND, 0);
    for rounds_max in [u32::MAX, ROUNDS_SHORT] {
        // Another kernel each time: what stands in a buffer was planned for the old limit.
        iterations += 7;
        gpu.means.rounds_max = rounds_max;
        run(gpu, queue, &Kernel::Fma { iterations, threads: NARROW })?;
        let words = gpu.stock.words(0, 0, results::X + 1);
        let words = words.map_err(|result| gpu.trouble("reading results", result))?;
        done = words[results::DONE];
        if done == iterations {
            return Ok((rounds_max, arithmetic(iterations, words[results::X])));
        }
    }
    Err(Error::NoDevice {
        id: gpu.device.id.clone(),
        why: format!(
            "its driver runs kernels wrong: a chain of {iterations} iterations ended after {done}"
        ),
    })
}

/// How the device multiplies and adds, by where the first thread's chain came to.
fn arithmetic(iterations: u32, x: u32) -> &'static str {
    match x {
        _ if x == chain_end(0, iterations, f32::mul_add) => "fused, the same bits as on the host",
        _ if x == chain_end(0, iterations, separate) => {
            "a product and a sum, the same bits as on the host"
        }
        _ => "rounded in its own way",
    }
}

/// A product and a sum, each rounded.
pub fn separate(x: f32, y: f32, c: f32) -> f32 {
    x * y + c
}

/// Bits of where the chain of the thread of that number comes to, as in `chain.comp`.
pub fn chain_end(thread: u32, iterations: u32, fma: fn(f32, f32, f32) -> f32) -> u32 {
    let mut x = (thread & 255) as f32 / 256.0 - 0.5;
    for _ in 0..iterations {
        x = fma(x, x, CHAIN_CONSTANT);
        x = fma(x, x, CHAIN_CONSTANT);
    }
    x.to_bits()
}

/// The length of a tick of the timer that shaders see, if it is the one of the timestamps; the
/// standard does not say. Unit: ns.
fn shader_tick(gpu: &mut Gpu, queue: Queue) -> Result<Option<f64>, Error> {
    if !gpu.context.card.extras.core_cycles {
        return Ok(None);
    }
    let tick = f64::from(gpu.context.card.limits.timestamp_period);
    let kernel = Kernel::Fma { iterations: ROUNDS * ROUND, threads: NARROW };
    let (around, within) = run(gpu, queue, &kernel)?;
    Ok(is_one_timer(around, within, tick).then_some(tick))
}

/// Whether what a shader read lies between the timestamps around it, and fills most of the time.
fn is_one_timer(around: Stamps, within: CoreStamps, tick: f64) -> bool {
    let slack = (SLACK.as_nanos() as f64 / tick).ceil() as u64;
    let [begin, end] = within.time;
    let most = end.saturating_sub(begin) >= around.end.saturating_sub(around.start) / 2;
    begin.saturating_add(slack) >= around.start && end <= around.end.saturating_add(slack) && most
}

/// Runs one kernel; what the GPU wrote around and within it.
fn run(gpu: &mut Gpu, queue: Queue, kernel: &Kernel) -> Result<(Stamps, CoreStamps), Error> {
    gpu.commit(queue, kernel)?;
    let deadline = gpu.now() + PATIENCE;
    while !gpu.lanes[0].has_landed().map_err(|result| gpu.trouble("a first chain", result))? {
        if gpu.now() >= deadline {
            let why = format!("a first chain did not end within {PATIENCE}");
            return Err(Error::Lost { device: gpu.device.id.clone(), why });
        }
        gpu.sleep_for_an_end(deadline)?;
    }
    let lane = &mut gpu.lanes[0];
    let landed = lane.land().and_then(|(slot, around)| {
        let within = lane.core_stamps(slot);
        lane.reset(slot).map(|()| (around, within))
    });
    landed.map_err(|result| gpu.trouble("a first chain", result))
}

/// What a reader of a record wants to know of the device.
fn facts(gpu: &Gpu, known: &Known) -> Vec<(String, String)> {
    let (card, family) = (&gpu.context.card, gpu.context.family);
    let mut facts = Vec::new();
    let mut fact = |name: &str, value: String| facts.push((name.to_owned(), value));
    fact("driver", card.driver.clone());
    if card.software {
        fact("software", "its driver computes on the CPU, which it shares".to_owned());
    }
    if let Some([domain, bus, device, function]) = card.place.pci {
        fact("pci", format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"));
    }
    fact("queues", format!("{} of family {}", family.queues, family.index));
    let tick = card.limits.timestamp_period;
    fact("timer", format!("{tick} ns a tick, {} bits, {}", family.bits, gpu.timer.about()));
    fact("fma", known.arithmetic.to_owned());
    let dispatches = match known.rounds_max {
        u32::MAX => "one dispatch a chain".to_owned(),
        max => {
            format!("a dispatch for every {} iterations: its driver ends long loops", max * ROUND)
        }
    };
    fact("chain", dispatches);
    let clock = match known.shader_tick {
        Some(_) => "cycles of the core over the GPU's timer, both read in the kernel",
        None => "not told by kernels",
    };
    fact("clock", clock.to_owned());
    facts
}

impl Gpu {
    /// Starts time and tickets anew, without the queue that was measured on.
    fn begin(&mut self) {
        self.context.wait_idle();
        self.lanes.clear();
        self.restart(Monotonic::now());
    }
}
