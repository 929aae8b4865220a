//! The driver for devices in virtual time: one loop steps all actors on one handle.

use super::actor::{Actor, Want};
use super::flight::Flight;
use super::{Error, seed_of};
use crate::data::Unit;
use crate::scenario::{Cell, Scenario};
use everwarm_gpu::{Backend, Completion};
use everwarm_units::{Instant, Span};
use std::collections::BTreeMap;

/// Turns of the loop without time passing, after which a scenario counts as stuck.
const TURNS_MAX: u32 = 1_000_000;

/// Events of a whole run, at most. Each leaves a record, and what is recorded has to fit in memory.
const EVENTS_MAX: u64 = 10_000_000;

/// One round of one cell, at most; a kernel or a loop that lasts longer is a typing error.
const ROUND_MAX: Span = Span::s(24 * 3600);

/// How far the device is let run at once, so that one endless kernel is noticed.
const STRIDE: Span = Span::s(600);

/// A device in virtual time and the queues that actors have on it.
pub struct VirtualDevice {
    backend: Box<dyn Backend>,
    flights: BTreeMap<String, Flight>,
    events: u64,
    /// When the round that runs must be over.
    deadline: Instant,
}

/// One actor while its cell runs.
struct Seat {
    actor: Actor,
    flight: Flight,
    /// What it waits for.
    want: Want,
    /// A commit that found no room.
    held_back: bool,
}

impl VirtualDevice {
    /// Takes the handle.
    pub fn new(backend: Box<dyn Backend>) -> Self {
        VirtualDevice {
            backend,
            flights: BTreeMap::new(),
            events: 0,
            deadline: Instant::FAR_FUTURE,
        }
    }

    /// Runs one round of one cell.
    pub fn run(&mut self, plan: &Scenario, cell: usize, round: u32) -> Result<Unit, Error> {
        let mut seats = self.seats(&plan.cells[cell], seed_of(plan.seed, cell, round))?;
        let begin = self.backend.now();
        self.deadline = begin + ROUND_MAX;
        let mut unit = Unit { cell, round, begin, end: begin, ..Unit::default() };
        let mut telemetry = plan.telemetry.map(|period| Sampler { period, next: begin });
        self.drive(&mut seats, &mut unit, &mut telemetry)?;
        unit.end = self.backend.now();
        for seat in &mut seats {
            seat.actor.stop();
            seat.actor.poll(unit.end);
        }
        self.drain(&mut seats)?;
        self.backend.pin(None)?;
        for seat in seats {
            self.flights.insert(seat.actor.name().to_owned(), seat.flight);
            unit.steps.extend(seat.actor.into_steps());
        }
        Ok(unit)
    }

    fn seats(&mut self, cell: &Cell, seed: u64) -> Result<Vec<Seat>, Error> {
        let mut seats = Vec::new();
        for (n, plan) in cell.actors.iter().enumerate() {
            let flight = match self.flights.remove(&plan.name) {
                Some(flight) => flight,
                None => Flight::open(self.backend.as_mut())?,
            };
            let device = self.backend.device().clone();
            let actor = Actor::new(plan.clone(), device, seed.wrapping_add(n as u64));
            seats.push(Seat { actor, flight, want: Want::Completion, held_back: false });
        }
        Ok(seats)
    }

    fn drive(
        &mut self,
        seats: &mut [Seat],
        unit: &mut Unit,
        telemetry: &mut Option<Sampler>,
    ) -> Result<(), Error> {
        let mut board = Board::default();
        let (mut turns, mut last) = (0, self.backend.now());
        loop {
            let before = boundaries(seats);
            while self.poll_all(seats, &mut board)? {
                turns += 1;
                if turns > TURNS_MAX {
                    return Err(Error::Stuck("steps repeat without time passing".into()));
                }
            }
            let now = self.backend.now();
            if now > last {
                (turns, last) = (0, now);
            }
            let boundary = before != boundaries(seats);
            if let Some(sampler) = telemetry {
                sampler.sample(self.backend.as_mut(), unit, boundary)?;
            }
            let mut foreground = seats.iter().filter(|seat| !seat.actor.background());
            if foreground.all(|seat| seat.want == Want::Done) {
                return Ok(());
            }
            self.pass_time(seats, telemetry.as_ref().map(|t| t.next))?;
        }
    }

    /// Polls every actor once; true if one got on, so that others may have been woken.
    fn poll_all(&mut self, seats: &mut [Seat], board: &mut Board) -> Result<bool, Error> {
        let mut moved = false;
        for (number, seat) in seats.iter_mut().enumerate() {
            moved |= self.poll_one(number, seat, board)?;
        }
        Ok(moved)
    }

    fn poll_one(
        &mut self,
        number: usize,
        seat: &mut Seat,
        board: &mut Board,
    ) -> Result<bool, Error> {
        let room = self.backend.device().in_flight_max;
        let mut moved = false;
        loop {
            let now = self.backend.now();
            if seat.held_back {
                // As a full queue does: the host blocks until a buffer ends.
                if seat.flight.len() >= room {
                    return Ok(moved);
                }
                seat.held_back = false;
            } else {
                seat.want = seat.actor.poll(now);
            }
            match &seat.want {
                Want::Commit(..) if seat.flight.len() >= room => {
                    seat.held_back = true;
                    return Ok(moved);
                }
                Want::Commit(kernel, place) => {
                    seat.flight.commit(self.backend.as_mut(), *kernel, *place)?;
                }
                Want::Signal(name) => board.raise(name),
                Want::Pin(pstate) => self.backend.pin(*pstate)?,
                Want::Await(name) => {
                    if !board.take(number, name) {
                        return Ok(moved);
                    }
                    seat.actor.on_signal(now);
                }
                Want::Until { .. } | Want::Completion | Want::Done => return Ok(moved),
            }
            moved = true;
        }
    }

    /// Lets time pass until the first thing that any actor, or the telemetry, waits for.
    fn pass_time(&mut self, seats: &mut [Seat], sample: Option<Instant>) -> Result<(), Error> {
        let times = seats.iter().filter_map(|seat| match seat.want {
            Want::Until { at, .. } => Some(at),
            _ => None,
        });
        let wake = times.chain(sample).min().unwrap_or(Instant::FAR_FUTURE);
        let busy = seats.iter().any(|seat| seat.flight.len() > 0);
        match self.wait(wake, busy)? {
            Some(completion) => {
                let seat = seats.iter_mut().find(|s| s.flight.queue == completion.queue);
                if let Some(seat) = seat {
                    seat.flight.land(&mut seat.actor, &completion);
                }
                Ok(())
            }
            None if wake == Instant::FAR_FUTURE => Err(Error::Stuck(stuck(seats))),
            None => Ok(()),
        }
    }

    /// The next completion until `wake`; `busy` if any can come. A run that does not end is an error.
    fn wait(&mut self, wake: Instant, busy: bool) -> Result<Option<Completion>, Error> {
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(Error::Long(format!(
                "it has recorded {EVENTS_MAX} events, which is all that is kept; shorten or split it"
            )));
        }
        loop {
            let now = self.backend.now();
            if now > self.deadline {
                return Err(Error::Long(format!(
                    "one round of one cell has lasted {ROUND_MAX}, which is the limit; is a kernel, an idle time or a loop too long?"
                )));
            }
            let stop = if busy { wake.min(now + STRIDE) } else { wake };
            let completion = self.backend.wait(stop)?;
            if completion.is_some() || stop == wake {
                return Ok(completion);
            }
        }
    }

    /// Waits for what is still in flight, so that the next cell begins on an empty device.
    fn drain(&mut self, seats: &mut [Seat]) -> Result<(), Error> {
        while seats.iter().any(|seat| seat.flight.len() > 0) {
            let Some(completion) = self.wait(Instant::FAR_FUTURE, true)? else { break };
            if let Some(seat) = seats.iter_mut().find(|s| s.flight.queue == completion.queue) {
                seat.flight.land(&mut seat.actor, &completion);
            }
        }
        Ok(())
    }
}

/// Changes whenever a step of any actor begins or ends.
fn boundaries(seats: &[Seat]) -> usize {
    seats.iter().map(|seat| seat.actor.boundaries()).sum()
}

fn stuck(seats: &[Seat]) -> String {
    let awaiting = seats.iter().filter_map(|seat| match &seat.want {
        Want::Await(name) => Some(format!("`{}` awaits `{name}`", seat.actor.name())),
        _ => None,
    });
    format!("nothing will happen any more: {}", awaiting.collect::<Vec<_>>().join(", "))
}

/// Signals raised so far, and how many of each an actor has taken.
#[derive(Default)]
struct Board {
    raised: BTreeMap<String, u64>,
    taken: BTreeMap<(usize, String), u64>,
}

impl Board {
    fn raise(&mut self, name: &str) {
        *self.raised.entry(name.to_owned()).or_default() += 1;
    }

    /// Takes the actor's next signal of that name, if it has been raised.
    fn take(&mut self, actor: usize, name: &str) -> bool {
        let raised = self.raised.get(name).copied().unwrap_or(0);
        let taken = self.taken.entry((actor, name.to_owned())).or_default();
        let there = *taken < raised;
        *taken += u64::from(there);
        there
    }
}

/// Reads counters each period and at the boundaries of steps.
struct Sampler {
    period: Span,
    next: Instant,
}

impl Sampler {
    fn sample(
        &mut self,
        backend: &mut dyn Backend,
        unit: &mut Unit,
        boundary: bool,
    ) -> Result<(), Error> {
        let due = backend.now() >= self.next;
        if due {
            self.next = backend.now() + self.period;
        }
        if due || boundary {
            unit.samples.push(backend.counters()?);
        }
        Ok(())
    }
}
