//! The warmer's outside: a thread, a channel in, a status out.

use crate::engine::Engine;
use crate::mailbox::{Outlet, Urgency, Urgent, mailbox};
use crate::power::{Surroundings, Watch};
use crate::pump::Shape;
use crate::status::{Energy, State, Status, Warm};
use everwarm_governor::{Entry, Event, UnknownPolicy, policy};
use everwarm_gpu::Monotonic;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// What a warmer is given.
#[derive(Clone, Debug)]
pub struct Config {
    /// The device; `None`: warm nothing, but count.
    pub device: Option<String>,
    /// The policy's name.
    pub policy: String,
    /// The governor's parameters.
    pub governor: everwarm_governor::Config,
    /// The kernels.
    pub shape: Shape,
    /// What is asked whether the machine must save power.
    pub surroundings: Surroundings,
}

pub(crate) enum Message {
    Event(Monotonic, Event),
    Follow(&'static Entry),
    /// The machine must save power, and why; or no longer.
    Power(Option<&'static str>),
    Stop,
}

impl Urgent for Message {
    fn urgency(&self) -> Urgency {
        match self {
            Message::Event(_, event) if announces(event) => Urgency::Arrival,
            Message::Event(..) => Urgency::Note,
            Message::Follow(_) | Message::Power(_) | Message::Stop => Urgency::Order,
        }
    }
}

/// A request may be about to begin: every microsecond of warming counts.
fn announces(event: &Event) -> bool {
    matches!(
        event,
        Event::ConnectionAccepted
            | Event::RequestHead { work: true }
            | Event::ExpectContinue
            | Event::Preflight
            | Event::ModelsListed
            | Event::Hint { .. }
    )
}

/// Shared by the thread and everybody who asks.
#[derive(Clone)]
pub(crate) struct Board(Arc<Mutex<Status>>);

impl Board {
    fn new(status: Status) -> Self {
        Board(Arc::new(Mutex::new(status)))
    }

    pub(crate) fn read(&self) -> Status {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn write(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Keeps a device warm until it is dropped.
pub struct Warmer {
    handle: Handle,
    power: Option<Watch>,
    thread: Option<JoinHandle<()>>,
}

/// Tells a warmer of events and reads its status; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    outlet: Outlet<Message>,
    board: Board,
}

impl Warmer {
    /// Starts the thread, which opens the device. A device that can't be opened is a
    /// [`State::Unavailable`] and tried again.
    ///
    /// # Errors
    /// [`UnknownPolicy`] lists the policies there are.
    ///
    /// # Panics
    /// If the system can't start a thread.
    pub fn spawn(config: Config) -> Result<Self, UnknownPolicy> {
        let entry = policy(&config.policy)?;
        let (outlet, inbox) = mailbox();
        let board = Board::new(first_status(&config, entry));
        let handle = Handle { outlet, board: board.clone() };
        let power = Watch::begin(config.surroundings.clone(), handle.outlet.clone());
        let thread = std::thread::Builder::new()
            .name("warmer".to_owned())
            .spawn(move || Engine::new(&config, entry, board).run(&inbox))
            .expect("a thread can be started");
        Ok(Warmer { handle, power, thread: Some(thread) })
    }

    /// A handle to it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Warmer {
    fn drop(&mut self) {
        drop(self.power.take());
        self.handle.outlet.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Handle {
    /// Tells of an event that happens now. Never blocks, never fails.
    pub fn tell(&self, event: Event) {
        self.outlet.send(Message::Event(Monotonic::now(), event));
    }

    /// Follows another policy from now on.
    ///
    /// # Errors
    /// [`UnknownPolicy`] lists the ones there are.
    pub fn follow(&self, name: &str) -> Result<(), UnknownPolicy> {
        let entry = policy(name)?;
        self.board.write(|status| status.policy = entry.name.to_owned());
        self.outlet.send(Message::Follow(entry));
        Ok(())
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        self.board.read()
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.status()).finish()
    }
}

fn first_status(config: &Config, entry: &Entry) -> Status {
    let (state, why) = match &config.device {
        Some(device) => (State::Unavailable, format!("{device} is being opened")),
        None => (State::Off, "no device was given to be warmed".to_owned()),
    };
    Status {
        policy: entry.name.to_owned(),
        hold_for_s: config.governor.hold_for.as_secs(),
        device: config.device.clone(),
        device_name: None,
        warm: Warm { state, why },
        outlook: crate::status::Outlook::default(),
        last_prewarm: None,
        energy: Energy {
            used_24h_j: 0.0,
            cap_j: config.governor.cap.as_j(),
            total_j: 0.0,
            measured: true,
        },
        counters: crate::status::Counters::default(),
    }
}
