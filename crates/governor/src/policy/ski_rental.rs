//! Hold until the hold has cost what it could save: the break-even rule of renting and buying.
//!
//! The trade-off. Nobody says when the next request comes. A hold pays by the second, letting go
//! costs a cold start once. Whoever stops renting skis when the rent has reached their price never
//! pays more than twice what the best choice would have been (Karlin, Manasse, Rudolph and Sleator,
//! "Competitive snoopy caching", 1988).
//!
//! The rule. Let `w` be a hold's power, `p` the price, `f(x)` = `p` times the loss after `x` of idle
//! (0 within the grace `d`, never falling), `F` its greatest value. After a request: rest for `d`, hold
//! until `T = d + F/w`, let go. Let `K` be the greatest `w x - f(x)` for `x <= T`: what a rest of the
//! right length could save. If `F <= K`, holds cost more than they save: never hold.
//!
//! The bound. Against an offline optimum that knows the gap `g` and holds from `d` to some `b`, then lets
//! go (or never holds): it pays `m(g)`, the least of `f(g)` and, over `d <= b <= g`, `w (b - d) + f(g - b)`.
//! In every gap this rule pays at most `2 m(g) + 2 K`:
//!
//! * *While it holds* (`g <= T`) it pays `w (g - d)`. With `x = g - b` the optimum pays
//!   `w (g - d) - (w x - f(x)) >= w (g - d) - K`, and resting is `x = g`. So the rule pays at most `m + K`.
//! * *After it let go* (`g > T`) it pays at most `F + F`. The optimum pays at least `F - K`: if its rest `x` is
//!   at most `T`, then `w (g - d) - (w x - f(x)) >= w (T - d) - K = F - K`; if it is longer, then
//!   `f(x) >= f(T) >= w T - K >= F - K`. So the rule pays at most `2 m + 2 K`.
//! * *If it never holds* it pays `f(g) <= F <= K`.
//!
//! With a step for a curve `K` is `w d`, the grace's worth, and the 2 of the classic rule is left. On an
//! M2 at 20 mJ a millisecond `F` is 0.6 J and `K` 0.07 J.
//!
//! An optimum that may also submit a kernel just in time, of energy `e`, never pays more than `e`. Against
//! it the bound is `max(2, 2 F / e)` times its cost, and `2 K`: no rule that does not know the future can
//! do much better, since each gap may end just after it has let go or just before.
//!
//! A request's own head, if it comes to a cold device, buys one kernel more where that is less than
//! `F`. A price per day becomes a price by feedback (`shadow.rs`); the bound then holds in each gap for
//! the price of that gap.

use super::around::{Around, Why};
use super::{Outlook, Params, Policy, Traffic, Wish};
use crate::shadow::Shadow;
use crate::{Costs, Event};
use everwarm_units::{Instant, Joules, Span};

pub(super) const ABOUT: &str =
    "holds after each request until that has cost what a cold start would: never far from the best";

/// Where the search for a price begins: a hold of so long is worth a cold start. Source: guess.
const FIRST_HOLD: Span = Span::s(10);

/// A price at which holds of about [`FIRST_HOLD`] are worth it. Unit: J/ms.
pub(super) fn first_price(costs: &Costs) -> f64 {
    (costs.hold_power * FIRST_HOLD).as_j() / costs.penalty.most().as_ms().max(1e-3)
}

/// A device's figures, for [`BreakEven::after`].
pub(super) struct BreakEven {
    costs: Costs,
    /// The corners of the curve. Unit: s, ms.
    corners: Vec<(f64, f64)>,
}

impl BreakEven {
    pub fn new(costs: &Costs) -> Self {
        let points = costs.penalty.points().iter().map(|(x, _)| *x).chain([costs.grace]);
        let corners = points.map(|x| (x.as_secs(), costs.lost(x).as_ms())).collect();
        BreakEven { costs: costs.clone(), corners }
    }

    /// `T`, at a price in J/ms; `None`: never hold.
    pub fn after(&self, price: f64) -> Option<Span> {
        let power = self.costs.hold_power.as_w();
        let most = price * self.costs.penalty.most().as_ms();
        let until = self.costs.grace + Span::from_secs((most / power).min(1e9));
        let (end, lost) = (until.as_secs(), self.costs.lost(until).as_ms());
        // Between its corners the curve is straight, so that the greatest is at one of them.
        let inner = self.corners.iter().copied().filter(|(x, _)| *x <= end);
        let rest = inner
            .chain([(end, lost)])
            .map(|(x, lost)| power * x - price * lost)
            .fold(0.0, f64::max);
        (most > rest).then_some(until)
    }
}

pub(super) struct SkiRental {
    costs: Costs,
    rule: BreakEven,
    shadow: Shadow,
    around: Around,
}

impl SkiRental {
    pub(super) fn new(params: &Params) -> Self {
        SkiRental {
            costs: params.costs.clone(),
            rule: BreakEven::new(&params.costs),
            shadow: Shadow::new(params.price, first_price(&params.costs)),
            around: Around::new(params.costs.grace),
        }
    }
}

impl Policy for SkiRental {
    fn on_event(&mut self, now: Instant, event: &Event, traffic: Traffic) {
        if matches!(event, Event::RequestHead { work: true }) && traffic.requests == 1 {
            self.shadow.on_gap(now);
        }
        let price = self.shadow.per_ms();
        let ended = self.around.on_request(now, event, traffic);
        if price * self.costs.penalty.most().as_ms() < self.costs.prewarm_energy.as_j() {
            self.around.withdraw(Why::Arrival);
        }
        if let Some(until) = ended.then(|| self.rule.after(price)).flatten() {
            self.around.add(Why::After, now + self.costs.grace, now + until, false);
        }
    }

    fn wish(&mut self, now: Instant, _traffic: Traffic) -> Wish {
        self.around.wish(now)
    }

    fn on_energy(&mut self, used: Joules) {
        self.shadow.on_energy(used);
    }

    fn outlook(&mut self, _now: Instant) -> Outlook {
        Outlook { price: Some(Joules::j(self.shadow.per_ms())), chances: None }
    }
}
