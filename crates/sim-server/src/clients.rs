//! Processes that share the GPU through the socket: their queues, buffers and last words.
//!
//! Everything here runs on the engine's thread and never blocks: a client that does not read what
//! it is sent, or that breaks the protocol, is told why (as far as it listens) and dropped, and
//! its queues with it. Other clients notice nothing.

use everwarm_gpu::Monotonic;
use everwarm_gpu::wire::{self, Reply, Request, WireCompletion, WireCounters, WireDevice};
use everwarm_sim::{BufferId, Completion, Counters, Machine, QueueId};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;
use rustix::net::SendFlags;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;

/// The longest command buffer, at the top clock: whoever commits one that never ends would take the
/// GPU from all others for ever. Source: guess; drivers kill a buffer after seconds.
const KERNEL_MAX: Span = Span::s(60);

/// A connection, for as long as the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(pub u64);

/// All clients that have said hello.
pub(crate) struct Clients {
    epoch: Monotonic,
    device: WireDevice,
    clients: HashMap<ClientId, Client>,
    buffers: HashMap<BufferId, Buffer>,
}

struct Client {
    stream: UnixStream,
    queues: Vec<Lane>,
    opened: Counters,
}

impl Drop for Client {
    fn drop(&mut self) {
        // Its reader thread holds the connection too, and only reads: this ends both.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

struct Lane {
    id: QueueId,
    in_flight: usize,
}

struct Buffer {
    client: ClientId,
    queue: u32,
    ticket: u64,
    late: Span,
}

impl Clients {
    pub(crate) fn new(epoch: Monotonic, device: WireDevice) -> Self {
        Clients { epoch, device, clients: HashMap::new(), buffers: HashMap::new() }
    }

    /// A client whose hello was right.
    pub(crate) fn attach(&mut self, id: ClientId, stream: UnixStream, machine: &Machine) {
        let hello = Reply::Hello {
            protocol: wire::PROTOCOL.into(),
            version: wire::VERSION,
            epoch_ns: self.epoch.0,
            device: self.device.clone(),
        };
        let client = Client { stream, queues: Vec::new(), opened: machine.counters() };
        if client.send(&hello) {
            self.clients.insert(id, client);
        }
    }

    /// A client that has gone: its queues are closed, and what it had not begun is dropped.
    pub(crate) fn detach(&mut self, id: ClientId, machine: &mut Machine) {
        let Some(client) = self.clients.remove(&id) else { return };
        self.buffers.retain(|_, buffer| buffer.client != id);
        for lane in &client.queues {
            machine.close_queue(lane.id);
        }
    }

    /// Tells a client what it did wrong and drops it.
    pub(crate) fn refuse(&mut self, id: ClientId, message: String, machine: &mut Machine) {
        if let Some(client) = self.clients.get(&id) {
            client.send(&Reply::Refused { message });
        }
        self.detach(id, machine);
    }

    /// Carries out a request that arrived at the machine's present.
    pub(crate) fn request(
        &mut self,
        id: ClientId,
        request: Request,
        late: Span,
        machine: &mut Machine,
    ) {
        if !self.clients.contains_key(&id) {
            return; // It was dropped while this was on its way.
        }
        let done = match request {
            Request::Hello { .. } => Err("a second hello; expected a queue or a commit".into()),
            Request::OpenQueue { queue } => self.open_queue(id, queue, machine),
            Request::Commit { queue, ticket, kernel, .. } => {
                let buffer = Buffer { client: id, queue, ticket, late };
                self.commit(buffer, &kernel, machine)
            }
            Request::Counters { number } => self.counters(id, number, machine),
        };
        if let Err(message) = done {
            self.refuse(id, message, machine);
        }
    }

    /// Hands a completion to whom it belongs; false if it is no client's.
    pub(crate) fn on_completion(&mut self, c: &Completion, machine: &mut Machine) -> bool {
        let Some(buffer) = self.buffers.remove(&c.buffer) else { return false };
        let client = self.clients.get_mut(&buffer.client).expect("buffers are of live clients");
        client.queues[buffer.queue as usize].in_flight -= 1;
        let ns = |instant: Instant| self.epoch.at(instant).0;
        let sent = client.send(&Reply::Completed(WireCompletion {
            ticket: buffer.ticket,
            queue: buffer.queue,
            committed_ns: ns(c.committed),
            gpu_start_ns: ns(c.gpu_start),
            gpu_end_ns: ns(c.gpu_end),
            observed_ns: ns(c.observed),
            pstate: c.pstate.0,
            late_ns: buffer.late.as_nanos(),
        }));
        if !sent {
            self.detach(buffer.client, machine);
        }
        true
    }

    fn open_queue(&mut self, id: ClientId, queue: u32, m: &mut Machine) -> Result<(), String> {
        let lanes = &mut self.clients.get_mut(&id).expect("checked by the caller").queues;
        let expected = lanes.len() as u32;
        if queue != expected {
            return Err(format!("queue {queue} can't be opened; expected {expected}"));
        }
        if queue >= wire::QUEUES_MAX {
            return Err(format!("{queue} queues are open; the limit is {}", wire::QUEUES_MAX));
        }
        lanes.push(Lane { id: m.open_queue(), in_flight: 0 });
        Ok(())
    }

    fn commit(&mut self, buffer: Buffer, kernel: &Kernel, m: &mut Machine) -> Result<(), String> {
        let (limit, queue) = (self.device.in_flight_max, buffer.queue);
        let lanes = &mut self.clients.get_mut(&buffer.client).expect("checked").queues;
        let open = lanes.len();
        let lane = lanes
            .get_mut(queue as usize)
            .ok_or_else(|| format!("queue {queue} is not open; {open} are"))?;
        if lane.in_flight >= limit {
            return Err(format!("{limit} command buffers are in flight in queue {queue}"));
        }
        if let Kernel::Modelled { flops, bytes, resident } = *kernel
            && !(flops >= 0.0 && bytes >= 0.0 && resident >= 0.0)
        {
            return Err(format!("{kernel:?} has a negative cost"));
        }
        let span = m.execution(kernel, m.top()).max(m.wiring(kernel));
        if span > KERNEL_MAX {
            return Err(format!("{kernel:?} would run for {span:.0}; the limit is {KERNEL_MAX}"));
        }
        lane.in_flight += 1;
        let id = m.commit(m.now(), lane.id, kernel);
        self.buffers.insert(id, buffer);
        Ok(())
    }

    fn counters(&mut self, id: ClientId, number: u64, m: &Machine) -> Result<(), String> {
        let client = &self.clients[&id];
        let counters = since(&client.opened, &m.counters(), self.epoch, &self.device);
        match client.send(&Reply::Counters { number, counters }) {
            true => Ok(()),
            false => Err("it does not read".into()),
        }
    }
}

impl Client {
    /// Sends one line without ever blocking; false if the client does not keep up or has gone.
    ///
    /// A socket's buffer holds some thousand lines, so one that is full belongs to a client that
    /// has stopped reading.
    fn send(&self, reply: &Reply) -> bool {
        let line = wire::line(reply);
        // (Rust programs ignore SIGPIPE, so a client that has gone is an error here.)
        let sent = rustix::net::send(&self.stream, &line, SendFlags::DONTWAIT);
        matches!(sent, Ok(n) if n == line.len())
    }
}

/// What passed between two readings of the machine's counters.
fn since(then: &Counters, now: &Counters, epoch: Monotonic, device: &WireDevice) -> WireCounters {
    let residency = now.residency.iter().zip(&then.residency);
    // A gated GPU has no clock.
    let clock_hz = now.pstate.index().checked_sub(1).map(|index| device.pstates_hz[index]);
    WireCounters {
        at_ns: epoch.at(now.at).0,
        residency_ns: residency.map(|(n, t)| n.saturating_sub(*t).as_nanos()).collect(),
        gpu_energy_j: (now.gpu_energy - then.gpu_energy).as_j(),
        cpu_energy_j: (now.cpu_energy - then.cpu_energy).as_j(),
        pstate: now.pstate.0,
        clock_hz,
        busy: now.busy.saturating_sub(then.busy).share_of(now.at.since(then.at)),
    }
}
