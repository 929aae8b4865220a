//! Why is the first token late on this machine, what helps, and what does that cost?
//!
//! [`examine`] measures a device with a handful of probes, which are scenarios of the lab (`probes/`),
//! in turns and within a budget of time; each of [`causes::CAUSES`] then reads the evidence and finds a
//! cause *seen*, with milliseconds and an interval, *not seen*, with the largest effect that could
//! have been missed, or says why it can't tell here. What could be done about it is tried, with its
//! power, only where something was seen.
//!
//! Measuring (`examine.rs`) and judging (everything else) are apart: a judge sees records, never a
//! device, and gives equal findings for equal records. It knows the device behind a server, not the
//! server: nothing here sends a request.

#![forbid(unsafe_code)]

pub mod causes;
mod diagnosis;
mod effect;
mod evidence;
mod examine;
mod host;
mod instrument;
mod probe;
mod remedies;
mod text;

pub use diagnosis::{Diagnosis, Finding, Row, Verdict};
pub use examine::{Error, Options, Patient, Progress, examine};
pub use host::{Host, PlainHost, Rested};
pub use instrument::Instrument;
pub use remedies::{Trials, Tried};
pub use text::text;
