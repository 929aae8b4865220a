//! The energy cap: so much in any 24 hours, rolling.
//!
//! Energy is booked into half-hour slots, and a slot is forgotten only when all of it is more than
//! a day old: the cap holds for every window of 24 hours, at the price of up to half an hour of
//! pessimism. It does not know what the energy was used for.

use everwarm_units::{Instant, Joules, Span};
use std::collections::VecDeque;

const DAY: Span = Span::s(24 * 3600);
/// Coarse enough for 49 slots a day. Source: guess.
const SLOT: Span = Span::s(1800);

/// What may still be used.
#[derive(Clone, Debug)]
pub struct Budget {
    cap: Joules,
    slots: VecDeque<(Instant, Joules)>,
    /// Of all slots.
    sum: Joules,
}

impl Budget {
    /// `cap` in any 24 hours.
    pub fn new(cap: Joules) -> Self {
        Budget { cap, slots: VecDeque::new(), sum: Joules::ZERO }
    }

    /// The cap itself.
    pub fn cap(&self) -> Joules {
        self.cap
    }

    /// Books `energy` as used at `now`.
    pub fn spend(&mut self, now: Instant, energy: Joules) {
        self.forget(now);
        match self.slots.back_mut() {
            Some((began, used)) if now.since(*began) < SLOT => *used += energy,
            _ => self.slots.push_back((now, energy)),
        }
        self.sum += energy;
    }

    /// Replaces what was booked last as an estimate by what was measured.
    pub fn correct(&mut self, now: Instant, estimated: Joules, measured: Joules) {
        let mut surplus = estimated;
        for (_, used) in self.slots.iter_mut().rev() {
            if surplus <= Joules::ZERO {
                break;
            }
            let part = if surplus < *used { surplus } else { *used };
            *used = *used - part;
            surplus = surplus - part;
            self.sum = self.sum - part;
        }
        self.spend(now, measured);
    }

    /// Used in the last 24 hours (and up to half an hour more).
    pub fn used(&mut self, now: Instant) -> Joules {
        self.forget(now);
        self.sum
    }

    /// Left of the cap; never negative.
    pub fn left(&mut self, now: Instant) -> Joules {
        let used = self.used(now);
        if used < self.cap { self.cap - used } else { Joules::ZERO }
    }

    /// When something that was used will be forgotten; `None` if nothing was.
    pub fn relief(&self) -> Option<Instant> {
        self.slots.front().map(|(began, _)| *began + SLOT + DAY)
    }

    fn forget(&mut self, now: Instant) {
        let mut forgotten = false;
        while self.relief().is_some_and(|at| at <= now) {
            forgotten |= self.slots.pop_front().is_some();
        }
        if forgotten {
            self.add_up();
        }
    }

    /// Anew, so that no rounding piles up.
    fn add_up(&mut self) {
        self.sum = self.slots.iter().map(|(_, used)| *used).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_later_it_is_free_again() {
        let at = |hours: u64| Instant::ZERO + Span::s(hours * 3600);
        let mut budget = Budget::new(Joules::j(10.0));
        budget.spend(at(0), Joules::j(6.0));
        budget.spend(at(12), Joules::j(4.0));
        let mut check = |hours, left| assert_eq!(budget.left(at(hours)), Joules::j(left));
        check(12, 0.0);
        check(24, 0.0);
        check(25, 6.0);
        check(37, 10.0);
    }
}
