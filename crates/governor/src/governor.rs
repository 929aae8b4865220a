//! Turns a policy's wishes into actions, inside limits that hold for every policy.

use crate::policy::{Entry, Outlook, Params, Policy, Traffic, Wish};
use crate::{Action, Budget, Costs, Event, Price, Reason};
use everwarm_units::{Instant, Joules, Span};

/// What a governor is given besides its policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How long after a request another one is expected; 0 = never hold after a request.
    pub hold_for: Span,
    /// The pause between kernels of a policy that ticks.
    pub tick: Span,
    /// What warming may use in any 24 hours.
    pub cap: Joules,
    /// What warming costs on the device, and saves.
    pub costs: Costs,
    /// What a saved millisecond is worth, for policies that weigh.
    pub price: Price,
}

impl Config {
    fn params(&self) -> Params {
        let Config { hold_for, tick, costs, price, .. } = self;
        Params { hold_for: *hold_for, tick: *tick, costs: costs.clone(), price: *price }
    }
}

impl Default for Config {
    /// An M2's figures, a minute after each request, and three hours of holding a day.
    fn default() -> Self {
        Config {
            // A person reads an answer and asks again, an agent comes back sooner. Source: guess.
            hold_for: Span::s(60),
            // An M2 loses nothing within 100 ms and all of it after a second; a loop of pings in a
            // script is seldom faster. Source: guess.
            tick: Span::ms(500),
            cap: Joules::wh(2.0),
            costs: Costs::default(),
            price: Price::default(),
        }
    }
}

/// Where a governor stands, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase {
    /// A hold is on. Until when, if nothing happens: as the policy wishes it.
    Holding(Option<Instant>),
    /// No hold, and why not.
    Resting(Reason),
}

/// See the crate's contract.
pub struct Governor {
    config: Config,
    name: &'static str,
    policy: Box<dyn Policy>,
    traffic: Traffic,
    budget: Budget,
    holding: bool,
    /// Of a hold: the estimate is booked up to here.
    booked: Instant,
    /// Estimated and not yet replaced by a measurement.
    estimated: Joules,
    powered: bool,
    working: bool,
    changed: bool,
    wished_until: Option<Instant>,
}

impl Governor {
    /// A governor that follows the policy of a table line.
    pub fn new(policy: &Entry, config: Config) -> Self {
        Governor {
            name: policy.name,
            policy: (policy.make)(config.params()),
            traffic: Traffic::default(),
            budget: Budget::new(config.cap),
            holding: false,
            booked: Instant::ZERO,
            estimated: Joules::ZERO,
            powered: true,
            working: true,
            changed: false,
            wished_until: None,
            config,
        }
    }

    /// Follows another policy from now on; a hold that is on ends first. Traffic and energy go on.
    pub fn follow(&mut self, policy: &Entry) {
        self.name = policy.name;
        self.policy = (policy.make)(self.config.params());
        self.changed = self.holding;
    }

    /// The policy's name.
    pub fn policy_name(&self) -> &'static str {
        self.name
    }

    /// What is going on.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Used for warming in the last 24 hours, and the cap.
    pub fn energy(&mut self, now: Instant) -> (Joules, Joules) {
        self.book(now);
        (self.budget.used(now), self.budget.cap())
    }

    /// What the policy makes of the present.
    pub fn outlook(&mut self, now: Instant) -> Outlook {
        self.policy.outlook(now)
    }

    /// Where it stands at `now`.
    pub fn phase(&mut self, now: Instant) -> Phase {
        match self.blocked(now) {
            _ if self.holding => Phase::Holding(self.wished_until),
            Some(reason) => Phase::Resting(reason),
            None if self.traffic.forwarded > 0 => Phase::Resting(Reason::RequestRuns),
            None => Phase::Resting(Reason::NotExpected),
        }
    }

    /// Tells it of an event; drain [`Governor::poll`] afterwards.
    pub fn on_event(&mut self, now: Instant, event: Event) {
        self.book(now);
        self.count(&event);
        match event {
            Event::Energy(measured) => {
                let estimated = std::mem::take(&mut self.estimated);
                self.budget.correct(now, estimated, measured);
                self.policy.on_energy(measured - estimated);
            }
            Event::WarmingFailed => self.working = false,
            Event::WarmingRestored => self.working = true,
            Event::PowerLost => self.powered = false,
            Event::PowerRestored => self.powered = true,
            _ => {}
        }
        self.policy.on_event(now, &event, self.traffic);
    }

    /// What warming used since the last report was not measured and never will be: the estimate
    /// stands, and the next [`Event::Energy`] is about what comes after.
    pub fn not_measured(&mut self, now: Instant) {
        self.book(now);
        self.estimated = Joules::ZERO;
    }

    /// The next action at `now`.
    pub fn poll(&mut self, now: Instant) -> Action {
        self.book(now);
        if std::mem::take(&mut self.changed) {
            self.holding = false;
            return Action::Release(Reason::PolicyChanged);
        }
        let wish = self.policy.wish(now, self.traffic);
        self.wished_until = wish.hold_until.filter(|until| *until > now);
        let blocked = self.blocked(now);
        if self.holding {
            if let Some(reason) = blocked.or(self.unwished()) {
                self.holding = false;
                return Action::Release(reason);
            }
        } else if blocked.is_none() && self.traffic.forwarded == 0 {
            if wish.prewarm {
                self.estimate(now, self.config.costs.prewarm_energy);
                return Action::Prewarm;
            }
            if self.wished_until.is_some() {
                self.holding = true;
                return Action::Hold;
            }
        }
        self.wait(now, &wish, blocked)
    }

    fn count(&mut self, event: &Event) {
        let traffic = &mut self.traffic;
        match *event {
            Event::ConnectionAccepted => traffic.connections += 1,
            Event::ConnectionClosed => traffic.connections = traffic.connections.saturating_sub(1),
            Event::RequestHead { work: true } => traffic.requests += 1,
            Event::RequestForwarded { work: true } => {
                traffic.forwarded = (traffic.forwarded + 1).min(traffic.requests);
            }
            Event::ResponseFinished { work: true, .. }
            | Event::ResponseAborted { work: true, .. } => {
                traffic.requests = traffic.requests.saturating_sub(1);
                // One that ends before it was forwarded does not take another one's place: while
                // some wait for their upstream connection the count errs towards resting.
                traffic.forwarded = traffic.forwarded.min(traffic.requests);
            }
            _ => {}
        }
    }

    fn unwished(&self) -> Option<Reason> {
        match self.wished_until {
            Some(_) => None,
            None if self.traffic.forwarded > 0 => Some(Reason::RequestRuns),
            None => Some(Reason::NotExpected),
        }
    }

    fn blocked(&mut self, now: Instant) -> Option<Reason> {
        if !self.working {
            Some(Reason::WarmingFailed)
        } else if !self.powered {
            Some(Reason::PowerLost)
        } else if self.budget.left(now) < self.least() {
            Some(Reason::CapReached)
        } else {
            None
        }
    }

    /// Less than this is nothing left: one kernel, which nothing can take back once submitted.
    fn least(&self) -> Joules {
        self.config.costs.prewarm_energy + self.config.costs.hold_power * Span::ms(1)
    }

    /// Books the estimate of a hold up to `now`.
    fn book(&mut self, now: Instant) {
        let span = now.since(self.booked);
        self.booked = self.booked.max(now);
        if self.holding && !span.is_zero() {
            self.estimate(now, self.config.costs.hold_power * span);
        }
    }

    fn estimate(&mut self, now: Instant, energy: Joules) {
        self.estimated += energy;
        self.policy.on_energy(energy);
        self.budget.spend(now, energy);
    }

    fn wait(&mut self, now: Instant, wish: &Wish, blocked: Option<Reason>) -> Action {
        let mut wake = [None; 3];
        wake[0] = wish.look_again;
        if self.holding {
            wake[1] = self.wished_until;
            wake[2] = Some(now + self.until_cap(now));
        } else if blocked == Some(Reason::CapReached) && self.wished_until.is_some() {
            wake[1] = self.budget.relief();
        }
        match wake.into_iter().flatten().min() {
            Some(Instant::FAR_FUTURE) | None => Action::WaitForEvent,
            // A policy that asks again at once would keep its caller spinning.
            Some(at) => Action::WaitUntil(at.max(now + Span::us(1))),
        }
    }

    /// How long a hold can go on under the cap; a day at most, then it is looked at again.
    fn until_cap(&mut self, now: Instant) -> Span {
        let left = self.budget.left(now) - self.least();
        let seconds = left.as_j() / self.config.costs.hold_power.as_w();
        Span::from_secs(if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, 86_400.0) })
            + Span::us(1)
    }
}
