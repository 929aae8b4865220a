//! The performance controller: utilisation in, p-state out. (A first version.)

use crate::Chip;
use everwarm_units::{PState, Span};

/// What one sampling window saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Length of the window (powered time only).
    pub window: Span,
    /// Time with a buffer known to the firmware, queued or running.
    pub occupied: Span,
    /// The window less the gaps between buffers that were too long to be credited.
    pub credited: Span,
}

/// The controller of one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    period: Span,
    base: u8,
    boost_pct: Vec<f64>,
    target: f64,
    boost_min: f64,
    step: f64,
    alpha: f64,
    kp: f64,
    filtered: f64,
    streak: f64,
    state: PState,
}

impl Controller {
    /// A controller that has seen no work.
    pub fn new(chip: &Chip) -> Self {
        let c = &chip.controller;
        Controller {
            period: c.sample_period,
            base: c.base_pstate,
            boost_pct: (1..=chip.top().0).map(|p| chip.boost_pct(PState(p))).collect(),
            target: c.target_utilization_pct,
            boost_min: c.boost_min_utilization_pct,
            step: c.boost_step_pct,
            alpha: 1.0 / c.filter_periods,
            kp: c.proportional_gain,
            filtered: 0.0,
            streak: 0.0,
            state: PState(c.base_pstate),
        }
    }

    /// The p-state it asks for.
    pub fn pstate(&self) -> PState {
        self.state
    }

    /// A window has ended.
    pub fn sample(&mut self, sample: &Sample) -> PState {
        let share = sample.window.share_of(self.period);
        let occupied = 100.0 * sample.occupied.share_of(sample.window);
        let credited = 100.0 * sample.credited.share_of(sample.window);
        let keep = (1.0 - self.alpha).powf(share);
        self.filtered = keep * self.filtered + (1.0 - keep) * occupied;
        if credited >= self.boost_min {
            self.streak = (self.streak + share).min(1e6);
        } else {
            self.streak = 0.0;
        }
        let boost = match self.streak {
            s if s > 51.5 => 2.0 * self.step,
            s if s > 1.5 => self.step + 5.0,
            _ => 0.0,
        };
        let output = boost + (self.kp * (self.filtered - self.target)).max(0.0);
        let above = self.boost_pct.iter().filter(|&&p| p <= output).count() as u8;
        self.state = PState(above.max(self.base));
        self.state
    }

    /// The GPU loses power; `last` is the window that was under way.
    pub fn power_off(&mut self, last: &Sample) {
        self.sample(last);
    }

    /// The GPU is powered again after `off` without power.
    pub fn power_on(&mut self, off: Span) -> PState {
        let periods = off.as_ms() / self.period.as_ms();
        self.filtered *= (1.0 - self.alpha).powf(periods);
        if periods > 1.0 {
            self.streak = 0.0;
        }
        if periods > 25.0 {
            self.state = PState(self.base);
        }
        self.state
    }
}
