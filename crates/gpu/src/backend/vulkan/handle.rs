//! One handle on a device: the trait [`Backend`] over lanes of command buffers.

use super::context::Context;
use super::kernels::Kernels;
use super::lane::{CoreStamps, IN_FLIGHT_MAX, Lane};
use super::loader::Extras;
use super::plan::{Means, WIDE};
use super::stock::{Shortage, Stock};
use super::telemetry::Source;
use super::timer::Timer;
use super::{card, check};
use crate::timebase::within;
use crate::{Backend, Completion, Counters, Device, Error, Monotonic, Part, Queue, Ticket, lower};
use ash::vk;
use everwarm_units::{Hertz, Instant, Span};
use everwarm_workload::Kernel;
use std::sync::Arc;

/// Lanes of one handle. Source: guess; a runaway caller needs a limit, and each lane takes 64
/// command buffers and fences of the driver (256 lanes took NVIDIA's more than a minute).
const QUEUES_MAX: usize = 32;

/// How long an end is looked for before the driver is asked to sleep until it: sleeping and waking
/// take some 50 us, which short kernels would all pay.
const LOOK: Span = Span::us(100);

/// A driver is not asked to sleep longer than this at once; some overflow with more.
const SLEEP_MAX: Span = Span::s(3_600);

/// Cycles are divided by time only if it is at least so long: shaders see a timer of some 1 us on
/// some devices.
const COUNTED_MIN: Span = Span::us(100);

/// What a handle is opened with; tests choose.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Do without what not every driver has, whatever this one can.
    pub plain: bool,
    /// Measure the device, if nobody has in this process.
    pub measured: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { plain: false, measured: true }
    }
}

/// A handle on a device.
pub struct Gpu {
    pub(super) device: Device,
    epoch: Monotonic,
    pub(super) lanes: Vec<Lane>,
    /// The lane that is looked at first, in turn.
    turn: usize,
    tickets: u64,
    pub(super) means: Means,
    pub(super) stock: Stock,
    pub(super) kernels: Kernels,
    pub(super) timer: Timer,
    /// Length of a tick of the timer that shaders see, where they count cycles. Unit: ns.
    pub(super) shader_tick: Option<f64>,
    /// What tells of the device, or why nothing does.
    pub(super) telemetry: Result<Source, String>,
    /// Fences that are waited for, to allocate no list each time.
    fences: Vec<vk::Fence>,
    lost: Option<String>,
    pub(super) context: Arc<Context>,
}

impl Gpu {
    /// Opens the device `id`, and measures it if this process has not yet.
    ///
    /// # Errors
    /// [`Error::NoDevice`] with what is missing.
    pub fn open(id: &str, options: Options) -> Result<Self, Error> {
        let no = |why: String| Error::NoDevice { id: id.to_owned(), why };
        let (vulkan, mut card) = card(id)?;
        if options.plain {
            card.extras = Extras { portability: card.extras.portability, ..Extras::default() };
        }
        if card.limits.max_compute_work_group_invocations < WIDE {
            return Err(no(format!(
                "its groups have {} threads at most, {WIDE} are needed",
                card.limits.max_compute_work_group_invocations
            )));
        }
        let context = Context::open(vulkan, card).map_err(no)?;
        let mut gpu = Self::on(id, &context)
            .map_err(|result| no(format!("{} can't be set up ({result:?})", context.card.name)))?;
        check::complete(&mut gpu, options)?;
        Ok(gpu)
    }

    fn on(id: &str, context: &Arc<Context>) -> Result<Self, vk::Result> {
        let device = Device {
            id: id.to_owned(),
            name: context.card.name.clone(),
            simulated: false,
            virtual_time: false,
            pstates: None,
            in_flight_max: IN_FLIGHT_MAX,
            fma_iterations_per_ms: 1.0,
            fma_iterations_per_ms_group: 1.0,
            facts: Vec::new(),
        };
        Ok(Gpu {
            device,
            epoch: Monotonic::now(),
            lanes: Vec::new(),
            turn: 0,
            tickets: 0,
            means: Means { rounds_max: u32::MAX, ..Means::default() },
            stock: Stock::new(context)?,
            kernels: Kernels::new(context, context.card.extras.core_cycles)?,
            timer: Timer::new(context)?,
            shader_tick: None,
            telemetry: Err("not looked for yet".to_owned()),
            fences: Vec::new(),
            lost: None,
            context: Arc::clone(context),
        })
    }

    /// A stamp of the GPU's on the handle's time base.
    pub(super) fn at(&self, ticks: u64) -> Instant {
        self.timer.at(ticks, self.epoch)
    }

    /// Counts time and tickets from here on.
    pub(super) fn restart(&mut self, epoch: Monotonic) {
        (self.epoch, self.tickets) = (epoch, 0);
        self.telemetry = Source::of(&self.context.card);
        self.device.pstates = self.telemetry.as_ref().ok().and_then(Source::pstates);
        let about = match &self.telemetry {
            Ok(source) => source.about(),
            Err(why) => format!("none: {why}"),
        };
        self.device.facts.push(("telemetry".to_owned(), about));
    }

    /// An error of the driver's. A device that is lost stays so.
    pub(super) fn trouble(&mut self, doing: &str, result: vk::Result) -> Error {
        let device = self.device.id.clone();
        match result {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY | vk::Result::ERROR_OUT_OF_HOST_MEMORY => {
                Error::Memory { device, what: doing.to_owned() }
            }
            _ => {
                let why = format!("its driver failed at {doing} ({result:?})");
                self.lost = Some(why.clone());
                Error::Lost { device, why }
            }
        }
    }

    fn alive(&self) -> Result<(), Error> {
        match &self.lost {
            None => Ok(()),
            Some(why) => Err(Error::Lost { device: self.device.id.clone(), why: why.clone() }),
        }
    }

    fn unsupported(&self, what: String) -> Error {
        Error::Unsupported { device: self.device.id.clone(), what }
    }

    fn short(&mut self, doing: &str, shortage: Shortage) -> Error {
        match shortage {
            Shortage::Never(what) => self.unsupported(what),
            Shortage::Now(what) => Error::Memory { device: self.device.id.clone(), what },
            Shortage::Driver(result) => self.trouble(doing, result),
        }
    }

    /// Writes a kernel into a slot of a lane.
    fn record(&mut self, lane: usize, slot: usize, kernel: &Kernel) -> Result<(), Error> {
        let parts = lower(kernel, &self.device.id)?;
        for part in &parts {
            match *part {
                Part::Stream { .. } if self.means.windows.is_empty() => {
                    let windows = self.stock.windows(&self.kernels);
                    self.means.windows =
                        windows.map_err(|short| self.short("filling memory", short))?;
                }
                Part::Matmul { n } => {
                    let operands = self.stock.operands(&self.kernels, n);
                    operands.map_err(|short| self.short("filling memory", short))?;
                }
                _ => {}
            }
        }
        let steps = self.means.plan(&parts).map_err(|what| self.unsupported(what))?;
        let (lanes, stock) = (&mut self.lanes, &self.stock);
        let real = lanes[lane].real;
        lanes[lane]
            .record(slot, kernel, &steps, &self.kernels, |step| stock.set_of(step, real))
            .map_err(|result| self.trouble("recording a command buffer", result))
    }

    /// The next buffer that has landed, of the lanes in turn.
    fn harvest(&mut self) -> Result<Option<Completion>, Error> {
        self.alive()?;
        for n in 0..self.lanes.len() {
            let lane = (self.turn + n) % self.lanes.len();
            let landed = self.lanes[lane].has_landed();
            if landed.map_err(|result| self.trouble("looking at a fence", result))? {
                self.turn = lane + 1;
                let observed = self.now();
                return self.land(lane, observed).map(Some);
            }
        }
        Ok(None)
    }

    fn land(&mut self, lane: usize, observed: Instant) -> Result<Completion, Error> {
        let landed = self.lanes[lane].land();
        let (slot, stamps) = landed.map_err(|result| self.trouble("reading timestamps", result))?;
        let clock = self.clock(lane, slot);
        // Until here what landed is in flight, so that a driver without memory loses nothing of it.
        let reset = self.lanes[lane].reset(slot);
        reset.map_err(|result| self.trouble("resetting a fence", result))?;
        let alone = self.lanes.iter().all(|lane| lane.flying.is_empty());
        if let Err(result) = self.timer.keep(alone) {
            // Where memory is short the old readings serve on; a device that is gone is told next.
            self.trouble("reading its timer", result);
        }
        let committed = self.lanes[lane].slots[slot].committed;
        // The two clocks are known to each other within some error; what must come later does.
        let earliest = committed.max(self.lanes[lane].ended).min(observed);
        let gpu = (self.at(stamps.start), self.at(stamps.end));
        let (gpu_start, gpu_end) = within(gpu, earliest, observed);
        let completion = Completion {
            ticket: self.lanes[lane].slots[slot].ticket,
            queue: Queue(lane as u32),
            committed,
            gpu_start,
            gpu_end,
            observed,
            pstate: None,
            clock,
            late: None,
        };
        self.lanes[lane].ended = gpu_end;
        Ok(completion)
    }

    /// The mean clock of the core that ran the first thread of a chain.
    fn clock(&self, lane: usize, slot: usize) -> Option<Hertz> {
        let tick = self.shader_tick?;
        let lane = &self.lanes[lane];
        lane.slots[slot].counts.then(|| lane.core_stamps(slot))?.clock(tick)
    }

    /// Sleeps in the driver until one of the oldest buffers has ended, or `deadline`.
    pub(super) fn sleep_for_an_end(&mut self, deadline: Instant) -> Result<(), Error> {
        self.fences.clear();
        for lane in &self.lanes {
            self.fences.extend(lane.flying.front().map(|slot| lane.slots[*slot].fence));
        }
        let rest = deadline.since(self.now()).min(SLEEP_MAX).as_nanos();
        // SAFETY: the fences belong to buffers in flight; only this thread resets them.
        let waited = unsafe { self.context.device.wait_for_fences(&self.fences, false, rest) };
        match waited {
            Ok(()) | Err(vk::Result::TIMEOUT) => Ok(()),
            Err(result) => Err(self.trouble("waiting for a fence", result)),
        }
    }
}

impl CoreStamps {
    /// Cycles over time; `None` if that was too short to tell. `tick` is in ns.
    pub fn clock(&self, tick: f64) -> Option<Hertz> {
        let cycles = self.cycles[1].checked_sub(self.cycles[0])?;
        let ns = self.time[1].checked_sub(self.time[0])? as f64 * tick;
        let told = cycles > 0 && ns >= COUNTED_MIN.as_nanos() as f64;
        told.then(|| Hertz::hz(cycles as f64 / ns * 1e9))
    }
}

impl Backend for Gpu {
    crate::backend::by_the_wall_clock!();

    fn queue(&mut self) -> Result<Queue, Error> {
        self.alive()?;
        let number = self.lanes.len();
        if number == QUEUES_MAX {
            let what = format!("{QUEUES_MAX} queues are already open");
            return Err(Error::Limit { what, limit: QUEUES_MAX });
        }
        let real = number % self.context.queues.len();
        let lane = Lane::new(&self.context, &self.kernels, real, &self.stock.results[real]);
        let lane = lane.map_err(|result| self.trouble("opening a queue", result))?;
        self.lanes.push(lane);
        Ok(Queue(number as u32))
    }

    fn commit(&mut self, queue: Queue, kernel: &Kernel) -> Result<Ticket, Error> {
        self.alive()?;
        let lane = queue.0 as usize;
        if lane >= self.lanes.len() {
            return Err(Error::no_queue(queue, self.lanes.len()));
        }
        let Some((slot, recorded)) = self.lanes[lane].take(kernel) else {
            let what = format!("{IN_FLIGHT_MAX} command buffers are already in flight");
            return Err(Error::Limit { what, limit: IN_FLIGHT_MAX });
        };
        if !recorded && let Err(error) = self.record(lane, slot, kernel) {
            self.lanes[lane].give_back(slot);
            return Err(error);
        }
        let ticket = Ticket(self.tickets);
        let committed = self.now();
        let sent = self.lanes[lane].submit(slot);
        sent.map_err(|result| self.trouble("submitting a command buffer", result))?;
        self.tickets += 1;
        let slot = &mut self.lanes[lane].slots[slot];
        (slot.ticket, slot.committed) = (ticket, committed);
        Ok(ticket)
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        self.harvest()
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Completion>, Error> {
        // A driver on the CPU needs the processor that looking would take from it.
        let look = if self.context.card.software { Span::ZERO } else { LOOK };
        let look_until = self.now() + look;
        loop {
            if let Some(completion) = self.harvest()? {
                return Ok(Some(completion));
            }
            let now = self.now();
            if now >= deadline {
                return Ok(None);
            }
            if self.lanes.iter().all(|lane| lane.flying.is_empty()) {
                // Nothing will ever come.
                if deadline != Instant::FAR_FUTURE {
                    self.sleep_until(deadline);
                }
                return Ok(None);
            }
            match now < look_until {
                true => std::hint::spin_loop(),
                false => self.sleep_for_an_end(deadline)?,
            }
        }
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        self.alive()?;
        let at = self.now();
        match &mut self.telemetry {
            Ok(source) => Ok(source.counters(at)),
            Err(_) => Ok(Counters { at, ..Counters::default() }),
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // What is in flight uses what goes next.
        self.context.wait_idle();
    }
}
