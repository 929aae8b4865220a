//! What passes through the socket of a shared simulated GPU.
//!
//! One JSON value a line, UTF-8, at most [`LINE_MAX`] bytes with its newline. A client speaks first
//! ([`Request::Hello`]); the server answers [`Reply::Hello`] or [`Reply::Refused`] and closes.
//! After that the client opens queues (it numbers them itself), commits and asks for counters; the
//! server pushes completions as buffers end, and the client hands each out at `observed_ns`. Either
//! side may end it by closing; the server then closes the client's queues.
//!
//! All stamps are CLOCK_MONOTONIC nanoseconds ([`crate::Monotonic`]), so both sides must run on
//! one machine. A commit carries the client's own stamp: what the socket and the scheduler add on
//! the way does not enter the simulation unless the GPU has already passed that point.

use crate::{Counters, Device, Monotonic};
use everwarm_units::{Hertz, Joules, PState, Span};
use everwarm_workload::Kernel;
use serde::{Deserialize, Serialize};

/// The protocol's name, so that neither side takes a stranger for a peer.
pub const PROTOCOL: &str = "everwarm-sim";
/// The version both sides must speak; it changes with any change of meaning.
pub const VERSION: u32 = 1;
/// The longest line. Unit: B, with the newline.
pub const LINE_MAX: usize = 16 * 1024;
/// Queues that one client may open.
pub const QUEUES_MAX: u32 = 64;

/// From a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The first line.
    Hello {
        /// [`PROTOCOL`].
        protocol: String,
        /// [`VERSION`].
        version: u32,
        /// Who it is, for the server's log.
        client: String,
    },
    /// Opens the client's queue number `queue`.
    OpenQueue {
        /// 0, 1, 2 …
        queue: u32,
    },
    /// Commits a command buffer.
    Commit {
        /// An open queue.
        queue: u32,
        /// The client's own number, handed back with the completion.
        ticket: u64,
        /// When the client called. Unit: ns, CLOCK_MONOTONIC.
        at_ns: u64,
        /// The work.
        kernel: Kernel,
    },
    /// Asks for the counters.
    Counters {
        /// Handed back with the answer.
        number: u64,
    },
}

/// From the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The answer to a hello.
    Hello {
        /// [`PROTOCOL`].
        protocol: String,
        /// [`VERSION`].
        version: u32,
        /// Instant 0 of the simulation. Unit: ns, CLOCK_MONOTONIC.
        epoch_ns: u64,
        /// The device.
        device: WireDevice,
    },
    /// A command buffer has ended; a host would observe that at `observed_ns`, a little later.
    Completed(WireCompletion),
    /// The answer to [`Request::Counters`].
    Counters {
        /// As asked.
        number: u64,
        /// Since this client's hello.
        counters: WireCounters,
    },
    /// Something was wrong; the server closes the connection after this line.
    Refused {
        /// What was wrong and what was expected.
        message: String,
    },
}

/// [`crate::Completion`] with all stamps on CLOCK_MONOTONIC. Unit: ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "field for field as in `Completion`")]
pub struct WireCompletion {
    pub ticket: u64,
    pub queue: u32,
    pub committed_ns: u64,
    pub gpu_start_ns: u64,
    pub gpu_end_ns: u64,
    pub observed_ns: u64,
    pub pstate: u8,
    /// By how much the commit entered the simulation after the client's stamp.
    pub late_ns: u64,
}

/// [`Device`] without what only a handle knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "field for field as in `Device`")]
pub struct WireDevice {
    pub name: String,
    pub pstates_hz: Vec<f64>,
    pub in_flight_max: usize,
    pub fma_iterations_per_ms: f64,
    pub fma_iterations_per_ms_group: f64,
}

/// [`Counters`] of a simulated device, which knows all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "field for field as in `Counters`")]
pub struct WireCounters {
    pub at_ns: u64,
    pub residency_ns: Vec<u64>,
    pub gpu_energy_j: f64,
    pub cpu_energy_j: f64,
    pub pstate: u8,
    pub clock_hz: Option<f64>,
    pub busy: f64,
}

impl WireDevice {
    /// The device as the handle `id` shows it.
    pub fn into_device(self, id: &str) -> Device {
        Device {
            id: id.to_owned(),
            name: self.name,
            simulated: true,
            virtual_time: false,
            pstates: Some(self.pstates_hz.into_iter().map(Hertz::hz).collect()),
            in_flight_max: self.in_flight_max,
            fma_iterations_per_ms: self.fma_iterations_per_ms,
            fma_iterations_per_ms_group: self.fma_iterations_per_ms_group,
            facts: Vec::new(),
        }
    }
}

impl WireCounters {
    /// The counters on the time base of a handle that opened at `epoch`.
    pub fn into_counters(self, epoch: Monotonic) -> Counters {
        Counters {
            at: Monotonic(self.at_ns).on_base(epoch),
            residency: Some(self.residency_ns.into_iter().map(Span::ns).collect()),
            gpu_energy: Some(Joules::j(self.gpu_energy_j)),
            cpu_energy: Some(Joules::j(self.cpu_energy_j)),
            pstate: Some(PState(self.pstate)),
            clock: self.clock_hz.map(Hertz::hz),
            busy: Some(self.busy),
            ..Counters::default()
        }
    }
}

/// One line of the protocol, with its newline.
///
/// # Panics
/// Never for the types of this file: they have no map with odd keys, and JSON writes any number
/// (a number that is not finite becomes `null`, which the other side refuses).
pub fn line<T: Serialize>(message: &T) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("protocol types are plain JSON");
    line.push(b'\n');
    line
}

/// Reads one line; the error says what is wrong with it and quotes its beginning.
///
/// # Errors
/// A text for [`Reply::Refused`] or for the log.
pub fn parse<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, String> {
    serde_json::from_slice(line).map_err(|error| {
        let start = String::from_utf8_lossy(&line[..line.len().min(80)]);
        format!("`{}` is not a line of {PROTOCOL} {VERSION}: {error}", start.trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_as_they_were_written() {
        let kernel = Kernel::Modelled { flops: 1.25e11, bytes: 0.1, resident: 1e9 };
        let commit = Request::Commit { queue: 1, ticket: u64::MAX, at_ns: 7, kernel };
        let bytes = line(&commit);
        assert_eq!(bytes.iter().filter(|b| **b == b'\n').count(), 1);
        assert_eq!(parse::<Request>(&bytes).unwrap(), commit);
    }

    #[test]
    fn a_wrong_line_is_quoted() {
        let error = parse::<Request>(b"GET / HTTP/1.1\r\n").unwrap_err();
        assert!(error.starts_with("`GET / HTTP/1.1` is not a line of everwarm-sim 1"), "{error}");
    }
}
