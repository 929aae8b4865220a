//! What the tests of the proxy against real servers are made of.
//!
//! A client speaks raw HTTP to `everwarm proxy`; between the proxy and the server stands a
//! [`Relay`] that records both directions. What the client got is held against what the server sent
//! on that very connection, so nothing is assumed about servers. Nothing here uses the proxy's own
//! HTTP library, which would share its mistakes.
//!
//! A crate of its own because its tests need set-up (`cargo xtask setup`), run one at a time, and
//! take the proxy as a program.

#![forbid(unsafe_code)]

mod client;
mod compare;
mod http;
mod process;
mod relay;
mod servers;

pub use client::{Client, reset, send};
pub use compare::{asked_as_given, delivered_as_sent, gone_within, lateness};
pub use http::{Head, Piece, Request, Response, Source};
pub use process::{Guard, free_address};
pub use relay::{Fault, Mark, Recorded, Relay};
pub use servers::{Proxy, Server, llama_server, mlx_server, program, python};
