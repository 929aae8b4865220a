//! The warmer's thread: governor and pump by the wall clock.
//!
//! It sleeps on its mailbox, so an event that announces a request reaches the device within a
//! thread's wake-up, and turns the pump between events. Where nothing can be gained by haste it does
//! not let itself be woken for each event: a request's own thread pays for that. The governor's time is CLOCK_MONOTONIC since the engine began; it goes
//! on when the device is lost.

use crate::mailbox::{Inbox, Urgency};
use crate::pump::{Pump, Shape};
use crate::status::{LastPrewarm, Outlook, State, Status, Warm};
use crate::warmer::{Board, Config, Message};
use everwarm_governor::{Action, Entry, Event, Governor, Phase, Reason};
use everwarm_gpu::{Error, Monotonic};
use everwarm_units::{Instant, Joules, Span, Watts};
use std::time::Duration;

/// The first pause before a device is opened again, and the longest.
const BACK_OFF: (Span, Span) = (Span::ms(250), Span::s(30));
/// How often a hold's energy is read, and an idle device looked at.
const ENERGY_EVERY: Span = Span::s(1);
const IDLE_LOOK: Span = Span::s(5);
/// How long events may wait that follow others: a request's are this close together. They tell of
/// work that runs or is over, which a policy answers after its grace of a hundred times that.
const NAP: Span = Span::ms(1);

pub(crate) struct Engine {
    board: Board,
    device: Option<String>,
    shape: Shape,
    grace: Span,
    hold_power: Watts,
    prewarm_energy: Joules,
    governor: Governor,
    epoch: Monotonic,
    now: Instant,
    /// When the first event that is being acted upon happened; `None` when time alone woke us.
    event: Option<Monotonic>,
    /// A request's work ended last at this instant.
    worked: Option<Instant>,
    pump: Option<Pump>,
    /// When to try again, and the pause after that.
    retry: (Instant, Span),
    /// Why the machine must save power.
    saving: Option<&'static str>,
    hold: Option<Hold>,
    hold_time: Span,
    /// Hold kernels of handles that are gone.
    past_buffers: u64,
    /// When the policy was last asked what it expects, and how many requests ran.
    looked: (Instant, u32),
}

/// How long what the policy expects is told before it is asked again: it costs some microseconds.
const OUTLOOK_EVERY: Span = Span::ms(250);

struct Hold {
    since: Instant,
    /// Energy is accounted for up to here.
    read: Instant,
    /// The device's counter there.
    counter: Option<Joules>,
    /// A request ran meanwhile: the counter is not ours alone.
    shared: bool,
}

/// Says so on the board if the thread dies of a panic; the device handle is dropped by then.
struct OnPanic(Board);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let why = "the warmer stopped on an internal error".to_owned();
            self.0.write(|s| s.warm = Warm { state: State::Unavailable, why });
        }
    }
}

impl Engine {
    pub(crate) fn new(config: &Config, entry: &'static Entry, board: Board) -> Self {
        let mut governor = Governor::new(entry, config.governor.clone());
        if config.device.is_none() {
            governor.on_event(Instant::ZERO, Event::WarmingFailed);
        }
        Engine {
            board,
            device: config.device.clone(),
            shape: config.shape,
            grace: config.governor.costs.grace,
            hold_power: config.governor.costs.hold_power,
            prewarm_energy: config.governor.costs.prewarm_energy,
            governor,
            epoch: Monotonic::now(),
            now: Instant::ZERO,
            event: None,
            worked: None,
            pump: None,
            retry: (Instant::ZERO, BACK_OFF.0),
            saving: None,
            hold: None,
            hold_time: Span::ZERO,
            past_buffers: 0,
            looked: (Instant::ZERO, u32::MAX),
        }
    }

    pub(crate) fn run(mut self, inbox: &Inbox<Message>) {
        let _panic = OnPanic(self.board.clone());
        everwarm_gpu::wake_promptly();
        self.open_if_due();
        // What was told before the device was open counts before the first hold.
        let mut messages = Vec::new();
        inbox.take(&mut messages);
        loop {
            let told = !messages.is_empty();
            if messages.iter().any(|message| matches!(message, Message::Stop)) {
                break;
            }
            messages.drain(..).for_each(|message| self.on_message(message));
            self.tick();
            self.turn();
            let wake = self.drain();
            let (from, rest) = self.rest(wake, told);
            inbox.wait(from, rest, &mut messages);
        }
        self.end_hold(Reason::PolicyChanged);
        self.publish();
    }

    /// What to be woken for, and how long to sleep else, after `told` of something or of nothing.
    fn rest(&self, wake: Option<Instant>, told: bool) -> (Urgency, Duration) {
        let sleep = self.sleep(wake);
        if self.device.is_none() {
            return (Urgency::Order, sleep.into());
        }
        // A hold must end when its reason does.
        if self.hold.is_some() || !told {
            return (Urgency::Note, sleep.into());
        }
        let since = self.worked.map(|at| self.now.since(at));
        let warm = self.governor.traffic().forwarded > 0 || since.is_some_and(|s| s < self.grace);
        let from = if warm { Urgency::Order } else { Urgency::Arrival };
        (from, sleep.min(NAP).into())
    }

    fn tick(&mut self) {
        self.now = Monotonic::now().on_base(self.epoch).max(self.now);
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Event(at, event) => {
                self.event.get_or_insert(at);
                // Told when it happened, acted upon now: what has waited too long is out of date.
                self.now = at.on_base(self.epoch).max(self.now);
                self.governor.on_event(self.now, event);
                let ended = matches!(
                    event,
                    Event::ResponseFinished { work: true, .. }
                        | Event::ResponseAborted { work: true, .. }
                );
                if ended {
                    self.worked = Some(self.now);
                }
            }
            Message::Follow(entry) => {
                self.governor.follow(entry);
                self.looked.1 = u32::MAX;
            }
            Message::Power(saving) => {
                self.tick();
                self.saving = saving;
                let lost = saving.is_some();
                let event = if lost { Event::PowerLost } else { Event::PowerRestored };
                self.governor.on_event(self.now, event);
            }
            Message::Stop => {}
        }
    }

    /// Carries out what the governor asks for; returns when it wants to be asked again.
    fn drain(&mut self) -> Option<Instant> {
        let wake = loop {
            let done = match self.governor.poll(self.now) {
                Action::WaitUntil(at) => break Some(at),
                Action::WaitForEvent => break None,
                Action::Prewarm => self.prewarm(),
                Action::Hold => self.begin_hold(),
                Action::Release(reason) => {
                    self.end_hold(reason);
                    Ok(())
                }
            };
            if let Err(error) = done {
                self.lost(&error);
            }
        };
        self.event = None;
        self.publish();
        wake
    }

    fn prewarm(&mut self) -> Result<(), Error> {
        let Some(pump) = &mut self.pump else { return Ok(()) };
        pump.prewarm()?;
        let (event_ns, submitted_ns) = (self.event.map(|at| at.0), Monotonic::now().0);
        let energy = self.prewarm_energy.as_j();
        self.board.write(|s| {
            s.last_prewarm = Some(LastPrewarm { event_ns, submitted_ns, gpu_start_ns: None });
            s.counters.prewarms += 1;
            s.energy.total_j += energy;
            s.energy.measured = false;
        });
        Ok(())
    }

    fn begin_hold(&mut self) -> Result<(), Error> {
        let Some(pump) = &mut self.pump else { return Ok(()) };
        pump.hold()?;
        let counter = pump.energy()?;
        self.hold = Some(Hold { since: self.now, read: self.now, counter, shared: false });
        self.board.write(|s| s.counters.holds += 1);
        Ok(())
    }

    fn end_hold(&mut self, reason: Reason) {
        self.account();
        if let Some(pump) = &mut self.pump {
            pump.release();
        }
        if let Some(hold) = self.hold.take() {
            self.hold_time += self.now.since(hold.since);
            let place = Reason::ALL.iter().position(|r| *r == reason).unwrap_or_default();
            self.board.write(|s| s.counters.releases[place] += 1);
        }
    }

    /// Reports what the hold has used since it was last read.
    fn account(&mut self) {
        let Some(hold) = &mut self.hold else { return };
        let span = self.now.since(hold.read);
        let counter = self.pump.as_mut().and_then(|pump| pump.energy().ok().flatten());
        let measured = match (hold.counter, counter) {
            (Some(before), Some(after)) if !hold.shared && after >= before => Some(after - before),
            _ => None,
        };
        hold.read = self.now;
        hold.counter = counter;
        hold.shared = self.governor.traffic().forwarded > 0;
        let used = measured.unwrap_or(self.hold_power * span);
        match measured {
            Some(used) => self.governor.on_event(self.now, Event::Energy(used)),
            None => self.governor.not_measured(self.now),
        }
        self.board.write(|s| {
            s.energy.total_j += used.as_j();
            s.energy.measured &= measured.is_some();
        });
    }

    fn turn(&mut self) {
        self.open_if_due();
        if let Some(hold) = &mut self.hold {
            hold.shared |= self.governor.traffic().forwarded > 0;
            if self.now.since(hold.read) >= ENERGY_EVERY {
                self.account();
            }
        }
        match self.pump.as_mut().map(Pump::turn) {
            Some(Ok(Some(begun))) => self.board.write(|s| {
                if let Some(last) = &mut s.last_prewarm {
                    last.gpu_start_ns.get_or_insert(begun.gpu_start.0);
                }
            }),
            Some(Err(error)) => self.lost(&error),
            Some(Ok(None)) | None => {}
        }
    }

    /// The device failed: the governor is told, and it is opened again later.
    fn lost(&mut self, error: &Error) {
        self.past_buffers += self.pump.take().map_or(0, |pump| pump.hold_buffers());
        let (_, pause) = self.retry;
        self.retry = (self.now + pause, (pause * 2).min(BACK_OFF.1));
        let why = format!("warming is unavailable: {error}; tried again in {pause}");
        self.board.write(|s| {
            s.counters.failures += 1;
            s.warm = Warm { state: State::Unavailable, why };
        });
        self.governor.on_event(self.now, Event::WarmingFailed);
    }

    fn open_if_due(&mut self) {
        let Some(device) = self.device.as_deref().filter(|_| self.pump.is_none()) else { return };
        if self.now < self.retry.0 {
            return;
        }
        let opened = Pump::open(device, self.shape);
        self.tick();
        match opened {
            Ok(pump) => {
                self.retry.1 = BACK_OFF.0;
                let name = pump.device().name.clone();
                self.board.write(|s| s.device_name = Some(name));
                self.pump = Some(pump);
                self.governor.on_event(self.now, Event::WarmingRestored);
            }
            Err(error) => self.lost(&error),
        }
    }

    /// How long to sleep on the mailbox if nothing comes.
    fn sleep(&self, wake: Option<Instant>) -> Span {
        let now = Monotonic::now().on_base(self.epoch);
        let mut sleep = wake.map_or(IDLE_LOOK, |at| at.since(now)).min(IDLE_LOOK);
        match &self.pump {
            Some(pump) => sleep = pump.turn_in().map_or(sleep, |turn| sleep.min(turn)),
            None if self.device.is_some() => sleep = sleep.min(self.retry.0.since(now)),
            None => {}
        }
        sleep
    }

    /// What the policy expects, if it is time to ask.
    fn outlook(&mut self) -> Option<Outlook> {
        let requests = self.governor.traffic().requests;
        let (at, ran) = self.looked;
        let due = requests != ran || self.now.since(at) >= OUTLOOK_EVERY;
        due.then(|| {
            self.looked = (self.now, requests);
            self.governor.outlook(self.now).into()
        })
    }

    fn publish(&mut self) {
        let phase = self.governor.phase(self.now);
        let (used, cap) = self.governor.energy(self.now);
        let held = self.hold.as_ref().map_or(Span::ZERO, |hold| self.now.since(hold.since));
        let hold_ms = (self.hold_time + held).as_ms() as u64;
        let buffers = self.past_buffers + self.pump.as_ref().map_or(0, Pump::hold_buffers);
        let warm = self.pump.as_ref().map(|_| warm(phase, self.saving, self.now));
        let policy = self.governor.policy_name();
        let outlook = self.outlook();
        self.board.write(|s: &mut Status| {
            if let Some(warm) = warm {
                s.warm = warm;
            }
            if s.policy != policy {
                policy.clone_into(&mut s.policy);
            }
            s.outlook = outlook.unwrap_or(s.outlook);
            s.energy.used_24h_j = used.as_j();
            s.energy.cap_j = cap.as_j();
            s.counters.hold_ms = hold_ms;
            s.counters.hold_buffers = buffers;
        });
    }
}

fn warm(phase: Phase, saving: Option<&str>, now: Instant) -> Warm {
    match phase {
        Phase::Holding(until) => {
            let left = until.filter(|at| *at < Instant::FAR_FUTURE).map(|at| at.since(now));
            let why = match left {
                Some(left) => format!("a request is expected; for {left:.1} more if none comes"),
                None => "the policy holds".to_owned(),
            };
            Warm { state: State::Holding, why }
        }
        Phase::Resting(Reason::PowerLost) => {
            let why = saving.map_or(String::new(), |why| format!(": {why}"));
            Warm { state: State::Resting, why: format!("{}{why}", Reason::PowerLost) }
        }
        Phase::Resting(reason) => Warm { state: State::Resting, why: reason.to_string() },
    }
}
