//! What warming costs on a device, what it saves there, and what a saved millisecond is worth.
//!
//! Figures only: a device's own are measured elsewhere and handed in. Nothing here knows when a
//! request will come.

use everwarm_units::{Joules, Span, Watts};

/// A device's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Of a hold, above idle, until it is measured.
    pub hold_power: Watts,
    /// Of one pre-warm kernel and the waking around it.
    pub prewarm_energy: Joules,
    /// A pre-warm that begins this long before a request's first kernel takes all of the penalty.
    pub prewarm_lead: Span,
    /// After work nothing is lost for this long.
    pub grace: Span,
    /// What a request loses after how much idle time.
    pub penalty: Penalty,
}

impl Default for Costs {
    /// An M2's. Sources: study 1 (penalty of a small prefill), 4.1 (0.59 W on the GPU rail, 0.08 W of
    /// CPU), 4.2, 4.4; the pre-warm's energy is a guess: 6 ms at a few watts, and the milliseconds of
    /// waking around them.
    fn default() -> Self {
        Costs {
            hold_power: Watts::w(0.67),
            prewarm_energy: Joules::mj(30.0),
            prewarm_lead: Span::ms(6),
            grace: Span::ms(100),
            penalty: Penalty::new([
                (Span::ms(100), Span::ZERO),
                (Span::ms(500), Span::ms(14)),
                (Span::ms(1000), Span::ms(30)),
            ]),
        }
    }
}

impl Costs {
    /// What a request loses after so much idle time: nothing within the grace.
    pub fn lost(&self, idle: Span) -> Span {
        if idle <= self.grace { Span::ZERO } else { self.penalty.after(idle) }
    }
}

/// TTFT lost over idle time: straight between points, flat outside.
#[derive(Clone, Debug, PartialEq)]
pub struct Penalty {
    /// Idle time ascending, loss never falling.
    points: Vec<(Span, Span)>,
}

impl Penalty {
    /// A curve through measured points (idle time, loss), in any order. Noise never makes a longer
    /// idle time cheaper: each loss is at least the one before.
    pub fn new(points: impl IntoIterator<Item = (Span, Span)>) -> Self {
        let mut points: Vec<_> = points.into_iter().collect();
        points.sort_unstable();
        let mut most = Span::ZERO;
        for (_, loss) in &mut points {
            most = most.max(*loss);
            *loss = most;
        }
        Penalty { points }
    }

    /// Lost after `idle`.
    pub fn after(&self, idle: Span) -> Span {
        let next = self.points.partition_point(|(at, _)| *at <= idle);
        match (next.checked_sub(1).map(|i| self.points[i]), self.points.get(next)) {
            (None, None) => Span::ZERO,
            (None, Some((_, first))) => *first,
            (Some((_, last)), None) => last,
            (Some((t0, a)), Some((t1, b))) => {
                let share = idle.saturating_sub(t0).as_secs() / t1.saturating_sub(t0).as_secs();
                a + Span::from_secs(b.saturating_sub(a).as_secs() * share)
            }
        }
    }

    /// The points of the curve: idle time ascending, and what is lost.
    pub fn points(&self) -> &[(Span, Span)] {
        &self.points
    }

    /// The most that can be lost.
    pub fn most(&self) -> Span {
        self.points.last().map_or(Span::ZERO, |(_, loss)| *loss)
    }
}

/// What saved time is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// So much energy for a millisecond of a first token's time.
    PerMs(Joules),
    /// As much as an average use of so much energy a day buys.
    PerDay(Joules),
}

impl Default for Price {
    /// The default cap, used evenly.
    fn default() -> Self {
        Price::PerDay(Joules::wh(2.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_straight_between_its_points_and_never_falls() {
        let ms = Span::ms;
        let curve = Penalty::new([(ms(500), ms(20)), (ms(100), ms(0)), (ms(1000), ms(18))]);
        let lost: Vec<Span> =
            [0, 100, 300, 500, 700, 9000].map(|idle| curve.after(ms(idle))).into();
        assert_eq!(lost, [0, 0, 10, 20, 20, 20].map(ms));
        assert_eq!(curve.most(), ms(20));
        assert_eq!(Penalty::new([]).after(ms(5)), Span::ZERO);
    }
}
