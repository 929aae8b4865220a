//! One process's handle on one device: the trait `Backend` over lanes, timer and gauge.
//!
//! A commit is one launch of the driver a part, and returns. A completion is seen in host memory,
//! where the last kernel has written its stamps; the driver is asked only now and then, to learn of a
//! device that has gone. Stamps are put on the host's clock by readings of the device's timer, taken
//! when the handle is opened and again, once the last reading is a second old, when a completion has
//! left nothing in flight: then nobody waits for the device, and the stamps of that very buffer are
//! read by the fresh reading.
//!
//! A stamp is never put before the commit or after the moment at which the host saw the end, nor
//! before the end of the buffer before it: an error of the time base shows there first.

use super::driver::Refusal;
use super::lane::{self, IN_FLIGHT_MAX, Lane, Ready};
use super::nvml::Gauge;
use super::shared::Shared;
use super::stamps::Stamps;
use super::timer::Timer;
use crate::{
    Backend, Completion, Counters, Device, Error, FmaRates, Monotonic, Part, Queue, Ticket,
    Timebase, lower,
};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;
use std::sync::Arc;

/// Queues of one handle. Source: guess; a GPU runs 128 streams at once, a runaway caller needs a limit.
const QUEUES_MAX: usize = 128;

/// A reading of the device's timer serves for so long. Source: crystals differ by 100 ppm at most,
/// and less than 1 ppm once the speed is known.
const READING_AGE: Span = Span::s(1);

/// A reading that was not good enough is tried again after so long.
const READING_RETRY: Span = Span::ms(100);

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
    timebase: Timebase,
    /// The quickest round trip to the timer so far.
    narrowest: Span,
    /// The timer is not read before.
    read_next: Monotonic,
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
        let resolution = timer.resolution().map_err(text)?;
        let resolution = resolution.ok_or("its timer (globaltimer) stands still")?;
        let burst = timer.good_burst(FIRST_ANSWER).map_err(text)?;
        let timebase = Timebase::new(64, 1.0, &burst)
            .ok_or_else(|| format!("its timer did not answer within {FIRST_ANSWER}"))?;
        let widths = burst.iter().map(|reading| reading.after.since(reading.before));
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
            timebase,
            narrowest: widths.min().unwrap_or(Span::MAX),
            read_next: epoch,
            resolution,
            lanes: Vec::new(),
            gauge,
            tickets: 0,
            asked: epoch,
            lost: None,
        })
    }

    /// Takes in how fast the device is, ends the queues that were used to find out, and reads the
    /// timer once more, so that its speed is known.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn calibrated(&mut self, rates: FmaRates) -> Result<(), Error> {
        self.device.fma_iterations_per_ms = rates.full;
        self.device.fma_iterations_per_ms_group = rates.group;
        self.lanes.clear();
        self.current()?;
        self.read_timer(FIRST_ANSWER)?;
        let facts = [
            ("GPU timer step", format!("{} ns", self.resolution)),
            ("GPU stamps on the host's clock", format!("within {}", self.timebase.error())),
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
        self.read_next = Monotonic(Monotonic::now().0 + READING_RETRY.as_nanos());
        let burst = self.timer.burst(patience).map_err(|refusal| self.lost(refusal))?;
        let widths = burst.iter().map(|reading| reading.after.since(reading.before));
        let Some(width) = widths.min() else { return Ok(()) };
        // On a busy machine all round trips may be slow: what drifted meanwhile is less wrong.
        if width <= self.narrowest * 3 + Span::us(1) {
            self.timebase.update(&burst);
            self.narrowest = self.narrowest.min(width);
        }
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
                    let limit = self.shared.about.memory as usize;
                    let what = format!("no memory is left for {} ({refusal})", shown(kernel));
                    return Err(Error::Limit { what, limit });
                }
                Err(refusal) => return Err(self.lost(refusal)),
            }
        }
        Ok(ready)
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
        if idle && observed >= self.read_next && self.timebase.age(observed) > READING_AGE {
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
        let base = |at: Monotonic| at.on_base(self.epoch);
        let (committed, observed) = (base(flying.committed), base(observed));
        let last_end = &mut self.lanes[n].last_end;
        let earliest = committed.max(*last_end).min(observed);
        let gpu = (base(self.timebase.at(stamps.start)), base(self.timebase.at(stamps.end)));
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
    fn device(&self) -> &Device {
        &self.device
    }

    fn now(&self) -> Instant {
        Monotonic::now().on_base(self.epoch)
    }

    fn epoch(&self) -> Option<Monotonic> {
        Some(self.epoch)
    }

    fn sleep_until(&mut self, deadline: Instant) {
        crate::punctual::sleep_until(self.epoch.at(deadline));
    }

    fn queue(&mut self) -> Result<Queue, Error> {
        if self.lanes.len() == QUEUES_MAX {
            let what = format!("{QUEUES_MAX} queues are already open");
            return Err(Error::Limit { what, limit: QUEUES_MAX });
        }
        self.current()?;
        match Lane::open(&self.shared) {
            Ok(lane) => self.lanes.push(LaneState { lane, last_end: Instant::ZERO }),
            Err(refusal) if refusal.is_out_of_memory() => {
                let what = format!("no memory is left for another queue ({refusal})");
                return Err(Error::Limit { what, limit: self.lanes.len() });
            }
            Err(refusal) => return Err(self.lost(refusal)),
        }
        Ok(Queue(self.lanes.len() as u32 - 1))
    }

    fn commit(&mut self, queue: Queue, kernel: &Kernel) -> Result<Ticket, Error> {
        let at = Monotonic::now();
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
        let launched = self.lanes[queue.0 as usize].lane.commit(ticket, at, &parts);
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

/// Moves a stretch of time so that it lies between two instants, and keeps its length if it can: what
/// sticks out is an error of the time base, and that is the same at both ends.
fn within(
    (start, end): (Instant, Instant),
    earliest: Instant,
    latest: Instant,
) -> (Instant, Instant) {
    let length = end.since(start);
    let start = match end > latest {
        true => latest - length,
        false => start,
    };
    let start = start.clamp(earliest, latest);
    (start, (start + length).min(latest))
}

/// A kernel for a message.
fn shown(kernel: &Kernel) -> String {
    match kernel {
        Kernel::Matmul { n } => format!("a product of two matrices of {n} by {n}"),
        Kernel::Stream { bytes } => format!("a streaming read of {bytes} B"),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_moved_before_it_is_cut() {
        let check = |stretch: (u64, u64), expected: (u64, u64)| {
            let at = |(a, b)| (Instant::from_nanos(a), Instant::from_nanos(b));
            let got = within(at(stretch), Instant::from_nanos(100), Instant::from_nanos(200));
            assert_eq!(got, at(expected), "{stretch:?}");
        };
        check((120, 180), (120, 180));
        check((90, 150), (100, 160));
        check((150, 240), (110, 200));
        check((50, 350), (100, 200));
        check((0, 50), (100, 150));
        check((300, 310), (190, 200));
    }
}
