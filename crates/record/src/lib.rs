//! The schema of a run, to and from bytes.
//!
//! A run is a [`Manifest`] and the records made under it: [`Dispatch`]es, [`Telemetry`],
//! [`Request`]s and [`Mark`]s, in the order in which they happened to be written. It is kept as
//! JSON Lines ([`Writer`], [`Reader`]) or, behind the feature `parquet`, as one table a kind.
//!
//! Contract: field names carry their unit as a bare suffix (`gap_ns`, `gpu_energy_j`), `null` is
//! "unknown" and never 0. A field never changes its meaning; a new meaning gets a new name, so a
//! reader may skip what it does not know: fields and whole kinds of newer versions are tolerated.
//! Equal records give equal bytes. Times are nanoseconds since the start of the run.
//!
//! Beside runs there is [`traffic`]: what requests a server had, one line each.
//!
//! It reads no clock and opens no file: the caller passes the wall time in and the bytes on.

#![forbid(unsafe_code)]

#[cfg(test)]
mod example;
pub mod gzip;
mod json_lines;
mod manifest;
#[cfg(feature = "parquet")]
pub mod parquet;
mod rows;
mod run;
pub mod traffic;

pub use json_lines::{Error, Reader, Truncated, Writer};
pub use manifest::{Manifest, Scenario, SelfTest};
pub use rows::{Dispatch, Mark, Record, Request, Telemetry};
pub use run::Run;

/// The version of the schema that this crate writes.
pub const SCHEMA: u32 = 1;
