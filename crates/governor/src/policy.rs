//! Policies: what to wish for, given what happened.

mod always;
mod around;
mod learned;
mod never;
mod ski_rental;
mod study;
mod timer;

use crate::{Costs, Event, Price};
use everwarm_units::{Instant, Joules, Span};

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

    /// Warming has used so much more, as far as is known; less than nothing where an estimate was too
    /// high.
    fn on_energy(&mut self, _used: Joules) {}

    /// What it makes of the present.
    fn outlook(&mut self, _now: Instant) -> Outlook {
        Outlook::default()
    }
}

/// What a policy expects, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outlook {
    /// The price that it weighs with: so much energy for a millisecond. `None`: it does not weigh.
    pub price: Option<Joules>,
    /// How likely a request is within each of [`Outlook::WITHIN`], if nothing else happens. Unit: 0
    /// to 1. `None`: it does not expect in numbers, or a request runs.
    pub chances: Option<[f64; Outlook::WITHIN.len()]>,
}

impl Outlook {
    /// The times that chances are given for.
    pub const WITHIN: [Span; 3] = [Span::s(1), Span::s(10), Span::s(60)];
}

/// The parameters that policies share.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// How long after a request another one is expected; 0 = not at all.
    pub hold_for: Span,
    /// The pause of a policy that ticks.
    pub tick: Span,
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
    Entry { name: "learned", about: learned::ABOUT, make: |p| Box::new(learned::Learned::new(&p)) },
    Entry {
        name: "ski-rental",
        about: ski_rental::ABOUT,
        make: |p| Box::new(ski_rental::SkiRental::new(&p)),
    },
    Entry { name: "timer", about: timer::ABOUT, make: |p| Box::new(timer::Timer::new(&p)) },
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
