//! The thread that owns the simulated GPU and moves it by the wall clock.
//!
//! Contract: an event of the simulation (a completion, a host program's next step) is processed at
//! its own virtual instant, in order, however late the thread woke; only the wall-clock time of
//! its effects suffers, and that lateness is recorded. What comes from outside carries a stamp on
//! CLOCK_MONOTONIC and enters at that instant, or at the simulation's present if that is later.
//!
//! Nothing here blocks but the wait for the next event or command; an idle engine sleeps.

use crate::clients::{ClientId, Clients};
use crate::lateness::Lateness;
use crate::slot::{Job, Slot};
use everwarm_gpu::Monotonic;
use everwarm_gpu::wire::{Request, WireDevice};
use everwarm_sim::Machine;
use everwarm_units::{Instant, Span};
use everwarm_workload::Runtime;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// How long before an event sleeping gives way to spinning: about what a sleep overshoots by with
/// the timer slack off. Source: measured, median 10 to 30 us on a virtual machine.
const SPIN: Span = Span::us(30);

/// Commands on their way to the engine; a sender that is faster than the engine waits.
const INBOX: usize = 1024;

/// Commands that are put in order of their stamps and carried out together.
const BATCH: usize = 64;

/// What the engine is asked to do.
pub(crate) enum Command {
    Attach(ClientId, UnixStream),
    Request(ClientId, Request),
    /// A client broke the protocol; the text says how.
    Refuse(ClientId, String),
    Detach(ClientId),
    Submit(Job),
    Cancel(u64),
    Stop,
}

/// The way to the engine. Cheap to clone; sending fails only when the engine has ended.
#[derive(Clone)]
pub(crate) struct Inbox {
    sender: SyncSender<(Monotonic, Command)>,
    lateness: Arc<Mutex<Lateness>>,
    epoch: Monotonic,
}

/// The engine has ended.
#[derive(Debug)]
pub(crate) struct Gone;

impl Inbox {
    pub(crate) fn send(&self, at: Monotonic, command: Command) -> Result<(), Gone> {
        self.sender.send((at, command)).map_err(|_| Gone)
    }

    /// Instant 0 of the simulation.
    pub(crate) fn epoch(&self) -> Monotonic {
        self.epoch
    }

    /// Lateness of everything since the start.
    pub(crate) fn lateness(&self) -> Lateness {
        self.lateness.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// Starts the engine; it ends on [`Command::Stop`] or when every inbox is gone.
pub(crate) fn start(
    machine: Machine,
    device: WireDevice,
    runtime: Runtime,
) -> std::io::Result<(Inbox, JoinHandle<()>)> {
    let (sender, commands) = sync_channel(INBOX);
    let lateness = Arc::new(Mutex::new(Lateness::default()));
    let epoch = Monotonic::now();
    let inbox = Inbox { sender, lateness: Arc::clone(&lateness), epoch };
    let builder = std::thread::Builder::new().name("everwarm-engine".into());
    let thread = builder.spawn(move || {
        everwarm_gpu::keep_real_time();
        let mut machine = machine;
        let slot = Slot::new(runtime, machine.open_queue());
        let clients = Clients::new(epoch, device);
        Engine { machine, slot, clients, epoch, lateness, commands }.run();
    })?;
    Ok((inbox, thread))
}

struct Engine {
    machine: Machine,
    slot: Slot,
    clients: Clients,
    epoch: Monotonic,
    lateness: Arc<Mutex<Lateness>>,
    commands: Receiver<(Monotonic, Command)>,
}

/// What ended a wait.
enum Woken {
    Command(Monotonic, Command),
    Event,
    Orphaned,
}

impl Engine {
    fn run(mut self) {
        let mut batch: Vec<(Monotonic, Command)> = Vec::with_capacity(BATCH);
        loop {
            match self.wait() {
                Woken::Command(at, command) => batch.push((at, command)),
                Woken::Event => {}
                Woken::Orphaned => return,
            }
            batch.extend(self.commands.try_iter().take(BATCH));
            // Stable: commands of one sender keep their order, its stamps ascend.
            batch.sort_by_key(|(at, _)| *at);
            for (at, command) in batch.drain(..) {
                let at = at.on_base(self.epoch).min(self.now());
                self.advance(at);
                if let Command::Stop = command {
                    return;
                }
                self.carry_out(at, command);
            }
            self.advance(self.now());
        }
    }

    fn now(&self) -> Instant {
        Monotonic::now().on_base(self.epoch)
    }

    fn next_event(&self) -> Option<Instant> {
        [self.machine.next_event(), self.slot.wake()].into_iter().flatten().min()
    }

    /// Waits for the next event or command, whichever comes first.
    fn wait(&self) -> Woken {
        let received = match self.next_event() {
            None => self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(event) => {
                let rest = event.since(self.now()).saturating_sub(SPIN);
                self.commands.recv_timeout(rest.into()).or_else(|error| match error {
                    RecvTimeoutError::Timeout => self.spin_until(event),
                    gone => Err(gone),
                })
            }
        };
        match received {
            Ok((at, command)) => Woken::Command(at, command),
            Err(RecvTimeoutError::Timeout) => Woken::Event,
            Err(RecvTimeoutError::Disconnected) => Woken::Orphaned,
        }
    }

    fn spin_until(&self, event: Instant) -> Result<(Monotonic, Command), RecvTimeoutError> {
        while self.now() < event {
            if let Ok(received) = self.commands.try_recv() {
                return Ok(received);
            }
            std::hint::spin_loop();
        }
        Err(RecvTimeoutError::Timeout)
    }

    /// Processes all events up to `to`, each at its own instant.
    fn advance(&mut self, to: Instant) {
        while let Some(event) = self.next_event().filter(|event| *event <= to) {
            self.machine.advance(event);
            self.note_late(self.now().since(event));
            // Other processes are told at once, so that the way to them is over when their hosts
            // would observe it.
            while let Some(completion) = self.machine.poll_ended() {
                if completion.queue == self.slot.queue() {
                    self.slot.on_completion(completion);
                } else {
                    self.clients.on_completion(&completion, &mut self.machine);
                }
            }
            self.slot.step(self.machine.now(), &mut self.machine);
        }
    }

    /// Carries out a command that was stamped `at`; events before that are processed already.
    fn carry_out(&mut self, at: Instant, command: Command) {
        let late = self.machine.now().since(at);
        self.machine.advance(at.max(self.machine.now()));
        let (now, machine) = (self.machine.now(), &mut self.machine);
        match command {
            Command::Attach(id, stream) => self.clients.attach(id, stream, machine),
            Command::Request(id, request) => {
                let is_commit = matches!(request, Request::Commit { .. });
                self.clients.request(id, request, late, machine);
                if is_commit {
                    self.note_late(late);
                }
            }
            Command::Refuse(id, message) => self.clients.refuse(id, message, machine),
            Command::Detach(id) => self.clients.detach(id, machine),
            Command::Submit(job) => self.slot.submit(now, job, machine),
            Command::Cancel(id) => self.slot.cancel(now, id, machine),
            Command::Stop => {}
        }
    }

    fn note_late(&mut self, late: Span) {
        self.slot.note_late(late);
        self.lateness.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).note(late);
    }
}
