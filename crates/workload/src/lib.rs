//! What is submitted to a GPU: kernels, and the host programs that submit them.
//!
//! A [`Kernel`] describes one command buffer's work in the device's own terms, so that the same
//! scenario runs on a simulated and on a real GPU. A [`Program`] is what a host thread does: it
//! works or sleeps, commits kernels and waits for them. A [`Host`] steps a program as a state
//! machine: time is an argument, and the caller owns the device, so that one program runs in
//! virtual time on a simulator and by the wall clock on hardware.
//!
//! A [`Runtime`] makes such programs from a transformer's shape ([`Model`]): prefill and decode
//! as command buffers of so many operations and bytes.
//!
//! It knows no device, no experiment and no policy.

#![forbid(unsafe_code)]

mod host;
mod kernel;
mod model;
mod runtime;
mod transformer;

pub use host::{Action, Host, Op, Program, Seen};
pub use kernel::Kernel;
pub use model::Model;
pub use runtime::{Error, Head, Phase, Runtime, Serving};
pub use transformer::Transformer;
