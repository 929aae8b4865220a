//! One process's handle on one device: the trait `Backend` over lanes, timer and gauge.
//!
//! A commit is one launch of the driver a part, and returns. A completion is seen in host memory,
//! where the last kernel has written its stamps; the driver is asked only now and then, to learn of a
//! device that has gone. Stamps are put on the host's clock by readings of the device's timer, taken
//! when the handle is opened and again, once the last reading is a second old, when a completion has
//! left nothing in flight: then nobody waits for the device, and the stamps of that very buffer are
//! read by the fresh reading. Where something is always in flight it is read beside that work, less
//! often.
//!
//! A stamp is never put before the commit or after the moment at which the host saw the end, nor
//! before the end of the buffer before it: an error of the time base shows there first.

use super::driver::Refusal;
use super::lane::{self, IN_FLIGHT_MAX, Lane, Ready};
use super::nvml::Gauge;
use super::shared::Shared;
use super::stamps::Stamps;
use super::timer::Timer;
use crate::timebase::{Keeper, within};
use crate::{
    Backend, Completion, Counters, Device, Error, FmaRates, Monotonic, Part, Queue, Ticket,
    Timebase, calibrate, lower,
};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;
use std::sync::Arc;

/// Queues of one handle. Source: guess; a GPU runs 128 streams at once, a runaway caller needs a limit.
const QUEUES_MAX: usize = 128;

/// How long the timer may take to answer: when the handle is opened, other work may fill the device.
const FIRST_ANSWER: Span = Span::s(5);
/// And later, when this handle's own work has just ended.
const LATER_ANSWER: Span = Span::ms(2);

/// How often the driver is asked whether the device is still there.
const ASK_DRIVER: Span = Span::ms(1);

/// A wait looks without pause for so long. Source: guess; a loop that waits for each of its kernels
/// submits hundreds of short ones for a token, and the first sleep costs as much as one of them.
const SPIN: Span = Span::us(500);

/// Then it sleeps between looks, for this share of the time waited so far: whatever the length of
/// the work, its end is seen late by a few per cent at most, and a core is not kept busy for it.
const SLEEP_SHARE: u64 = 64;

/// The shortest and the longest sleep between two looks.
const SLEEPS: (Span, Span) = (Span::us(20), Span::ms(1));

/// A handle.
pub struct Cuda {
    device: Device,
    shared: Arc<Shared>,
    epoch: Monotonic,
    timer: Timer,
    keeper: Keeper,
    /// The timer's step. Unit: ns.
    resolution: u64,
    lanes: Vec<LaneState>,
    gauge: Option<Gauge>,
    tickets: u64,
    asked: Monotonic,
    lost: Option<String>,
}

struct LaneState {
    lane: Lane,
    /// When its last buffer ended.
    last_end: Instant,
}

/// What a handle is made from.
pub struct Parts {
    pub id: String,
    pub shared: Arc<Shared>,
    pub gauge: Option<Gauge>,
    pub facts: Vec<(String, String)>,
}

impl Cuda {
    /// A handle whose rates are not known yet; the context is current.
    ///
    /// # Errors
    /// Text that says what failed.
    pub fn open(parts: Parts) -> Result<Cuda, String> {
        let Parts { id, shared, gauge, facts } = parts;
        let epoch = Monotonic::now();
        let text = |refusal: Refusal| refusal.to_string();
        let timer = Timer::open(&shared).map_err(text)?;
        let resolution = timer.resolution(FIRST_ANSWER).map_err(text)??;
        let burst = timer.good_burst(FIRST_ANSWER).map_err(text)?;
        let timebase = Timebase::new(64, 1.0, &burst)
            .ok_or_else(|| format!("its timer did not answer within {FIRST_ANSWER}"))?;
        let device = Device {
            id,
            name: shared.about.name.clone(),
            simulated: false,
            virtual_time: false,
            pstates: None,
            in_flight_max: IN_FLIGHT_MAX,
            fma_iterations_per_ms: f64::NAN,
            fma_iterations_per_ms_group: f64::NAN,
            facts,
        };
        Ok(Cuda {
            device,
            shared,
            epoch,
            timer,
            keeper: Keeper::new(timebase),
            resolution,
            lanes: Vec::new(),
            gauge,
            tickets: 0,
            asked: epoch,
            lost: None,
        })
    }

    /// Measures how fast the device and its timer are.
    ///
    /// # Errors
    /// Those of [`calibrate`].
    pub fn calibrate(&mut self) -> Result<(FmaRates, Timebase), Error> {
        let queue = self.queue()?;
        let rates = calibrate(self, queue)?;
        self.lanes.clear();
        self.current()?;
        self.read_timer(FIRST_ANSWER)?;
        Ok((rates, self.keeper.base().clone()))
    }

    /// Takes in how fast the device and its timer are, as this handle or an earlier one has measured.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn calibrated(&mut self, rates: FmaRates, timebase: Timebase) -> Result<(), Error> {
        self.device.fma_iterations_per_ms = rates.full;
        self.device.fma_iterations_per_ms_group = rates.group;
        self.keeper.continues(timebase);
        let facts = [
            ("GPU timer step", format!("{} ns", self.resolution)),
            ("GPU stamps on the host's clock", {
                let (error, ppm) = (self.keeper.base().error(), 1e6 * self.keeper.base().drift());
                format!("within {error}, {ppm:+.1} ppm")
            }),
        ];
        let facts = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
        self.device.facts.extend(facts);
        // What was done to find out is not the caller's.
        (self.epoch, self.tickets) = (Monotonic::now(), 0);
        if let Some(gauge) = &mut self.gauge {
            gauge.restart();
        }
        Ok(())
    }

    fn lost(&mut self, why: impl ToString) -> Error {
        let why = self.lost.get_or_insert_with(|| why.to_string()).clone();
        Error::Lost { device: self.device.id.clone(), why }
    }

    /// Makes the context current on this thread; a handle may move from thread to thread.
    fn current(&mut self) -> Result<(), Error> {
        match self.lost.clone() {
            Some(why) => Err(self.lost(why)),
            None => self.shared.make_current().map_err(|refusal| self.lost(refusal)),
        }
    }

    /// Readings of the timer; without a good answer the old ones serve on.
    fn read_timer(&mut self, patience: Span) -> Result<(), Error> {
        let burst = self.timer.burst(patience).map_err(|refusal| self.lost(refusal))?;
        self.keeper.take(&burst, Monotonic::now());
        Ok(())
    }

    /// The memory for each part, or why there is none.
    fn ready(&mut self, queue: Queue, kernel: &Kernel) -> Result<Vec<Ready>, Error> {
        let parts = lower(kernel, &self.device.id)?;
        if parts.is_empty() {
            return Ok(vec![Ready::Empty]);
        }
        let mut ready = Vec::with_capacity(parts.len());
        for part in &parts {
            self.fits(kernel, part)?;
            match self.lanes[queue.0 as usize].lane.ready(part) {
                Ok(part) => ready.push(part),
                Err(refusal) if refusal.is_out_of_memory() => {
                    return Err(self.memory(format!("{} ({refusal})", shown(kernel))));
                }
                Err(refusal) => return Err(self.lost(refusal)),
            }
        }
        Ok(ready)
    }

    fn memory(&self, what: String) -> Error {
        Error::Memory { device: self.device.id.clone(), what }
    }

    /// Refuses what could never have the memory that it names.
    fn fits(&self, kernel: &Kernel, part: &Part) -> Result<(), Error> {
        let wants = match (kernel, part) {
            (Kernel::Stream { bytes }, _) => *bytes,
            (_, Part::Matmul { n }) => lane::matmul_bytes(*n),
            // Traffic that is known by its cost alone may go over the same memory many times.
            _ => 0,
        };
        if wants > self.shared.about.memory {
            let gb = |bytes: u64| format!("{:.1} GB", bytes as f64 / 1e9);
            let (wants, has) = (gb(wants), gb(self.shared.about.memory));
            let what = format!("{}: it wants {wants} of memory, and has {has}", shown(kernel));
            return Err(Error::Unsupported { device: self.device.id.clone(), what });
        }
        Ok(())
    }

    /// The next buffer whose stamps are all there.
    fn landed(&mut self) -> Result<Option<Completion>, Error> {
        let landed = self.lanes.iter_mut().enumerate().find_map(|(n, state)| {
            let (flying, stamps) = state.lane.land()?;
            Some((n, flying, stamps))
        });
        let Some((n, flying, stamps)) = landed else { return Ok(None) };
        let observed = Monotonic::now();
        let idle = self.lanes.iter().all(|state| state.lane.in_flight() == 0);
        if self.keeper.is_due(observed, idle) {
            self.current()?;
            self.read_timer(LATER_ANSWER)?;
        }
        Ok(Some(self.completion(n, flying, stamps, observed)))
    }

    fn completion(
        &mut self,
        n: usize,
        flying: lane::Flying,
        stamps: Stamps,
        observed: Monotonic,
    ) -> Completion {
        let (epoch, timebase) = (self.epoch, self.keeper.base());
        let base = |at: Monotonic| at.on_base(epoch);
        let (committed, observed) = (base(flying.committed), base(observed));
        let last_end = &mut self.lanes[n].last_end;
        let earliest = committed.max(*last_end).min(observed);
        let gpu = (base(timebase.at(stamps.start)), base(timebase.at(stamps.end)));
        let (gpu_start, gpu_end) = within(gpu, earliest, observed);
        *last_end = gpu_end;
        Completion {
            ticket: flying.ticket,
            queue: Queue(n as u32),
            committed,
            gpu_start,
            gpu_end,
            observed,
            pstate: None,
            clock: stamps.clock(self.resolution),
            late: None,
        }
    }

    /// Asks the driver, now and then, whether what is in flight can still end.
    fn still_there(&mut self) -> Result<(), Error> {
        if let Some(why) = self.lost.clone() {
            return Err(self.lost(why));
        }
        let now = Monotonic::now();
        let waiting = self.lanes.iter().position(|state| state.lane.oldest().is_some());
        let Some(n) = waiting.filter(|_| now.since(self.asked) >= ASK_DRIVER) else {
            return Ok(());
        };
        self.asked = now;
        self.current()?;
        match self.lanes[n].lane.is_idle() {
            Ok(false) => Ok(()),
            Ok(true) if self.lanes[n].lane.has_landed() => Ok(()),
            Ok(true) => Err(self.lost("its work has ended without saying when")),
            Err(refusal) => Err(self.lost(refusal)),
        }
    }
}

impl Backend for Cuda {
    crate::backend::by_the_wall_clock!();

    fn queue(&mut self) -> Result<Queue, Error> {
        if self.lanes.len() == QUEUES_MAX {
            let what = format!("{QUEUES_MAX} queues are already open");
            return Err(Error::Limit { what, limit: QUEUES_MAX });
        }
        self.current()?;
        match Lane::open(&self.shared) {
            Ok(lane) => self.lanes.push(LaneState { lane, last_end: Instant::ZERO }),
            Err(refusal) if refusal.is_out_of_memory() => {
                return Err(self.memory(format!("another queue ({refusal})")));
            }
            Err(refusal) => return Err(self.lost(refusal)),
        }
        Ok(Queue(self.lanes.len() as u32 - 1))
    }

    fn commit(&mut self, queue: Queue, kernel: &Kernel) -> Result<Ticket, Error> {
        let Some(state) = self.lanes.get(queue.0 as usize) else {
            return Err(Error::no_queue(queue, self.lanes.len()));
        };
        if state.lane.in_flight() == IN_FLIGHT_MAX {
            let what = format!("{IN_FLIGHT_MAX} command buffers are already in flight");
            return Err(Error::Limit { what, limit: IN_FLIGHT_MAX });
        }
        self.current()?;
        let parts = self.ready(queue, kernel)?;
        let ticket = Ticket(self.tickets);
        let launched = self.lanes[queue.0 as usize].lane.commit(ticket, &parts);
        launched.map_err(|refusal| self.lost(refusal))?;
        self.tickets += 1;
        Ok(ticket)
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        match self.landed()? {
            Some(completion) => Ok(Some(completion)),
            None => self.still_there().map(|()| None),
        }
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Completion>, Error> {
        let begin = self.now();
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(Some(completion));
            }
            let now = self.now();
            if now >= deadline {
                return Ok(None);
            }
            if self.lanes.iter().all(|state| state.lane.in_flight() == 0) {
                // Nothing will ever come: don't wait for the end of time.
                if deadline != Instant::FAR_FUTURE {
                    self.sleep_until(deadline);
                }
                return Ok(None);
            }
            let waited = now.since(begin);
            if waited < SPIN {
                std::hint::spin_loop();
            } else {
                let pause = (waited / SLEEP_SHARE).clamp(SLEEPS.0, SLEEPS.1);
                crate::punctual::nap(pause.min(deadline.since(now)));
            }
        }
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        if let Some(why) = self.lost.clone() {
            return Err(self.lost(why));
        }
        let at = self.now();
        let read = self.gauge.as_ref().map(|gauge| gauge.read(at));
        Ok(read.unwrap_or(Counters { at, ..Counters::default() }))
    }
}

/// A kernel for a message.
fn shown(kernel: &Kernel) -> String {
    match kernel {
        Kernel::Matmul { n } => format!("a product of two matrices of {n} by {n}"),
        Kernel::Stream { bytes } => format!("a streaming read of {bytes} B"),
        other => format!("{other:?}"),
    }
}
