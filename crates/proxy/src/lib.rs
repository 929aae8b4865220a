//! The drop-in reverse proxy: warms the GPU for the requests that pass through it.
//!
//! Every path and every method goes to one upstream; nothing is answered in its place, nothing is
//! buffered, nothing is re-framed. What passes is only looked at: connections, heads and the end
//! of responses become events for a warmer, response bytes are metered from a copy. Whatever
//! happens to warming, a request never notices.
//!
//! **Invariants** (each held by a test in `tests/`): our head is never sent before the upstream's;
//! a client that leaves takes its upstream connection with it; a response that was cut is never
//! ended properly; status, headers (but hop-by-hop ones, and two that keep event streams from being
//! buffered) and body bytes are the upstream's own.
//!
//! It knows no inference API: paths are not looked at, and token counts come from
//! [`everwarm_stream`]'s reading of shapes.

#![forbid(unsafe_code)]

mod admin;
mod body;
mod client;
mod config;
mod error;
mod events;
mod exchange;
mod forward;
mod headers;
pub mod hint;
mod metrics;
mod pool;
mod protocol;
mod route;
mod server;

pub use config::{Config, Limits, Upstream, UpstreamError};
pub use error::StartError;
pub use server::{Handle, spawn};
