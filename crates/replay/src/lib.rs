//! A trace of requests against a warming policy: what the first tokens lose, and what warming uses.
//!
//! Pure. A [`Trace`] says when requests come, a [`Device`] what they cost after which idle time, and
//! [`run`] leads the real [`everwarm_governor::Governor`] through it, with the events that the proxy
//! would tell. [`History`] and [`clairvoyant`] are what policies are held against: the best that
//! history alone could have given, and the best that knowing the future could.
//!
//! It knows no GPU and reads no file: a device's figures are measured elsewhere, and a trace's bytes
//! are handed in.

#![forbid(unsafe_code)]

mod agents;
mod azure;
mod device;
mod engine;
mod hindsight;
mod log;
mod outcome;
mod random;
mod trace;

pub use agents::{Agents, agents};
pub use azure::{Error as AzureError, azure};
pub use device::{Device, Prompt};
pub use engine::{Hints, run};
pub use hindsight::{Gap, History, Point, at_energy, clairvoyant, gaps};
pub use log::{Error as LogError, log};
pub use outcome::Outcome;
pub use trace::{Request, Start, Trace};
