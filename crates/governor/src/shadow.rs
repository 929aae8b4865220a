//! The price of a saved millisecond, when all that is given is what may be used in a day.
//!
//! Whoever maximises what is saved under a budget weighs every hold with one and the same price, and
//! the right price is the one at which the budget is just used. It is found by feedback: each gap
//! between requests has an allotment, the budget's power times the mean length of gaps; what is not
//! used is carried on and raises the price, what is used beyond it lowers the price, by [`GAIN`] of
//! its natural logarithm for each allotment. Counting by gaps and not by hours keeps a night without
//! requests from piling up a sum that the morning would burn.
//!
//! The carry is bounded by [`CARRY_MAX`] allotments and by the budget of a day, whichever is less: the
//! integral can't wind up where nothing can be bought, and what is left over is never more than a
//! day's. What is used beyond even that lowers the anchor itself, until it is saved again. A caller who knows what a price would use sets the anchor; the feedback then corrects what
//! it got wrong.
//!
//! It does not know the cap, which is the governor's and stands above every price.

use crate::Price;
use everwarm_units::{Instant, Joules};

const DAY: f64 = 86_400.0;
/// Of the price's logarithm, for each allotment carried. Some twenty gaps make a factor of e. Source:
/// guess: slower than single gaps scatter, faster than a trace of some hundred gaps ends.
const GAIN: f64 = 0.05;
/// Allotments carried at most: the price is within e^4 of its anchor.
const CARRY_MAX: f64 = 80.0;

/// The present price.
#[derive(Clone, Debug)]
pub(crate) struct Shadow {
    given: Price,
    /// Unit: J/ms.
    anchor: f64,
    /// By how much too high the anchor has proved to be, of its logarithm; never negative.
    too_high: f64,
    /// Not used yet of what was allotted. Unit: J.
    carry: f64,
    /// Since the last gap ended. Unit: J.
    used: f64,
    last: Option<Instant>,
    /// Gaps and the time they took with what ran between them, both forgotten over a day. Unit: 1, s.
    gaps: f64,
    time: f64,
}

impl Shadow {
    /// `anchor`: the price to begin with. Unit: J/ms.
    pub fn new(given: Price, anchor: f64) -> Self {
        Shadow {
            given,
            anchor,
            too_high: 0.0,
            carry: 0.0,
            used: 0.0,
            last: None,
            gaps: 0.0,
            time: 0.0,
        }
    }

    /// The price. Unit: J/ms.
    pub fn per_ms(&self) -> f64 {
        match self.given {
            Price::PerMs(price) => price.as_j(),
            Price::PerDay(_) => {
                let allotments = self.carry / self.allotment().unwrap_or(f64::INFINITY);
                self.anchor * (GAIN * allotments - self.too_high).exp()
            }
        }
    }

    /// What a gap may use on average; `None` if the price is given or nothing is known yet. Unit: J.
    pub fn allotment(&self) -> Option<f64> {
        match self.given {
            Price::PerDay(budget) if self.time > 0.0 && budget > Joules::ZERO => {
                Some(budget.as_j() / DAY * self.time / self.gaps)
            }
            _ => None,
        }
    }

    /// Says what price is expected to use the allotments. Unit: J/ms.
    pub fn anchor(&mut self, price: f64) {
        self.anchor = price;
        self.too_high = 0.0;
    }

    /// Warming has used so much more.
    pub fn on_energy(&mut self, used: Joules) {
        self.used += used.as_j();
    }

    /// A gap has ended.
    pub fn on_gap(&mut self, now: Instant) {
        if let Some(last) = self.last.replace(now) {
            let passed = now.since(last).as_secs();
            let kept = (-passed / DAY).exp();
            self.gaps = self.gaps * kept + 1.0;
            self.time = self.time * kept + passed;
        }
        let used = std::mem::take(&mut self.used);
        if let (Some(allotment), Price::PerDay(budget)) = (self.allotment(), self.given) {
            let most = (CARRY_MAX * allotment).min(budget.as_j());
            let carry = self.carry + allotment - used;
            self.carry = carry.clamp(-most, most);
            let excess = GAIN * (self.carry - carry) / allotment;
            self.too_high = (self.too_high + excess).max(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwarm_units::Span;

    /// Uses `demand(price)` in each gap of so many seconds; the average of the last half. Unit: W.
    fn settled(budget: f64, gap: u64, demand: impl Fn(f64) -> f64) -> f64 {
        let mut shadow = Shadow::new(Price::PerDay(Joules::j(budget)), 1.0);
        let (mut now, mut late) = (Instant::ZERO, 0.0);
        for n in 0..2000 {
            now += Span::s(gap);
            let used = demand(shadow.per_ms());
            late += if n >= 1000 { used } else { 0.0 };
            shadow.on_energy(Joules::j(used));
            shadow.on_gap(now);
        }
        late / (1000.0 * gap as f64)
    }

    #[test]
    fn the_average_use_becomes_the_budget() {
        for budget in [100.0, 7200.0] {
            let power = budget / DAY;
            let smooth = settled(budget, 30, |price| 4.0 * price);
            assert!((smooth / power - 1.0).abs() < 0.02, "{smooth} W, not {power} W");
            // A demand that jumps is met by going back and forth.
            let jumps = settled(budget, 30, |price| if price > 0.3 { 5.0 } else { 0.0 });
            assert!((jumps / power - 1.0).abs() < 0.05, "{jumps} W, not {power} W");
        }
    }

    #[test]
    fn where_nothing_can_be_bought_the_price_stays_bounded_and_comes_back() {
        let mut shadow = Shadow::new(Price::PerDay(Joules::j(864.0)), 1.0);
        let mut now = Instant::ZERO;
        let mut gaps = |n, used: f64, shadow: &mut Shadow| {
            for _ in 0..n {
                now += Span::s(10);
                shadow.on_energy(Joules::j(used));
                shadow.on_gap(now);
            }
            shadow.per_ms()
        };
        assert!(gaps(10_000, 0.0, &mut shadow) < 60.0);
        // Twice the allotment: each gap takes one back, so that twice the bound is the other end.
        assert!(gaps(200, 0.2, &mut shadow) < 0.02);
    }

    #[test]
    fn a_night_is_no_reason_to_burn_a_budget() {
        let mut shadow = Shadow::new(Price::PerDay(Joules::j(864.0)), 1.0);
        let mut now = Instant::ZERO;
        for n in 0..3000u64 {
            now += if n % 500 == 499 { Span::s(12 * 3600) } else { Span::s(60) };
            let allotted = shadow.allotment().unwrap_or_default();
            shadow.on_energy(Joules::j(allotted));
            shadow.on_gap(now);
            assert!((shadow.per_ms() - 1.0).abs() < 0.5, "gap {n}: {}", shadow.per_ms());
        }
    }
}
