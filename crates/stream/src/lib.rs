//! What a response stream says while it passes: tokens, their times, and how it ended.
//!
//! A [`Meter`] is fed a copy of the bytes with the instant they were seen, at any split point, and
//! knows the answer's first non-empty content (not the head, not a role, not a comment), the time of
//! every later one, the finish reason, what the answer leaves its client to do ([`Ending`]), the token counts and a server's own error. Proxy and bench
//! share it. It recognises events by their shape, never by a route, and it never changes a byte:
//! what it does not understand it does not count.
//!
//! An [`Asker`] is what a request's body says of whose it is.
//!
//! Memory is bounded: an event larger than [`EVENT_MAX`] is given up (the stream goes on), and at
//! most [`TIMES_MAX`] content times are kept (later ones are counted).

#![forbid(unsafe_code)]

mod asker;
mod content;
mod ending;
mod lines;
mod meter;
mod sse;

pub use asker::{Asker, TEXT_MAX};
pub use content::{Facts, read};
pub use ending::Ending;
pub use lines::{Line, Lines};
pub use meter::{End, Framing, Meter, TIMES_MAX};
pub use sse::{Event, Sse};

/// The largest event that is looked into. Unit: B.
///
/// A content event has some hundred bytes; the last one of llama.cpp some thousand; an image in an
/// event may have millions and is no token.
pub const EVENT_MAX: usize = 1 << 20;
