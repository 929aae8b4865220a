//! A handle on a simulated GPU that `everwarm sim-server` hosts, through its Unix socket.
//!
//! The device is shared: buffers of other processes run beside and before ours, as on a real GPU.
//! Time is the wall clock. `commit` writes one line to the socket and returns; a reader thread
//! takes completions as the server pushes them, and `poll` and `wait` hand each out once the
//! clock has reached the instant at which a host would have observed it.
//!
//! It knows what the server tells it and nothing of the simulation. [`Completion::late`] is how far
//! this buffer's simulated times and what really happened drifted apart, on either side.

use crate::wire::{self, QUEUES_MAX, Reply, Request, WireCompletion};
use crate::{Backend, Completion, Counters, Device, Error, Monotonic, Queue, Ticket};
use everwarm_units::{Instant, PState, Span};
use everwarm_workload::Kernel;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the server may take to answer a question before it counts as gone. A server that keeps
/// time answers in well under a millisecond; this leaves room for a stopped or swapping machine.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A handle on a shared simulated GPU.
struct SocketBackend {
    device: Device,
    epoch: Monotonic,
    stream: UnixStream,
    shared: Arc<Shared>,
    reader: Option<JoinHandle<()>>,
    queues: u32,
    tickets: u64,
    questions: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    completions: VecDeque<Completion>,
    in_flight: Vec<usize>,
    counters: Option<(u64, Counters)>,
    lost: Option<String>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.in_flight.iter().all(|n| *n == 0)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The reader thread never panics with the lock held; a poisoned state is still a state.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Opens the device behind the socket at `path`; `id` is the id it was asked for by.
///
/// # Errors
/// [`Error::NoDevice`] if nobody listens there, or if what does is no server of this version.
pub fn open(id: &str, path: &str) -> Result<Box<dyn Backend>, Error> {
    Ok(Box::new(SocketBackend::connect(id, Path::new(path))?))
}

impl SocketBackend {
    fn connect(id: &str, path: &Path) -> Result<Self, Error> {
        let no_device = |why: String| Error::NoDevice { id: id.to_owned(), why };
        let mut stream = UnixStream::connect(path).map_err(|error| {
            no_device(format!(
                "can't connect to {}: {error}; is `everwarm sim-server --socket {0}` running?",
                path.display()
            ))
        })?;
        let (device, reader) = greet(&mut stream, id).map_err(no_device)?;
        let epoch = Monotonic::now();
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let reader = std::thread::Builder::new()
            .name("everwarm-socket".into())
            .spawn(move || read_all(reader, &theirs, epoch))
            .map_err(|error| no_device(format!("can't start a reader thread: {error}")))?;
        let reader = Some(reader);
        Ok(SocketBackend {
            device,
            epoch,
            stream,
            shared,
            reader,
            queues: 0,
            tickets: 0,
            questions: 0,
        })
    }

    fn send(&mut self, request: &Request) -> Result<(), Error> {
        self.stream.write_all(&wire::line(request)).map_err(|error| {
            // The server's last words say more than a broken pipe does.
            let said = self.shared.lock().lost.clone();
            self.lost(said.unwrap_or_else(|| format!("can't write to its socket: {error}")))
        })
    }

    fn lost(&self, why: String) -> Error {
        Error::Lost { device: self.device.id.clone(), why }
    }

    fn due(&self, state: &mut State) -> Option<Completion> {
        let now = self.now();
        let completion = state.completions.pop_front_if(|c| c.observed <= now)?;
        // The place in the queue is free again once the host knows.
        if let Some(in_flight) = state.in_flight.get_mut(completion.queue.0 as usize) {
            *in_flight = in_flight.saturating_sub(1);
        }
        Some(completion)
    }
}

impl Backend for SocketBackend {
    crate::backend::by_the_wall_clock!();

    fn queue(&mut self) -> Result<Queue, Error> {
        if self.queues == QUEUES_MAX {
            return Err(Error::Limit {
                what: format!("{QUEUES_MAX} queues are already open"),
                limit: QUEUES_MAX as usize,
            });
        }
        let queue = self.queues;
        self.send(&Request::OpenQueue { queue })?;
        self.queues += 1;
        self.shared.lock().in_flight.push(0);
        Ok(Queue(queue))
    }

    fn commit(&mut self, queue: Queue, kernel: &Kernel) -> Result<Ticket, Error> {
        let at_ns = Monotonic::now().0;
        if let Kernel::Modelled { flops, bytes, resident } = *kernel
            && [flops, bytes, resident].iter().any(|cost| !cost.is_finite() || *cost < 0.0)
        {
            let what = format!("{kernel:?}: a cost must be finite and not negative");
            return Err(Error::Unsupported { device: self.device.id.clone(), what });
        }
        let limit = self.device.in_flight_max;
        {
            let mut state = self.shared.lock();
            if let Some(why) = state.lost.clone() {
                return Err(self.lost(why));
            }
            let open = state.in_flight.len();
            let in_flight = state.in_flight.get_mut(queue.0 as usize);
            let in_flight = in_flight.ok_or_else(|| Error::no_queue(queue, open))?;
            if *in_flight >= limit {
                let what = format!("{in_flight} command buffers are already in flight");
                return Err(Error::Limit { what, limit });
            }
            *in_flight += 1;
        }
        let ticket = self.tickets;
        self.tickets += 1;
        self.send(&Request::Commit { queue: queue.0, ticket, at_ns, kernel: *kernel })?;
        Ok(Ticket(ticket))
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        let mut state = self.shared.lock();
        match (self.due(&mut state), &state.lost) {
            (Some(completion), _) => Ok(Some(completion)),
            (None, None) => Ok(None),
            (None, Some(why)) => Err(self.lost(why.clone())),
        }
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Completion>, Error> {
        loop {
            let next = {
                let mut state = self.shared.lock();
                if let Some(completion) = self.due(&mut state) {
                    return Ok(Some(completion));
                }
                match (state.completions.front(), &state.lost) {
                    (Some(coming), _) => Some(coming.observed),
                    (None, Some(why)) => return Err(self.lost(why.clone())),
                    (None, None) if self.now() >= deadline => return Ok(None),
                    // Nothing will ever come.
                    (None, None) if deadline == Instant::FAR_FUTURE && state.is_idle() => {
                        return Ok(None);
                    }
                    (None, None) => {
                        let rest = deadline.since(self.now()).into();
                        drop(self.shared.changed.wait_timeout(state, rest));
                        None
                    }
                }
            };
            // It has ended, and only the host's side of the round trip is left.
            match next {
                Some(observed) if observed <= deadline => self.sleep_until(observed),
                Some(_) => {
                    self.sleep_until(deadline);
                    return Ok(None);
                }
                None => {}
            }
        }
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        let number = self.questions;
        self.questions += 1;
        self.send(&Request::Counters { number })?;
        let answered = |state: &State| matches!(state.counters, Some((n, _)) if n == number);
        let state = self.shared.lock();
        let (mut state, _) = self
            .shared
            .changed
            .wait_timeout_while(state, ANSWER_MAX, |s| s.lost.is_none() && !answered(s))
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        match (state.counters.take(), &state.lost) {
            (Some((n, counters)), _) if n == number => Ok(counters),
            (_, Some(why)) => Err(self.lost(why.clone())),
            _ => Err(self.lost(format!("no answer within {} s", ANSWER_MAX.as_secs()))),
        }
    }
}

impl Drop for SocketBackend {
    fn drop(&mut self) {
        // Ends the reader thread's read; a server that is gone already makes this an error.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// Says hello and reads the device.
fn greet(stream: &mut UnixStream, id: &str) -> Result<(Device, BufReader<UnixStream>), String> {
    let hello = Request::Hello {
        protocol: wire::PROTOCOL.into(),
        version: wire::VERSION,
        client: format!("everwarm {}, process {}", env!("CARGO_PKG_VERSION"), std::process::id()),
    };
    let failed = |error: std::io::Error| format!("its server does not answer: {error}");
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(failed)?;
    stream.set_write_timeout(Some(ANSWER_MAX)).map_err(failed)?;
    stream.write_all(&wire::line(&hello)).map_err(failed)?;
    let mut reader = BufReader::new(stream.try_clone().map_err(failed)?);
    let line = read_line(&mut reader).map_err(failed)?;
    let line = line.ok_or("its server closed the connection without a word")?;
    match wire::parse(&line)? {
        Reply::Hello { version: wire::VERSION, device, .. } => {
            stream.set_read_timeout(None).map_err(failed)?;
            Ok((device.into_device(id), reader))
        }
        Reply::Hello { version, .. } => {
            Err(format!("its server speaks version {version}, this client {}", wire::VERSION))
        }
        Reply::Refused { message } => Err(format!("its server refused: {message}")),
        other => Err(format!("its server answered a hello with {other:?}")),
    }
}

/// The next line, `None` at the end.
fn read_line(reader: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    reader.take(wire::LINE_MAX as u64).read_until(b'\n', &mut line)?;
    Ok((!line.is_empty()).then_some(line))
}

/// The reader thread: takes what the server pushes until either side closes.
fn read_all(mut reader: impl BufRead, shared: &Shared, epoch: Monotonic) {
    crate::wake_promptly();
    let why = loop {
        let line = match read_line(&mut reader) {
            Ok(Some(line)) => line,
            Ok(None) => break "its server closed the connection".to_owned(),
            Err(error) => break format!("can't read from its socket: {error}"),
        };
        let arrived = Monotonic::now();
        let mut state = shared.lock();
        match wire::parse(&line) {
            Ok(Reply::Completed(completed)) => {
                state.completions.push_back(on_base(&completed, epoch, arrived));
            }
            Ok(Reply::Counters { number, counters }) => {
                state.counters = Some((number, counters.into_counters(epoch)));
            }
            Ok(Reply::Refused { message }) => break message,
            Ok(Reply::Hello { .. }) => {}
            Err(error) => break error,
        }
        drop(state);
        shared.changed.notify_all();
    };
    shared.lock().lost = Some(why);
    shared.changed.notify_all();
}

fn on_base(wire: &WireCompletion, epoch: Monotonic, arrived: Monotonic) -> Completion {
    let base = |ns: u64| Monotonic(ns).on_base(epoch);
    Completion {
        ticket: Ticket(wire.ticket),
        queue: Queue(wire.queue),
        committed: base(wire.committed_ns),
        gpu_start: base(wire.gpu_start_ns),
        gpu_end: base(wire.gpu_end_ns),
        observed: base(wire.observed_ns),
        pstate: Some(PState(wire.pstate)),
        clock: None,
        late: Some(arrived.since(Monotonic(wire.observed_ns)).max(Span::ns(wire.late_ns))),
    }
}
