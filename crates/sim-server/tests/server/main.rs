//! The server as its clients find it: over HTTP, over its socket, and by the wall clock.

mod api;
mod common;
mod conformance;
mod sharing;
