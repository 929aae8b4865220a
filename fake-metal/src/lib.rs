//! A fake Metal on Linux, for tests of the Metal backend: the unchanged Rust calls end here.
//!
//! Three layers: an Objective-C runtime in its GNUstep form, in which a message is a look-up and a
//! call (`classes`, `objects`, `blocks`, `foundation`); the Metal classes that the backend uses
//! (`device`, `commands`); a GPU that is a thread and a model of time (`gpu`).
//!
//! Contract: what Metal forbids, and a careless backend might do, is a [`rules::Violation`]; nothing
//! is undefined behaviour here that is only wrong there. It proves the Rust side (ownership, blocks,
//! threads, the order of calls, encodings) and those rules of Metal that somebody has written down
//! here, from Apple's public documentation. It says nothing of Apple's compiler, drivers or timing.

pub mod blocks;
pub mod classes;
pub mod commands;
pub mod device;
pub mod foundation;
pub mod gpu;
pub mod msl;
pub mod objects;
pub mod rules;
