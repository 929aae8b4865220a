//! The windows of a gap in which a hold is worth its energy, given when a request is likely.
//!
//! Dynamic programming from the longest gap down, over the bins of elapsed time. At the edge `i` of a
//! bin, given that no request has come, the device is warm or has been idle for so long that a
//! request loses all there is to lose:
//!
//! ```text
//! W(i) = max(  V(i+1) - hold(i),   W(i+1) - p came(i) F  )
//! V(i) = max(  V(i+1) - hold(i),   rest from i to any k, then hold;   rest until all is lost, then W  )
//! ```
//!
//! where a hold that begins after a rest also pays for a kernel, so that no plan is made of touches.
//!
//! `hold(i)` is the power times the time that gaps are expected to spend in the bin, `came(i)` the share of
//! gaps that end there, `p` the price; a rest loses what the curve says after the time since `i`. All in
//! shares of the gaps that begin, so that chances are not divided by what has survived. Only rests that
//! are short of losing all need a look at each pair of edges: that is what [`Curve`] keeps.
//!
//! A bin in which a hold costs more than all requests that are left could lose is not looked at, nor
//! any after it: bins only grow.
//!
//! It does not know where the hazard comes from, nor what limits the hold.

use crate::Costs;
use crate::expectation::{BINS, edges};
use everwarm_units::{Instant, Span};

/// A device's figures, by bins.
pub(super) struct Curve {
    /// Unit: W.
    power: f64,
    /// To begin. Unit: J.
    begin: f64,
    /// The most that is lost. Unit: ms.
    most: f64,
    /// For each edge what is lost in the bins after it, as long as that is less than the most. Unit: ms.
    partly: Vec<Vec<f64>>,
    edges: Vec<Span>,
    lead: Span,
    grace: Span,
}

impl Curve {
    pub fn new(costs: &Costs) -> Self {
        let most = costs.penalty.most().as_ms();
        let lost = |from: usize, bin: usize| {
            let middle = 0.5 * (edges()[bin] + edges()[bin + 1]);
            costs.lost(Span::from_secs(middle - edges()[from])).as_ms()
        };
        let partly = |from: usize| -> Vec<f64> {
            (from..BINS).map(|bin| lost(from, bin)).take_while(|lost| *lost < most).collect()
        };
        Curve {
            power: costs.hold_power.as_w(),
            begin: costs.prewarm_energy.as_j(),
            most,
            partly: (0..BINS).map(partly).collect(),
            edges: edges().iter().map(|edge| Span::from_secs(*edge)).collect(),
            lead: costs.prewarm_lead,
            grace: costs.grace,
        }
    }
}

impl Curve {
    /// How many bins are to be looked at. Unit of `price`: J/ms.
    pub fn bins(&self, price: f64) -> usize {
        // On average those who are left at its beginning spend at least half of a bin in it, or they
        // leave it early, and then it is the first one that matters.
        let worth = 2.0 * price * self.most / self.power;
        edges().windows(2).position(|edge| edge[1] - edge[0] > worth).map_or(BINS, |n| n.max(1))
    }
}

/// How the best plan goes on from an edge.
#[derive(Clone, Copy, PartialEq)]
enum Next {
    Hold,
    /// Rest up to this edge, hold from there.
    Rest(usize),
    /// Rest up to this edge, where all is lost.
    Cold(usize),
}

/// What to do in a gap.
pub(super) struct Plan {
    bins: usize,
    warm: [Next; BINS],
    cold: [Next; BINS],
    hold: [f64; BINS],
}

impl Plan {
    /// The best one at this price, over the bins that the hazard has. Unit of `price`: J/ms.
    pub fn new(hazard: &[f64], curve: &Curve, price: f64) -> Plan {
        let bins = hazard.len();
        let (mut came, mut hold, mut begin) = ([0.0; BINS], [0.0; BINS], [0.0; BINS]);
        let mut left = 1.0;
        for n in 0..bins {
            let stays = left * (-hazard[n]).exp();
            begin[n] = curve.begin * left;
            came[n] = (left - stays) * price;
            hold[n] = curve.power * (edges()[n + 1] - edges()[n]) * 0.5 * (left + stays);
            left = stays;
        }
        let (mut warm, mut cold) = ([Next::Cold(BINS); BINS], [Next::Cold(BINS); BINS]);
        let (mut v, mut w) = ([0.0; BINS + 1], [0.0; BINS + 1]);
        for n in (0..bins).rev() {
            let held = v[n + 1] - hold[n];
            let lost = w[n + 1] - came[n] * curve.most;
            (w[n], cold[n]) = match held - begin[n] {
                warmed if warmed > lost => (warmed, Next::Hold),
                _ => (lost, Next::Cold(n + 1)),
            };
            let mut best = (held, Next::Hold);
            let mut rest = 0.0;
            let partly = &curve.partly[n][..curve.partly[n].len().min(bins - n)];
            for (lost, k) in partly.iter().zip(n + 1..) {
                rest -= came[k - 1] * lost;
                // To hold from k on is one of the choices there; not to is a longer rest.
                let again = if k < bins { rest + v[k + 1] - hold[k] - begin[k] } else { rest };
                if again > best.0 {
                    best = (again, Next::Rest(k));
                }
            }
            let all_lost = n + partly.len();
            if rest + w[all_lost] >= best.0 {
                best = (rest + w[all_lost], Next::Cold(all_lost));
            }
            (v[n], warm[n]) = best;
        }
        Plan { bins, warm, cold, hold }
    }

    /// The bins in which it holds.
    fn held(&self, warm: bool) -> impl Iterator<Item = usize> + '_ {
        let mut at = Some((0, warm));
        std::iter::from_fn(move || {
            while let Some((n, warm)) = at.filter(|(n, _)| *n < self.bins) {
                match if warm { self.warm[n] } else { self.cold[n] } {
                    Next::Cold(to) => at = Some((to, false)),
                    Next::Hold => {
                        at = Some((n + 1, true));
                        return Some(n);
                    }
                    Next::Rest(to) => {
                        at = Some((to + 1, true));
                        return Some(to).filter(|to| *to < self.bins);
                    }
                }
            }
            None
        })
    }

    /// The energy that it is expected to use in a gap that begins warm. Unit: J.
    pub fn energy(&self) -> f64 {
        self.held(true).map(|n| self.hold[n]).sum()
    }

    /// Its windows from `now` on, ascending, where the device is warm or idle for long.
    pub fn windows(&self, curve: &Curve, now: Instant, warm: bool) -> Vec<(Instant, Instant)> {
        let mut windows: Vec<(Instant, Instant)> = Vec::new();
        let at = |edge: usize| now + curve.edges[edge];
        for n in self.held(warm) {
            // A hold begins early enough to have warmed by then; within the grace it has nothing to do.
            let from = now + curve.edges[n].saturating_sub(curve.lead);
            let from = if warm { from.max(now + curve.grace) } else { from };
            match windows.last_mut() {
                Some(last) if last.1 >= from => last.1 = at(n + 1),
                _ if from < at(n + 1) => windows.push((from, at(n + 1))),
                _ => {}
            }
        }
        windows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expectation::{Hazard, scale_free};

    fn curve() -> Curve {
        Curve::new(&Costs::default())
    }

    fn windows(hazard: &Hazard, price: f64, warm: bool) -> Vec<(f64, f64)> {
        let curve = curve();
        let plan = Plan::new(hazard, &curve, price);
        let windows = plan.windows(&curve, Instant::ZERO, warm);
        windows.iter().map(|(a, b)| (a.as_ms() / 1e3, b.as_ms() / 1e3)).collect()
    }

    #[test]
    fn a_sharp_time_is_a_window_around_it_and_nothing_else() {
        let mut hazard = [0.0; BINS];
        let bin = edges().iter().position(|edge| *edge > 60.0).unwrap() - 1;
        hazard[bin] = 3.0;
        let lead = 0.006;
        let expected = (edges()[bin] - lead, edges()[bin + 1]);
        for warm in [true, false] {
            let got = windows(&hazard, 0.1 * edges()[bin] / 10.0, warm);
            assert_eq!(got.len(), 1);
            assert!((got[0].0 - expected.0).abs() < 1e-6);
            assert!((got[0].1 - expected.1).abs() < 1e-6);
        }
        assert_eq!(windows(&hazard, 1e-4, true), []);
    }

    #[test]
    fn a_hazard_that_falls_is_held_for_longer_at_a_greater_price() {
        let mut last = 0.0;
        for price in [0.02, 0.1, 1.0, 10.0] {
            let got = windows(scale_free(), price, true);
            let end = got.last().unwrap().1;
            assert!(got[0].0 >= 0.1 && end > 1.5 * last, "{got:?}");
            last = end;
            // Only where the curve forgives some of a rest is it worth to hold in pieces.
            let rests = got.windows(2).map(|pair| pair[1].0 - pair[0].1);
            assert!(rests.fold(0.0, f64::max) < 2.0, "{got:?}");
        }
    }

    #[test]
    fn bins_that_are_not_looked_at_would_not_be_held() {
        let curve = curve();
        for price in [0.001, 0.02, 0.5, 30.0] {
            let bins = curve.bins(price);
            let held = |bins| -> Vec<usize> {
                Plan::new(&scale_free()[..bins], &curve, price).held(true).collect()
            };
            assert_eq!(held(bins), held(BINS), "{price}");
        }
    }

    #[test]
    fn no_other_choice_of_bins_is_better() {
        // Exhaustive over windows of a hazard with two humps.
        let curve = curve();
        let mut hazard: Hazard = [0.01; BINS];
        (20..26).for_each(|n| hazard[n] = 0.2);
        (50..54).for_each(|n| hazard[n] = 0.4);
        for price in [0.01, 0.03, 0.1, 0.3, 2.0] {
            let value = |held: &dyn Fn(usize) -> bool| {
                let (mut left, mut sum, mut warm) = (1.0, 0.0, 0);
                for (n, hazard) in hazard.iter().enumerate() {
                    let stays = left * (-hazard).exp();
                    if held(n) {
                        let width = edges()[n + 1] - edges()[n];
                        sum -= if warm == n { 0.0 } else { curve.begin * left };
                        sum -= curve.power * width * 0.5 * (left + stays);
                        warm = n + 1;
                    } else {
                        let lost = curve.partly.get(warm).and_then(|p| p.get(n - warm));
                        sum -= (left - stays) * price * lost.unwrap_or(&curve.most);
                    }
                    left = stays;
                }
                sum
            };
            let bins = curve.bins(price);
            let plan = Plan::new(&hazard[..bins], &curve, price);
            let plan: Vec<usize> = plan.held(true).collect();
            let best = value(&|n| plan.contains(&n));
            for from in 0..60 {
                for until in from..60 {
                    for second in [(0, 0), (49, 54), (50, 54), (50, 53), (20, 26)] {
                        let held =
                            |n| (from..until).contains(&n) || (second.0..second.1).contains(&n);
                        assert!(
                            value(&held) <= best + 1e-9,
                            "{price}: {from}..{until}, {second:?}"
                        );
                    }
                }
            }
        }
    }
}
