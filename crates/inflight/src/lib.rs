//! Keeps a GPU's queue from running empty: how many command buffers to commit ahead, and how large.
//!
//! Some GPUs take an empty queue for the end of the work: on an Apple M2 a queue that is empty for
//! more than about 0.5 ms between two command buffers is never raised above 444 of 1398 MHz,
//! however busy the GPU is in between (source: study 1). A host that waits for each buffer before
//! it encodes the next one is 0.3 ms and its own encode time away from that edge, always. The cure
//! is old: commit ahead. How far ahead depends on how long encoding takes and how long a buffer
//! runs, on this machine and today, so it is measured here while the work runs.
//!
//! An [`InFlight`] is a state machine that owns no clock, no queue and no thread. The caller hands
//! it requests as a number of *units*, the smallest pieces that it could encode on their own (a
//! layer, a tile, a slice of a prompt); it answers with [`Chunk`]s to encode, each one command
//! buffer, and is told of commits and completions.
//!
//! Contract: after creation and after each [`InFlight::submit`], [`InFlight::on_commit`],
//! [`InFlight::on_completion`] and [`InFlight::cancel`], call [`InFlight::poll`] and carry out what
//! it says. Buffers run and are reported in commit order. Instants are on one clock and never go
//! back. [`turn`] does all that for a [`Queue`].
//!
//! What is bounded, whatever happens: buffers in flight ([`Limits::in_flight_max`]), requests that
//! wait ([`Limits::requests_max`]), and memory (nothing grows with the work done). GPU time in
//! flight is kept under [`Limits::latency_max`], by the longest kernels seen lately. What can't be
//! had is said: [`InFlight::verdict`] tells of a host that is too slow, why, and by how much.
//!
//! ```
//! use everwarm_inflight::{Action, Done, InFlight, Limits};
//! use everwarm_units::{Instant, Span};
//!
//! let mut ahead = InFlight::new(Limits { chunk_max: 4, ..Limits::for_gap(Span::us(500)) });
//! let (mut now, mut gpu_free, mut running) = (Instant::ZERO, Instant::ZERO, vec![]);
//! let request = ahead.submit(100).unwrap();
//! loop {
//!     match ahead.poll(now) {
//!         Action::Encode(chunk) => {
//!             now += Span::us(200); // encoding `chunk.units` of `chunk.request`
//!             let gpu_start = gpu_free.max(now + Span::us(150));
//!             gpu_free = gpu_start + Span::us(580) * u64::from(chunk.units);
//!             running.push((gpu_start, gpu_free));
//!             ahead.on_commit(now);
//!         }
//!         Action::WaitForCompletion => {
//!             let gpu = running.remove(0);
//!             now = now.max(gpu.1 + Span::us(150));
//!             let landed = ahead.on_completion(Done { observed: now, gpu: Some(gpu) });
//!             assert_eq!(landed.chunk.request, request);
//!         }
//!         Action::WaitForRequest => break,
//!     }
//! }
//! assert!(ahead.plan().in_flight >= 2);
//! ```

#![forbid(unsafe_code)]

mod choose;
mod estimate;
mod limits;
mod machine;
mod queue;
mod verdict;
mod window;

pub use limits::Limits;
pub use machine::{Action, Chunk, Done, Full, InFlight, Landed, Plan, Request};
pub use queue::{Callbacks, Queue, Turn, turn};
pub use verdict::{Shortfall, Verdict, Why};
