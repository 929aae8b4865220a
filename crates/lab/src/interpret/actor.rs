//! A host thread of a scenario as a state machine: its steps one after another, each with its own
//! program.
//!
//! It knows neither the device nor the other actors. Contract: call [`Actor::poll`] until it
//! answers [`Want::Until`], [`Want::Completion`], [`Want::Signal`] (`Await`) or [`Want::Done`];
//! carry out what it wants at once and in order; report each completion by
//! [`Actor::on_completion`]; after `Await`, poll again when the signal has come and
//! [`Actor::on_signal`] was called.

use super::ahead::Ahead;
use super::program::Loop;
use crate::data::{Dispatch, StepRun};
use crate::scenario::{self, Depth, Part, StepKind, Work};
use everwarm_gpu::{Completion, Device};
use everwarm_units::{Instant, PState, Span};
use everwarm_workload::{Action, Host, Kernel, Program, Seen};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What an actor wants of its driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Want {
    /// Commit this to the actor's queue; its completion comes back with this place.
    Commit(Kernel, Place),
    /// Tell the other actors.
    Signal(String),
    /// Poll again when this signal has come.
    Await(String),
    /// Hold the clock, or let it go.
    Pin(Option<PState>),
    /// Poll again at this instant; the CPU is to be kept busy until then if `spin`.
    Until { at: Instant, spin: bool },
    /// Poll again after the next completion.
    Completion,
    /// The actor has ended.
    Done,
}

/// Where a command buffer belongs: the step as it ran, and the buffer's number in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    step: usize,
    number: u64,
}

enum State {
    /// Between two steps.
    Next,
    Idle {
        until: Instant,
        signal: Option<(Instant, String)>,
        spin: bool,
    },
    Await(String),
    Host(Box<Host>),
    Ended,
}

/// One host thread.
pub struct Actor {
    plan: scenario::Actor,
    device: Device,
    rng: ChaCha8Rng,
    next: usize,
    state: State,
    stopping: bool,
    /// The steps so far; the last one is running unless between two.
    steps: Vec<StepRun>,
}

impl Actor {
    /// An actor at its first step. `seed` is its own.
    pub fn new(plan: scenario::Actor, device: Device, seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Actor { plan, device, rng, next: 0, state: State::Next, stopping: false, steps: Vec::new() }
    }

    /// True if it repeats until stopped.
    pub fn background(&self) -> bool {
        self.plan.background
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Asks a background actor to end: it submits no more.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// How many steps have begun or ended so far: changes at each boundary.
    pub fn boundaries(&self) -> usize {
        2 * self.steps.len() + usize::from(matches!(self.state, State::Next | State::Ended))
    }

    /// The steps as they ran.
    pub fn into_steps(self) -> Vec<StepRun> {
        self.steps
    }

    /// The signal it awaits has come.
    pub fn on_signal(&mut self, now: Instant) {
        if matches!(self.state, State::Await(_)) {
            self.finish(now);
        }
    }

    /// Reports the completion of a buffer.
    pub fn on_completion(&mut self, place: Place, kernel: &Kernel, c: &Completion) {
        self.steps[place.step].dispatches.push(Dispatch {
            kernel: *kernel,
            committed: c.committed,
            gpu_start: c.gpu_start,
            gpu_end: c.gpu_end,
            observed: c.observed,
            pstate: c.pstate,
            clock: c.clock,
            late: c.late,
        });
        // A step that did not drain is over; its host is gone.
        if place.step + 1 == self.steps.len()
            && let State::Host(host) = &mut self.state
        {
            host.on_completion(Seen {
                number: place.number,
                committed: c.committed,
                gpu_start: c.gpu_start,
                gpu_end: c.gpu_end,
                observed: c.observed,
            });
        }
    }

    /// What it wants at `now`.
    pub fn poll(&mut self, now: Instant) -> Want {
        loop {
            if self.stopping && !matches!(self.state, State::Ended) {
                if !matches!(self.state, State::Next) {
                    self.finish(now);
                }
                self.state = State::Ended;
            }
            match &mut self.state {
                State::Ended => return Want::Done,
                State::Next => {
                    if let Some(want) = self.enter(now) {
                        return want;
                    }
                }
                State::Idle { signal, .. } if signal.as_ref().is_some_and(|s| now >= s.0) => {
                    let (_, name) = signal.take().expect("just seen");
                    return Want::Signal(name);
                }
                State::Idle { until, signal, spin } if now < *until => {
                    let at = signal.as_ref().map_or(*until, |s| s.0);
                    return Want::Until { at, spin: *spin };
                }
                State::Idle { .. } => self.finish(now),
                State::Await(name) => return Want::Await(name.clone()),
                State::Host(host) => match host.poll(now) {
                    Action::Commit(kernel) => {
                        let step = self.steps.len() - 1;
                        let number = self.commits();
                        return Want::Commit(kernel, Place { step, number });
                    }
                    Action::Mark(name) => {
                        self.steps.last_mut().expect("a step runs").marks.push((name, now));
                    }
                    Action::WaitUntil(at) => return Want::Until { at, spin: false },
                    Action::WaitForCompletion => return Want::Completion,
                    Action::Done => self.finish(now),
                },
            }
        }
    }

    /// The number of the commit that the host just asked for.
    fn commits(&mut self) -> u64 {
        let State::Host(host) = &self.state else { unreachable!("only a host commits") };
        let step = self.steps.last().expect("a step runs");
        (step.dispatches.len() + host.outstanding()) as u64 - 1
    }

    /// Begins the next step; some are over at once and only want something.
    fn enter(&mut self, now: Instant) -> Option<Want> {
        if self.next == self.plan.steps.len() {
            if !self.plan.background {
                self.state = State::Ended;
                return None;
            }
            self.next = 0;
        }
        let index = self.next;
        let step = self.plan.steps[index].clone();
        let model = match &step.kind {
            StepKind::Model { part, .. } => Some(*part),
            _ => None,
        };
        self.next += 1;
        self.steps.push(StepRun {
            actor: self.plan.name.clone(),
            background: self.plan.background,
            label: step.label,
            index,
            begin: now,
            end: now,
            dispatches: Vec::new(),
            model,
            marks: Vec::new(),
        });
        match step.kind {
            StepKind::Idle { span, jitter, spin, signal } => {
                let until = now + span + self.below(jitter);
                let signal = signal.map(|(name, lead)| (until - lead, name));
                self.state = State::Idle { until, signal, spin };
            }
            StepKind::Await(name) => self.state = State::Await(name),
            StepKind::Signal(name) => return Some(Want::Signal(name)),
            StepKind::Pin(pstate) => return Some(Want::Pin(pstate)),
            StepKind::Run(run) => {
                let program = self.run(run);
                self.host(program);
            }
            StepKind::Model { runtime, part } => self.host(match part {
                Part::Prefill(tokens) => runtime.prefill(tokens),
                Part::Decode { context, tokens } => runtime.decode(context, tokens),
                Part::Answer { prompt, tokens } => runtime.respond(prompt, tokens),
            }),
        }
        None
    }

    fn run(&self, run: scenario::Run) -> Box<dyn Program> {
        let (device, work) = (self.device.clone(), run.work);
        match run.in_flight {
            Depth::Fixed(depth) => Box::new(Loop::new(run, depth, kernel(&device, work))),
            Depth::Auto(limits) => {
                let times = move |n| work.times(n).expect("it was read with its largest chunk");
                Box::new(Ahead::new(run, limits, Box::new(move |n| kernel(&device, times(n)))))
            }
        }
    }

    fn host(&mut self, program: Box<dyn Program>) {
        self.state = State::Host(Box::new(Host::new(program)));
    }

    fn finish(&mut self, now: Instant) {
        self.steps.last_mut().expect("a step runs").end = now;
        self.state = State::Next;
    }

    /// A seeded span below `limit`.
    fn below(&mut self, limit: Span) -> Span {
        match limit.as_nanos() {
            0 => Span::ZERO,
            limit => Span::ns(self.rng.next_u64() % limit),
        }
    }
}

/// A step's work as a kernel of this device.
fn kernel(device: &Device, work: Work) -> Kernel {
    match work {
        Work::FmaTime { time, threads } => device.fma(time, threads),
        Work::Exact(kernel) => kernel,
    }
}
