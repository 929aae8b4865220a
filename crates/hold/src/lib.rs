//! Carries out what a governor asks for, on one device, from one thread.
//!
//! A [`Warmer`] owns a thread with a backend handle: events go in through a channel that never
//! blocks, kernels go to the device, a [`Status`] can be read at any time. Whatever happens to the
//! device (it can't be opened, it goes away) is a state, never the caller's error; opening is tried
//! again with growing pauses. Dropping the warmer ends the hold: a hold is a guard.
//!
//! What the machine tells of battery, heat and modes ends a hold, if a warmer is given [`Surroundings`].
//!
//! Guards end with their owner: [`on_parent_exit`] watches a parent, [`end_child`] ends a child.
//!
//! By the wall clock only; [`virtually`] runs a hold on a device that lives in virtual time. It
//! knows no request, no policy and no tokio.

#![forbid(unsafe_code)]

mod child;
mod engine;
mod mailbox;
mod parent;
mod power;
mod pump;
mod status;
mod sync;
mod virtually;
mod warmer;

pub use child::{child_ended_within, end_child};
pub use parent::on_parent_exit;
pub use power::{Surroundings, must_save};
pub use pump::{Prewarm, Shape};
pub use status::{Counters, Energy, LastPrewarm, State, Status, Warm};
pub use virtually::{Summary, virtually};
pub use warmer::{Config, Handle, Warmer};
