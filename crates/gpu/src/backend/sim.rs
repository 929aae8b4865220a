//! A simulated GPU in virtual time: `sim:m2`, or `sim:FILE.toml` with a chip of one's own.
//!
//! The handle owns its machine, so nothing else runs on it. Time passes only where the caller
//! sleeps or waits; a commit costs no host time by itself (host programs say what theirs costs).
//! `sim:SOCKET` leads to a machine in another process and by the wall clock, see `socket.rs`.

use super::{Entry, Found, socket};
use crate::{Backend, Completion, Counters, Device, Error, Queue, Telemetry, Ticket};
use everwarm_dvfs::{Chip, Traced};
use everwarm_sim::{BufferId, Machine, QueueId};
use everwarm_units::{Instant, PState};
use everwarm_workload::Kernel;
use std::path::Path;

/// Command buffers that may be in flight in one queue.
///
/// Source: Metal's default for a command queue, `maxCommandBufferCount`.
const IN_FLIGHT_MAX: usize = 64;

/// Queues of one handle. Source: guess; Metal documents no limit, a runaway caller needs one.
const QUEUES_MAX: usize = 256;

/// The line in the table of backends.
pub const ENTRY: Entry = Entry {
    prefix: "sim",
    about: "a simulated GPU: sim:m2 (a built-in chip), sim:FILE.toml (a chip file), \
            sim:SOCKET (one that `everwarm sim-server` shares)",
    hardware: false,
    open,
    watch,
    list,
};

fn list() -> Vec<Found> {
    let names = Chip::names().into_iter();
    let found = |name: &str| {
        let id = format!("sim:{name}");
        match Chip::built_in(name) {
            Ok(chip) => Found::usable(id, format!("{}, simulated", chip.name)),
            Err(error) => Found::unusable(id, error.to_string()),
        }
    };
    names.map(found).collect()
}

fn open(id: &str) -> Result<Box<dyn Backend>, Error> {
    let rest = super::rest(id);
    if is_socket(rest) {
        return socket::open(id, rest);
    }
    Ok(Box::new(Sim::new(id, chip(id, rest)?.chip)))
}

/// A shared machine tells every client; one in virtual time has nobody else who could use it.
fn watch(id: &str) -> Result<Box<dyn Telemetry>, Error> {
    let rest = super::rest(id);
    if !is_socket(rest) {
        chip(id, rest)?;
        return super::unwatched(id, "nothing runs on it but what its own handle starts");
    }
    Ok(Box::new(Shared(socket::open(id, rest)?)))
}

/// A client of a shared machine that runs nothing.
struct Shared(Box<dyn Backend>);

impl Telemetry for Shared {
    fn read(&mut self) -> Result<Counters, Error> {
        self.0.counters()
    }
}

/// A machine with `chip`, which no id names.
pub(super) fn with_chip(chip: Chip) -> Box<dyn Backend> {
    let id = format!("sim:{}", chip.id);
    Box::new(Sim::new(&id, chip))
}

/// The chip of the device `id`, if it is one in virtual time.
pub(super) fn chip_of(id: &str) -> Result<Traced, Error> {
    match id.split_once(':') {
        Some(("sim", rest)) if !is_socket(rest) => chip(id, rest),
        _ => {
            let why = "expected a chip to simulate, such as sim:m2 or sim:FILE.toml".to_owned();
            Err(Error::NoDevice { id: id.to_owned(), why })
        }
    }
}

/// A path that is a socket, or could only be meant as one.
pub(super) fn is_socket(rest: &str) -> bool {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::metadata(rest) {
        Ok(meta) => meta.file_type().is_socket(),
        Err(_) => rest.contains('/') && !rest.ends_with(".toml"),
    }
}

/// The built-in chip of that name, or the one in that file.
fn chip(id: &str, rest: &str) -> Result<Traced, Error> {
    let no = |why: String| Error::NoDevice { id: id.to_owned(), why };
    if rest.ends_with(".toml") {
        let text = chip_file(Path::new(rest)).map_err(no)?;
        return Traced::from_toml(rest, &text, &beside).map_err(|error| no(error.to_string()));
    }
    Traced::built_in(rest).map_err(|error| {
        no(format!("{error}; a chip file is written sim:FILE.toml, a shared device sim:SOCKET"))
    })
}

/// Finds the chip file that another one is like: a path from where that one lies.
fn beside(from: &str, wanted: &str) -> Result<(String, String), String> {
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let path = folder.join(wanted);
    let text = chip_file(&path)?;
    Ok((path.display().to_string(), text))
}

fn chip_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    std::fs::read_to_string(path)
        .map_err(|error| format!("the chip file `{shown}` can't be read: {error}"))
}

/// One machine and the queues this handle has opened on it.
struct Sim {
    machine: Machine,
    device: Device,
    queues: Vec<Lane>,
}

/// A queue and how many of its buffers are in flight.
struct Lane {
    id: QueueId,
    in_flight: usize,
}

impl Sim {
    fn new(id: &str, chip: Chip) -> Self {
        let (name, pstates) = (chip.name.clone(), chip.clocks());
        let machine = Machine::new(chip);
        let device = Device {
            id: id.to_owned(),
            name,
            simulated: true,
            virtual_time: true,
            pstates: Some(pstates),
            in_flight_max: IN_FLIGHT_MAX,
            fma_iterations_per_ms: fma_rate(&machine, Kernel::FMA_THREADS),
            fma_iterations_per_ms_group: fma_rate(&machine, Kernel::GROUP_THREADS),
            facts: Vec::new(),
        };
        Sim { machine, device, queues: Vec::new() }
    }

    /// The handle's own view of a completion, which leaves the flight here.
    fn landed(&mut self, c: everwarm_sim::Completion) -> Completion {
        let index = self.queues.iter().position(|lane| lane.id == c.queue);
        let index = index.expect("the machine serves this handle alone");
        self.queues[index].in_flight -= 1;
        let BufferId(number) = c.buffer;
        Completion {
            ticket: Ticket(number),
            queue: Queue(index as u32),
            committed: c.committed,
            gpu_start: c.gpu_start,
            gpu_end: c.gpu_end,
            observed: c.observed,
            pstate: Some(c.pstate),
            clock: None,
            late: None,
        }
    }
}

/// Iterations of the FMA chain in one millisecond at the top clock, without the fixed cost of a
/// command buffer: the slope between two lengths.
fn fma_rate(machine: &Machine, threads: u32) -> f64 {
    let ms =
        |iterations| machine.execution(&Kernel::Fma { iterations, threads }, machine.top()).as_ms();
    1_000_000.0 / (ms(2_000_000) - ms(1_000_000))
}

impl Backend for Sim {
    fn device(&self) -> &Device {
        &self.device
    }

    fn now(&self) -> Instant {
        self.machine.now()
    }

    fn sleep_until(&mut self, deadline: Instant) {
        let now = self.machine.now();
        self.machine.advance(deadline.max(now));
    }

    fn queue(&mut self) -> Result<Queue, Error> {
        if self.queues.len() == QUEUES_MAX {
            let what = format!("{QUEUES_MAX} queues are already open");
            return Err(Error::Limit { what, limit: QUEUES_MAX });
        }
        let id = self.machine.open_queue();
        self.queues.push(Lane { id, in_flight: 0 });
        Ok(Queue(self.queues.len() as u32 - 1))
    }

    fn commit(&mut self, queue: Queue, kernel: &Kernel) -> Result<Ticket, Error> {
        let now = self.machine.now();
        let open = self.queues.len();
        let lane = self.queues.get_mut(queue.0 as usize);
        let lane = lane.ok_or_else(|| Error::no_queue(queue, open))?;
        if lane.in_flight == IN_FLIGHT_MAX {
            let what = format!("{IN_FLIGHT_MAX} command buffers are already in flight");
            return Err(Error::Limit { what, limit: IN_FLIGHT_MAX });
        }
        lane.in_flight += 1;
        let BufferId(number) = self.machine.commit(now, lane.id, kernel);
        Ok(Ticket(number))
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        let completion = self.machine.poll();
        Ok(completion.map(|c| self.landed(c)))
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Completion>, Error> {
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(Some(completion));
            }
            let now = self.machine.now();
            if now >= deadline {
                return Ok(None);
            }
            match self.machine.next_event() {
                Some(event) if event <= deadline => self.machine.advance(event.max(now)),
                // Nothing will ever come: stay here rather than jump to the end of time.
                None if deadline == Instant::FAR_FUTURE => return Ok(None),
                _ => self.machine.advance(deadline),
            }
        }
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        let counters = self.machine.counters();
        let powered = counters.pstate != PState::OFF;
        let clock = powered.then(|| self.machine.chip().clock(counters.pstate));
        Ok(Counters {
            at: counters.at,
            residency: Some(counters.residency),
            gpu_energy: Some(counters.gpu_energy),
            cpu_energy: Some(counters.cpu_energy),
            pstate: Some(counters.pstate),
            clock,
            busy: Some(counters.busy.share_of(counters.at.since(Instant::ZERO))),
            ..Counters::default()
        })
    }

    fn pin(&mut self, pstate: Option<PState>) -> Result<(), Error> {
        if let Some(p) = pstate
            && (p == PState::OFF || p > self.machine.top())
        {
            let what = format!("at {p}; its p-states are P1 to {}", self.machine.top());
            return Err(Error::Unsupported { device: self.device.id.clone(), what });
        }
        self.machine.pin(pstate);
        Ok(())
    }
}
