//! Warm while a request is likely enough for what it would lose.
//!
//! The trade-off. A hold of `dt` at elapsed time `t` costs `w dt`; it saves `p F` if a request comes in
//! it, `p` being the price and `F` the loss. So it is worth its energy where the hazard of the next arrival
//! is above `w / (p F)`, wherever that is: after tool calls within the seconds that tools take, around
//! the minute of somebody's cron job and not before, or nowhere.
//!
//! The rule. The hazard is learned (`expectation.rs`): by session and by how answers end, with signs and
//! hints for what they have proved to be worth. At the end of work, and at each sign after it, the best
//! set of windows is found exactly (`plan.rs`), from then on and for the whole curve of the loss, and
//! followed until the next event: nothing is computed when it is polled. A price per day becomes a price
//! (`shadow.rs`) around an anchor: the price whose plans would use the allotment, given the gaps so far.
//! Around a request it does as every policy does (`around.rs`), where a kernel is worth its energy.
//!
//! The bound. What it learned may be wrong. So two accounts are kept, at the price of each gap and in
//! units of that gap's `F`: what this policy has cost (holds and losses), `L`, and what `ski-rental`
//! would have cost, `S`. With the tolerance `c` = [`TOLERANCE`] and the credit `C` = [`CREDIT`]:
//!
//! * Once `L - (1 + c) S >= C`, it holds as `ski-rental` does, until that is no longer so.
//! * Before that, a gap's holds are cut off when their energy exceeds `(1 + c)` times that of
//!   `ski-rental`'s hold by what is left of the credit, at least by one `F`.
//!
//! In a gap that it follows `ski-rental` in, `L` grows as `S` does. In another one that ends while
//! `ski-rental` holds, it has held no longer than that; in one that goes on, its holds exceed `(1 + c)` times
//! those of `ski-rental` by what is left of the credit, or by one `F`. Its loss is at most one `F`. So after
//! any number of gaps `L <= (1 + c) S + C + 2`, in units of `F`, where `S` itself is at most twice the optimum
//! and `2 K` a gap. The account forgets a lead of more than `C`, so that the same holds from any gap on,
//! with `2 C`: no past success pays for a later failure.
//!
//! Not in these accounts: kernels around a request and what the governor's limits take away.

mod plan;

use super::around::{Around, Why};
use super::ski_rental::{BreakEven, first_price};
use super::{Outlook, Params, Policy, Traffic, Wish};
use crate::expectation::{BINS, Expectation, Hazard, chance};
use crate::shadow::Shadow;
use crate::{Costs, Event, Price};
use everwarm_units::{Instant, Joules, Span};
use plan::{Curve, Plan};

pub(super) const ABOUT: &str =
    "learns when requests come, and holds when one is likely enough for the price";

/// So much worse than `ski-rental`, in the long run, before that is followed. Source: guess.
const TOLERANCE: f64 = 0.1;
/// So many cold starts more than that may be lost to learning. Source: guess: as many as a session of
/// a person has requests.
const CREDIT: f64 = 20.0;
/// The search for an anchor: the first and last price, and steps between. Unit: J/ms.
const PRICES: (f64, f64) = (1e-5, 1e3);
const STEPS: u32 = 12;

pub(super) struct Learned {
    costs: Costs,
    rule: BreakEven,
    curve: Curve,
    expectation: Expectation,
    hazard: Hazard,
    around: Around,
    given: Price,
    shadow: Shadow,
    /// Gaps so far, and the count at which the anchor is next looked for.
    gaps: u64,
    anchor_at: u64,
    /// Of the present gap.
    price: f64,
    ski: Option<Span>,
    windows: Vec<(Instant, Instant)>,
    held: Held,
    /// `L - (1 + c) S`. Unit: `F`.
    account: f64,
}

/// What was held in the present gap.
#[derive(Clone, Copy, Default)]
struct Held {
    time: Span,
    /// Until when; before that until when work ran.
    last: Instant,
}

impl Held {
    /// Counts windows up to `now`.
    fn count(&mut self, windows: &[(Instant, Instant)], now: Instant) {
        for (from, until) in windows.iter().filter(|(from, _)| *from < now) {
            let (from, until) = ((*from).max(self.last), (*until).min(now));
            if until > from {
                self.time += until.since(from);
                self.last = until;
            }
        }
    }
}

impl Learned {
    pub(super) fn new(params: &Params) -> Self {
        let costs = params.costs.clone();
        Learned {
            rule: BreakEven::new(&costs),
            curve: Curve::new(&costs),
            expectation: Expectation::new(),
            hazard: [0.0; BINS],
            around: Around::new(costs.grace),
            given: params.price,
            shadow: Shadow::new(params.price, first_price(&costs)),
            gaps: 0,
            anchor_at: 1,
            price: 0.0,
            ski: None,
            windows: Vec::new(),
            held: Held::default(),
            account: 0.0,
            costs,
        }
    }

    /// `F`. Unit: J.
    fn most(&self) -> f64 {
        self.price * self.costs.penalty.most().as_ms()
    }

    fn hold(&self, time: Span) -> f64 {
        (self.costs.hold_power * time).as_j()
    }

    /// Work has ended: a gap begins.
    fn gap_begins(&mut self, now: Instant) {
        if self.gaps >= self.anchor_at {
            self.anchor();
            self.anchor_at = self.gaps + (self.gaps / 8).clamp(1, 128);
        }
        self.price = self.shadow.per_ms();
        self.ski = self.rule.after(self.price);
        self.held = Held { time: Span::ZERO, last: now };
        self.windows.clear();
        self.plan(now, now);
    }

    /// Windows from now on, in the gap that began at `since`.
    fn plan(&mut self, now: Instant, since: Instant) {
        self.held.count(&self.windows, now);
        let ski = self.ski.map_or(Span::ZERO, |until| until.saturating_sub(self.costs.grace));
        if self.account >= CREDIT {
            let from = since + self.costs.grace;
            self.windows = vec![(from, from + ski)];
            return;
        }
        let hazard = &mut self.hazard[..self.curve.bins(self.price)];
        self.expectation.hazard(now, hazard);
        let plan = Plan::new(hazard, &self.curve, self.price);
        let warm = now.since(self.held.last) <= self.costs.grace;
        self.windows = plan.windows(&self.curve, now, warm);
        let more = (CREDIT - self.account).max(1.0) * self.most() / self.costs.hold_power.as_w();
        let allowed = ski.as_secs() * (1.0 + TOLERANCE) + more;
        let allowed = Span::from_secs(allowed.clamp(0.0, 1e9)).saturating_sub(self.held.time);
        cut(&mut self.windows, allowed);
    }

    /// A request has come, and the gap is over.
    fn gap_ends(&mut self, now: Instant, since: Instant) {
        self.gaps += 1;
        self.shadow.on_gap(now);
        self.held.count(&self.windows, now);
        self.windows.clear();
        let loss = |idle| self.price * self.costs.lost(idle).as_ms();
        let own = self.hold(self.held.time) + loss(now.since(self.held.last));
        let gap = now.since(since);
        let ski = match self.ski {
            Some(until) => {
                self.hold(gap.min(until).saturating_sub(self.costs.grace))
                    + loss(if gap > until { gap.saturating_sub(until) } else { Span::ZERO })
            }
            None => loss(gap),
        };
        if self.most() > 0.0 {
            let change = (own - (1.0 + TOLERANCE) * ski) / self.most();
            self.account = (self.account + change).max(-CREDIT);
        }
    }

    /// The price at which plans would use the allotment in the gaps that there were.
    fn anchor(&mut self) {
        let (Price::PerDay(_), Some(allotment)) = (self.given, self.shadow.allotment()) else {
            return;
        };
        let typical = self.expectation.typical();
        let (mut low, mut high) = (PRICES.0.ln(), PRICES.1.ln());
        for _ in 0..STEPS {
            let middle = 0.5 * (low + high);
            let price = middle.exp();
            let bins = self.curve.bins(price);
            let energy = |(share, hazard): (f64, &Hazard)| match share > 0.0 {
                true => share * Plan::new(&hazard[..bins], &self.curve, price).energy(),
                false => 0.0,
            };
            let energy: f64 = typical.into_iter().map(energy).sum();
            if energy < allotment { low = middle } else { high = middle }
        }
        self.shadow.anchor((0.5 * (low + high)).exp());
    }
}

/// Keeps so much of the windows' time.
fn cut(windows: &mut Vec<(Instant, Instant)>, mut allowed: Span) {
    windows.retain_mut(|(from, until)| {
        let kept = until.since(*from).min(allowed);
        *until = *from + kept;
        allowed = allowed.saturating_sub(kept);
        !kept.is_zero()
    });
}

impl Policy for Learned {
    fn on_event(&mut self, now: Instant, event: &Event, traffic: Traffic) {
        if let (Event::RequestHead { work: true }, Some((since, _))) =
            (event, self.expectation.ended())
        {
            self.gap_ends(now, since);
        }
        self.expectation.on_event(now, event, traffic.requests);
        let ended = self.around.on_request(now, event, traffic);
        if self.most() < self.costs.prewarm_energy.as_j() {
            self.around.withdraw(Why::Arrival);
        }
        match *event {
            _ if ended => self.gap_begins(now),
            Event::ConnectionAccepted
            | Event::Preflight
            | Event::ModelsListed
            | Event::Hint { .. }
            | Event::RequestHead { work: false } => {
                if let Some((since, _)) = self.expectation.ended() {
                    self.plan(now, since);
                }
            }
            _ => {}
        }
    }

    fn wish(&mut self, now: Instant, _traffic: Traffic) -> Wish {
        let mut wish = self.around.wish(now);
        let next = self.windows.iter().find(|(_, until)| now < *until);
        match next {
            Some((from, until)) if *from <= now => {
                wish.hold_until = wish.hold_until.max(Some(*until))
            }
            Some((from, _)) => {
                wish.look_again = Some(wish.look_again.map_or(*from, |look| look.min(*from)));
            }
            None => {}
        }
        wish
    }

    fn on_energy(&mut self, used: Joules) {
        self.shadow.on_energy(used);
    }

    fn outlook(&mut self, now: Instant) -> Outlook {
        let chances = self.expectation.ended().map(|_| {
            let mut hazard = [0.0; BINS];
            self.expectation.hazard(now, &mut hazard);
            Outlook::WITHIN.map(|within| chance(&hazard, within))
        });
        Outlook { price: Some(Joules::j(self.shadow.per_ms())), chances }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ending, Event};

    /// After a hundred gaps of 20 s, at the end of a request.
    fn with_a_habit(price: f64) -> (Learned, Instant) {
        let params = Params {
            hold_for: Span::ZERO,
            tick: Span::s(1),
            costs: Costs::default(),
            price: Price::PerMs(Joules::j(price)),
        };
        let (mut learned, mut now) = (Learned::new(&params), Instant::ZERO);
        for _ in 0..100 {
            let mut tell = |event, requests| {
                learned.on_event(now, &event, Traffic { requests, ..Traffic::default() });
            };
            tell(Event::RequestHead { work: true }, 1);
            let ending = Ending::Turn;
            tell(Event::ResponseFinished { work: true, session: None, ending }, 0);
            now += Span::s(20);
        }
        (learned, Instant::ZERO + Span::s(20 * 99))
    }

    fn seconds(learned: &Learned, since: Instant) -> Vec<(f64, f64)> {
        let at = |at: Instant| at.since(since).as_ms() / 1e3;
        learned.windows.iter().map(|(from, until)| (at(*from), at(*until))).collect()
    }

    fn time(learned: &Learned) -> f64 {
        learned.windows.iter().map(|(from, until)| until.since(*from).as_secs()).sum()
    }

    #[test]
    fn a_habit_is_held_around_its_time_and_not_from_the_beginning() {
        let (learned, end) = with_a_habit(0.2);
        let windows = seconds(&learned, end);
        assert!(windows.iter().any(|(from, until)| *from < 20.0 && 20.0 < *until), "{windows:?}");
        let held: f64 = windows.iter().map(|(a, b)| b.min(20.0) - a.min(20.0)).sum();
        assert!(held < 3.0, "{windows:?}");
    }

    #[test]
    fn out_of_credit_it_holds_as_ski_rental_does_until_it_has_some_again() {
        let (mut learned, end) = with_a_habit(0.2);
        let before = seconds(&learned, end);
        let mut check = |account, ski: bool| {
            learned.account = account;
            learned.gap_begins(end);
            let until = learned.rule.after(learned.price).unwrap().as_secs();
            let windows = seconds(&learned, end);
            let expected = if ski { vec![(0.1, until)] } else { before.clone() };
            assert_eq!(windows.len(), expected.len(), "{account}: {windows:?}");
            for (got, wanted) in windows.iter().zip(expected) {
                assert!((got.0 - wanted.0).abs() < 1e-6 && (got.1 - wanted.1).abs() < 1e-6);
            }
        };
        check(CREDIT, true);
        check(CREDIT + 5.0, true);
        check(CREDIT - 15.0, false);
    }

    #[test]
    fn what_a_gap_may_be_held_beyond_ski_rental_is_what_is_left_of_the_credit() {
        let (mut learned, end) = with_a_habit(0.2);
        let ski = learned.rule.after(0.2).unwrap().as_secs() - 0.1;
        let most = learned.most() / learned.costs.hold_power.as_w();
        // A forecast that would be worth to be waited for longer than anything allows.
        let hint = |confidence| Event::Hint {
            source: crate::HintSource::Schedule,
            expected: Some(Span::s(4000)),
            confidence,
            session: None,
        };
        for (account, credit) in [(19.5, 1.0), (10.0, 10.0), (-20.0, 40.0)] {
            learned.account = account;
            learned.gap_begins(end);
            for _ in 0..3 {
                learned.on_event(end, &hint(1.0), Traffic::default());
            }
            let allowed = 1.1 * ski + credit * most;
            assert!(time(&learned) <= allowed + 1e-6, "{} s, not {allowed} s", time(&learned));
        }
    }

    #[test]
    fn the_account_is_the_difference_of_both_costs() {
        let (mut learned, end) = with_a_habit(0.2);
        learned.account = 0.0;
        let held: f64 = seconds(&learned, end).iter().map(|(a, b)| b.min(20.0) - a.min(20.0)).sum();
        let power = learned.costs.hold_power.as_w();
        let until = learned.rule.after(0.2).unwrap().as_secs();
        let ski = power * (until - 0.1) + learned.most();
        let expected = (power * held - (1.0 + TOLERANCE) * ski) / learned.most();
        learned.gap_ends(end + Span::s(20), end);
        assert!((learned.account - expected).abs() < 1e-6, "{} {expected}", learned.account);
    }
}
