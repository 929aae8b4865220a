//! Policies: what to wish for, given what happened.

mod always;
mod never;
mod study;

use crate::{Costs, Event, Price};
use everwarm_units::{Instant, Span};

/// What a policy would like, were there no limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wish {
    /// One kernel at once. Asked for once: the policy forgets it when it has said so.
    pub prewarm: bool,
    /// Hold from now until this instant.
    pub hold_until: Option<Instant>,
    /// Ask again at this instant even if nothing happens.
    pub look_again: Option<Instant>,
}

/// What the governor knows of requests, for policies to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Client connections that are open.
    pub connections: u32,
    /// Requests that may make the device work, from their head to their end.
    pub requests: u32,
    /// Those among them that are on their way upstream.
    pub forwarded: u32,
}

/// Decides what to wish for. Events are told after `traffic` has counted them.
pub trait Policy: Send {
    /// Something happened.
    fn on_event(&mut self, now: Instant, event: &Event, traffic: Traffic);

    /// The wish at `now`.
    fn wish(&mut self, now: Instant, traffic: Traffic) -> Wish;
}

/// The parameters that policies share.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// How long after a request another one is expected; 0 = not at all.
    pub hold_for: Span,
    /// What warming costs on the device, and saves.
    pub costs: Costs,
    /// What a saved millisecond is worth.
    pub price: Price,
}

/// A line of [`POLICIES`].
pub struct Entry {
    /// As the user writes it.
    pub name: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// A new one.
    pub make: fn(Params) -> Box<dyn Policy>,
}

/// The policies there are.
pub const POLICIES: &[Entry] = &[
    Entry { name: "study", about: study::ABOUT, make: |p| Box::new(study::Study::new(&p)) },
    Entry { name: "never", about: never::ABOUT, make: |_| Box::new(never::Never) },
    Entry { name: "always", about: always::ABOUT, make: |_| Box::new(always::Always) },
];

/// No policy has that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no policy `{name}`; there are {known}")]
pub struct UnknownPolicy {
    /// As asked.
    pub name: String,
    /// Those there are.
    pub known: String,
}

/// The policy called `name`.
///
/// # Errors
/// [`UnknownPolicy`] lists the ones there are.
pub fn policy(name: &str) -> Result<&'static Entry, UnknownPolicy> {
    POLICIES.iter().find(|entry| entry.name == name).ok_or_else(|| UnknownPolicy {
        name: name.to_owned(),
        known: POLICIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", "),
    })
}
