//! The driver for devices by the wall clock: one thread and one handle for each actor.
//!
//! Each handle counts from its own opening; what is recorded is put on the first handle's base.

use super::actor::{Actor, Want};
use super::flight::Flight;
use super::{Error, seed_of};
use crate::data::{StepRun, Unit};
use crate::scenario::Scenario;
use everwarm_gpu::{Backend, Counters};
use everwarm_units::{Instant, Span};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};
use std::thread;

/// How long a thread looks for nothing but a completion before it asks whether it should stop.
const PATIENCE: Span = Span::ms(20);

/// After this long without a completion a device counts as stuck. Source: guess.
const STUCK: Span = Span::s(60);

/// A device by the wall clock and its handles, one an actor.
pub struct WallDevice {
    id: String,
    first: Box<dyn Backend>,
    hands: BTreeMap<String, Hand>,
}

struct Hand {
    backend: Box<dyn Backend>,
    flight: Flight,
    /// The first handle's instant 0 on this handle's base may be before it: add to get there.
    shift: Shift,
}

/// From one handle's time base to the first handle's.
#[derive(Clone, Copy)]
struct Shift {
    ns: i128,
}

impl Shift {
    fn between(first: &dyn Backend, other: &dyn Backend) -> Shift {
        let ns = match (first.epoch(), other.epoch()) {
            (Some(a), Some(b)) => i128::from(b.0) - i128::from(a.0),
            // Read one after the other: right to a microsecond or so.
            _ => i128::from(first.now().as_nanos()) - i128::from(other.now().as_nanos()),
        };
        Shift { ns }
    }

    fn apply(self, at: Instant) -> Instant {
        Instant::from_nanos((i128::from(at.as_nanos()) + self.ns).max(0) as u64)
    }

    fn apply_all(self, step: &mut StepRun) {
        let mark_times = step.marks.iter_mut().map(|(_, at)| at);
        let buffer_times = step
            .dispatches
            .iter_mut()
            .flat_map(|d| [&mut d.committed, &mut d.gpu_start, &mut d.gpu_end, &mut d.observed]);
        for at in mark_times.chain(buffer_times).chain([&mut step.begin, &mut step.end]) {
            *at = self.apply(*at);
        }
    }
}

impl WallDevice {
    /// Takes the first handle of the device `id`; opens others as needed.
    pub fn new(id: &str, first: Box<dyn Backend>) -> Self {
        WallDevice { id: id.to_owned(), first, hands: BTreeMap::new() }
    }

    /// Runs one round of one cell.
    pub fn run(&mut self, plan: &Scenario, cell: usize, round: u32) -> Result<Unit, Error> {
        let actors = &plan.cells[cell].actors;
        for actor in actors {
            if !self.hands.contains_key(&actor.name) {
                let mut backend = everwarm_gpu::open(&self.id)?;
                let flight = Flight::open(backend.as_mut())?;
                let shift = Shift::between(self.first.as_ref(), backend.as_ref());
                self.hands.insert(actor.name.clone(), Hand { backend, flight, shift });
            }
        }
        let board = Board::new(actors.iter().filter(|actor| !actor.background).count());
        let seed = seed_of(plan.seed, cell, round);
        let begin = self.first.now();
        let first = self.first.as_mut();
        let (hands, board) = (&mut self.hands, &board);
        let (parts, samples) = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (name, hand) in hands.iter_mut() {
                let Some(n) = actors.iter().position(|actor| actor.name == *name) else { continue };
                let device = hand.backend.device().clone();
                let actor = Actor::new(actors[n].clone(), device, seed.wrapping_add(n as u64));
                threads.push(scope.spawn(move || drive(hand, actor, board)));
            }
            let samples = sample(first, plan.telemetry, board);
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            (joined.collect::<Result<Vec<_>, _>>(), samples)
        });
        let end = self.first.now();
        let steps = parts?.into_iter().flatten().collect();
        Ok(Unit { cell, round, begin, end, steps, samples: samples? })
    }
}

/// Reads counters on the calling thread until the foreground has ended.
fn sample(
    backend: &mut dyn Backend,
    period: Option<Span>,
    board: &Board,
) -> Result<Vec<Counters>, Error> {
    let mut samples = Vec::new();
    let Some(period) = period else {
        board.wait_over(Span::MAX);
        return Ok(samples);
    };
    loop {
        samples.push(backend.counters()?);
        if board.wait_over(period) {
            samples.push(backend.counters()?);
            return Ok(samples);
        }
    }
}

/// Runs one actor to its end.
fn drive(hand: &mut Hand, mut actor: Actor, board: &Board) -> Result<Vec<StepRun>, Error> {
    let outcome = work(hand, &mut actor, board);
    if !actor.background() {
        board.leave();
    }
    if outcome.is_err() {
        board.give_up();
    }
    let drained = drain(hand, &mut actor);
    outcome.and(drained)?;
    let mut steps = actor.into_steps();
    steps.iter_mut().for_each(|step| hand.shift.apply_all(step));
    Ok(steps)
}

fn work(hand: &mut Hand, actor: &mut Actor, board: &Board) -> Result<(), Error> {
    let mut taken = BTreeMap::new();
    loop {
        if actor.background() && board.over() || board.failed() {
            actor.stop();
        }
        match actor.poll(hand.backend.now()) {
            Want::Done => return Ok(()),
            Want::Commit(kernel, place) => {
                while hand.flight.len() >= hand.backend.device().in_flight_max {
                    land_one(hand, actor)?;
                }
                hand.flight.commit(hand.backend.as_mut(), kernel, place)?;
            }
            Want::Signal(name) => board.raise(&name),
            Want::Pin(pstate) => hand.backend.pin(pstate)?,
            Want::Await(name) => {
                if board.take(&mut taken, &name) {
                    actor.on_signal(hand.backend.now());
                }
            }
            Want::Until { at, spin: true } => {
                while hand.backend.now() < at {
                    std::hint::spin_loop();
                }
            }
            Want::Until { at, spin: false } => wait(hand, actor, at)?,
            Want::Completion => land_one(hand, actor)?,
        }
    }
}

/// Waits until `at` or for one completion; long waits in slices, so that a stop is seen.
fn wait(hand: &mut Hand, actor: &mut Actor, at: Instant) -> Result<(), Error> {
    let slice = hand.backend.now() + PATIENCE;
    if hand.flight.len() == 0 {
        hand.backend.sleep_until(at.min(slice));
    } else if let Some(completion) = hand.backend.wait(at.min(slice))? {
        hand.flight.land(actor, &completion);
    }
    Ok(())
}

fn land_one(hand: &mut Hand, actor: &mut Actor) -> Result<(), Error> {
    let deadline = hand.backend.now() + STUCK;
    match hand.backend.wait(deadline)? {
        Some(completion) => hand.flight.land(actor, &completion),
        None => return Err(Error::Stuck(format!("no command buffer has ended for {STUCK}"))),
    }
    Ok(())
}

fn drain(hand: &mut Hand, actor: &mut Actor) -> Result<(), Error> {
    while hand.flight.len() > 0 {
        land_one(hand, actor)?;
    }
    Ok(hand.backend.pin(None)?)
}

/// What the threads of one cell share: signals, and whether the foreground has ended.
struct Board {
    state: Mutex<BoardState>,
    changed: Condvar,
}

struct BoardState {
    raised: BTreeMap<String, u64>,
    foreground: usize,
    failed: bool,
}

impl Board {
    fn new(foreground: usize) -> Self {
        let state = BoardState { raised: BTreeMap::new(), foreground, failed: false };
        Board { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn with<T>(&self, change: impl FnOnce(&mut BoardState) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let result = change(&mut state);
        self.changed.notify_all();
        result
    }

    fn raise(&self, name: &str) {
        self.with(|state| *state.raised.entry(name.to_owned()).or_default() += 1);
    }

    fn leave(&self) {
        self.with(|state| state.foreground -= 1);
    }

    fn give_up(&self) {
        self.with(|state| state.failed = true);
    }

    fn over(&self) -> bool {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).foreground == 0
    }

    fn failed(&self) -> bool {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).failed
    }

    /// Waits a while until `ready`; what it then says.
    fn wait_while(&self, most: Span, ready: impl Fn(&BoardState) -> bool) -> bool {
        let state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let most = most.min(Span::s(3600 * 24)).into();
        let waited = self.changed.wait_timeout_while(state, most, |state| !ready(state));
        let (state, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        ready(&state)
    }

    fn wait_over(&self, most: Span) -> bool {
        self.wait_while(most, |state| state.foreground == 0)
    }

    /// Takes the caller's next signal of that name, waiting a little for it.
    fn take(&self, taken: &mut BTreeMap<String, u64>, name: &str) -> bool {
        let taken = taken.entry(name.to_owned()).or_default();
        let due = *taken;
        let count = |state: &BoardState| state.raised.get(name).copied().unwrap_or(0);
        self.wait_while(PATIENCE, |state| count(state) > due || state.failed);
        let there = self.with(|state| count(state) > due);
        *taken += u64::from(there);
        there
    }
}
