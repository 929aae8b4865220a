//! What recorded runs show of a GPU's power management, without knowing the chip.
//!
//! Pure: rows of recorded runs in, findings out. P-states and counters of a record are never looked
//! at, so that a real GPU's runs are read like a simulated one's. It knows no device and runs
//! nothing: who wants to find a model's parameters brings a loss to [`Evolution`].

#![forbid(unsafe_code)]

mod evolution;
mod findings;
mod kernels;
mod path;
mod trace;

pub use evolution::Evolution;
pub use findings::{Finding, Findings, findings};
pub use kernels::Kernels;
pub use trace::{Buffer, Step, steps};
