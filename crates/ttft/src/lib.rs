//! Time to first token, measured at an HTTP client in interleaved conditions.
//!
//! A [`Plan`] says which conditions, prompt lengths and rounds; a [`Bench`] carries it out against a
//! server (directly or through the proxy) and keeps every [`Sample`], the spoilt ones with a label;
//! [`Results`] turns samples into rows: medians with bootstrap intervals, and the share of the
//! idle penalty that each condition removes.
//!
//! TTFT here runs from just before the client connects (or, on a kept connection, sends) to the
//! read of the socket that brought the first non-empty content: what a user waits. The clock is
//! the one all processes share, so that stamps of server and proxy can be set beside it.
//!
//! One thread does all of it, HTTP on a small runtime of its own and the GPU between the requests.
//! It knows no policy: it asks the proxy for one by name.

#![forbid(unsafe_code)]

mod admin;
mod bench;
mod client;
mod gpu;
mod hold;
mod plan;
mod prompt;
mod results;
mod sample;
mod stamp;
mod table;
mod target;

pub use bench::{Bench, Config, Progress};
pub use plan::{Condition, Plan, Step};
pub use prompt::Prompts;
pub use results::{Estimate, Lateness, Results, Row};
pub use sample::{Label, Sample};
pub use table::table;
pub use target::Target;

/// Why a bench could not go on. A fault of a single sample is a label, not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An address that is none.
    #[error("{0}")]
    Address(String),
    /// A plan that can't be carried out.
    #[error("{0}")]
    Plan(String),
    /// The server (or the proxy) did not do what was asked.
    #[error("{0}")]
    Server(String),
    /// The proxy's admin port did not do what was asked.
    #[error("{0}")]
    Admin(String),
    /// The device.
    #[error(transparent)]
    Device(#[from] everwarm_gpu::Error),
    /// The process that holds the GPU warm.
    #[error("{0}")]
    Hold(String),
    /// The operating system.
    #[error("can't start an event loop: {0}")]
    Runtime(std::io::Error),
}
