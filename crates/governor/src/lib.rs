//! When to warm a GPU: policies as state machines, under limits that no policy can break.
//!
//! A [`Policy`] sees what happens around requests and wishes for a kernel now or a hold until some
//! instant. The [`Governor`] alone turns wishes into [`Action`]s, and keeps what holds for every
//! policy: nothing is begun while a request runs, nothing above the energy cap, nothing without
//! power or a working device, and no hold outlives the instant it was wished for.
//!
//! Contract: after creation and after each [`Governor::on_event`], or after several that happened
//! before one could act, drain [`Governor::poll`] until it returns [`Action::WaitUntil`] or
//! [`Action::WaitForEvent`]; call it again at that instant or after the next event. Instants never go back. Time is an argument: nothing here reads a clock,
//! and nothing here knows a device.
//!
//! A policy is one file in `policy/` and one line in [`POLICIES`]; the property tests walk the
//! table.

#![forbid(unsafe_code)]

mod action;
mod budget;
mod costs;
mod event;
mod expectation;
mod governor;
mod policy;
mod shadow;

pub use action::{Action, Reason};
pub use budget::Budget;
pub use costs::{Costs, Penalty, Price};
pub use event::{Ending, Event, HintSource, Session};
pub use governor::{Config, Governor, Phase};
pub use policy::{Entry, Outlook, POLICIES, Params, Policy, Traffic, UnknownPolicy, Wish, policy};
