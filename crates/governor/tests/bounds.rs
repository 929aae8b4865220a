//! What `ski-rental` and `learned` promise about their cost, on gaps and curves that nobody chose.

use everwarm_governor::{
    Action, Config, Costs, Ending, Event, Governor, HintSource, Penalty, Price, policy,
};
use everwarm_units::{Instant, Joules, Span, Watts};
use proptest::prelude::*;

/// Leads a policy through gaps and counts what each costs: holds between requests, and the loss at
/// the price. Kernels at a request's head are not part of the bounds.
struct Purse {
    governor: Governor,
    costs: Costs,
    price: f64,
    now: Instant,
    holding: Option<Instant>,
    warm_until: Instant,
    held: Span,
}

impl Purse {
    fn new(name: &str, costs: &Costs, price: f64) -> Self {
        let config = Config {
            cap: Joules::wh(1e9),
            costs: costs.clone(),
            price: Price::PerMs(Joules::j(price)),
            ..Config::default()
        };
        let governor = Governor::new(policy(name).unwrap(), config);
        let (now, costs) = (Instant::ZERO, costs.clone());
        let mut purse =
            Purse { governor, costs, price, now, holding: None, warm_until: now, held: Span::ZERO };
        purse.request();
        purse
    }

    fn drain(&mut self) -> Option<Instant> {
        loop {
            match self.governor.poll(self.now) {
                Action::Prewarm => {}
                Action::Hold => self.holding = Some(self.now),
                Action::Release(_) => self.count(),
                Action::WaitUntil(at) => return Some(at),
                Action::WaitForEvent => return None,
            }
        }
    }

    fn count(&mut self) {
        if let Some(since) = self.holding.take() {
            self.held += self.now.since(since);
            self.warm_until = self.now;
        }
    }

    fn event(&mut self, event: Event) {
        self.governor.on_event(self.now, event);
        self.drain();
    }

    fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(at) = self.drain().filter(|at| *at < end) {
            self.now = at;
        }
        self.now = end;
    }

    /// A gap of that length, with or without a hint that is wrong; returns its cost. Unit: J.
    fn gap(&mut self, gap: Span, lie: bool) -> f64 {
        self.held = Span::ZERO;
        if lie {
            self.pass(gap / 2);
            self.event(Event::Hint {
                source: HintSource::Schedule,
                expected: Some(gap * 3),
                confidence: 1.0,
                session: None,
            });
        }
        self.pass(if lie { gap.saturating_sub(gap / 2) } else { gap });
        let idle = match self.holding {
            Some(since) => {
                self.held += self.now.since(since);
                self.holding = Some(self.now);
                Span::ZERO
            }
            None => self.now.since(self.warm_until),
        };
        let cost = (self.costs.hold_power * self.held).as_j() + lost(&self.costs, self.price, idle);
        self.request();
        cost
    }

    fn request(&mut self) {
        self.event(Event::RequestHead { work: true });
        self.event(Event::RequestForwarded { work: true });
        self.event(Event::DecodeRunning);
        assert_eq!(self.holding.map(|since| self.now.since(since)).unwrap_or_default(), Span::ZERO);
        self.event(Event::ResponseFinished { work: true, session: None, ending: Ending::Turn });
        self.warm_until = self.now;
    }
}

fn lost(costs: &Costs, price: f64, idle: Span) -> f64 {
    price * costs.lost(idle).as_ms()
}

/// The offline optimum: it knows the gap, and holds up to some time or not at all.
fn optimum(costs: &Costs, price: f64, gap: Span) -> f64 {
    // Straight between corners in how long it rests in the end: the least is at one of them.
    let rests = costs.penalty.points().iter().map(|(x, _)| *x).chain([costs.grace, Span::ZERO]);
    let rests = rests.filter(|rest| costs.grace + *rest <= gap);
    let held = |rest: Span| gap.saturating_sub(costs.grace).saturating_sub(rest);
    let cost = |rest| (costs.hold_power * held(rest)).as_j() + lost(costs, price, rest);
    let last = gap.saturating_sub(costs.grace);
    rests.chain([last]).map(cost).fold(lost(costs, price, gap), f64::min)
}

/// `K`: what a rest of the right length could save, up to the break-even time.
fn forgiven(costs: &Costs, price: f64) -> f64 {
    let most = price * costs.penalty.most().as_ms();
    let until = costs.grace + Span::from_secs(most / costs.hold_power.as_w());
    (0..=20_000u64)
        .map(|n| until * n / 20_000)
        .chain(costs.penalty.points().iter().map(|(x, _)| *x).chain([costs.grace]))
        .filter(|x| *x <= until)
        .map(|x| (costs.hold_power * x).as_j() - lost(costs, price, x))
        .fold(0.0, f64::max)
}

fn costs() -> impl Strategy<Value = Costs> {
    let curve = prop::collection::vec((1u64..3000, 0u64..120), 1..6);
    (0.05..40.0, 0u64..300, curve).prop_map(|(power, grace, curve)| Costs {
        hold_power: Watts::w(power),
        grace: Span::ms(grace),
        penalty: Penalty::new(curve.into_iter().map(|(x, lost)| (Span::ms(x), Span::ms(lost)))),
        ..Costs::default()
    })
}

/// Gaps of all orders of magnitude, in runs of like ones: habits, and ends of habits.
fn habits() -> impl Strategy<Value = Vec<Span>> {
    let run = (0.7f64..7.0, 1usize..30, 0.0f64..0.3);
    prop::collection::vec(run, 1..8).prop_map(|runs| {
        let gaps = runs.into_iter().flat_map(|(order, count, scatter)| {
            (0..count).map(move |n| {
                let off = scatter * ((n * 37 % 11) as f64 / 5.0 - 1.0);
                Span::from_ms(10f64.powf((order + off).max(0.5)))
            })
        });
        gaps.collect()
    })
}

fn price() -> impl Strategy<Value = f64> {
    (-4.0f64..1.5).prop_map(|order| 10f64.powf(order))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// In every gap at most twice the optimum's cost, and twice what the curve forgives.
    #[test]
    fn ski_rental_keeps_its_bound(costs in costs(), price in price(), gaps in habits()) {
        let mut purse = Purse::new("ski-rental", &costs, price);
        let forgiven = forgiven(&costs, price);
        for gap in gaps {
            let (own, best) = (purse.gap(gap, false), optimum(&costs, price, gap));
            let bound = 2.0 * best + 2.0 * forgiven;
            prop_assert!(own <= bound * (1.0 + 1e-6) + 1e-6, "{own} J in {gap}, more than {bound} J");
        }
    }

    /// After any number of gaps at most a tenth and 22 cold starts more than `ski-rental`, whatever
    /// hints say.
    #[test]
    fn learned_keeps_its_bound(
        costs in costs(),
        price in price(),
        gaps in habits(),
        lies in any::<bool>(),
    ) {
        let mut learned = Purse::new("learned", &costs, price);
        let mut ski = Purse::new("ski-rental", &costs, price);
        let most = price * costs.penalty.most().as_ms();
        let (mut own, mut other) = (0.0, 0.0);
        for gap in gaps {
            own += learned.gap(gap, lies);
            other += ski.gap(gap, false);
            let bound = 1.1 * other + 22.0 * most;
            prop_assert!(own <= bound * (1.0 + 1e-6) + 1e-6, "{own} J after {gap}, more than {bound} J");
        }
    }
}

/// A curve with a step, as in the classic problem: the rule is twice the optimum and no more.
#[test]
fn with_a_step_the_classic_two_is_left() {
    let costs = Costs {
        grace: Span::ZERO,
        penalty: Penalty::new([(Span::ZERO, Span::ms(30))]),
        ..Costs::default()
    };
    let mut purse = Purse::new("ski-rental", &costs, 0.02);
    let until = 0.6 / costs.hold_power.as_w();
    let (before, after) = (Span::from_secs(0.999 * until), Span::from_secs(1.001 * until));
    assert!((purse.gap(before, false) / 0.6 - 0.999).abs() < 1e-3);
    assert!((purse.gap(after, false) / 0.6 - 2.0).abs() < 1e-3);
    assert!((optimum(&costs, 0.02, after) - 0.6).abs() < 1e-9);
}
