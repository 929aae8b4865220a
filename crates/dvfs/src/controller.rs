//! The performance controller: utilisation in, p-state out. (Essay to come.)

use crate::{Chip, ControllerParameters};
use everwarm_units::{PState, Span};

/// What one sampling window saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Length of the window (powered time only; the last one before power-off is shorter).
    pub window: Span,
    /// Time with a buffer known to the firmware, queued or running.
    pub occupied: Span,
    /// The window less the gaps between buffers that were too long to be credited.
    pub credited: Span,
    /// The longest time without any gap that reaches into the window, counted from its beginning.
    pub stretch: Span,
}

/// The controller of one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    parameters: ControllerParameters,
    boost_pct: Vec<f64>,
    /// Filtered utilisation. Unit: percent.
    filtered: f64,
    /// What the regulator asks for. Unit: output percent.
    regulated: f64,
    /// Boost term. Unit: output percent.
    boost: f64,
    /// Periods for which the first boost is still held.
    hold: f64,
    /// Credited periods, less six for each other one.
    streak: f64,
    /// The streak has seen an uninterrupted burst.
    burst: bool,
    pstate: PState,
}

impl Controller {
    /// A controller that has seen no work.
    pub fn new(chip: &Chip) -> Self {
        let base = chip.controller.base_pstate;
        Controller {
            parameters: chip.controller.clone(),
            boost_pct: (base..=chip.top().0).map(|p| chip.boost_pct(PState(p))).collect(),
            filtered: 0.0,
            regulated: 0.0,
            hold: 0.0,
            boost: 0.0,
            streak: 0.0,
            burst: false,
            pstate: PState(base),
        }
    }

    /// The p-state it asks for.
    pub fn pstate(&self) -> PState {
        self.pstate
    }

    /// A window has ended.
    pub fn sample(&mut self, sample: &Sample) -> PState {
        let share = sample.window.share_of(self.parameters.sample_period);
        self.regulate(share, 100.0 * sample.occupied.share_of(sample.window));
        let credited = 100.0 * sample.credited.share_of(sample.window);
        self.boost(share, credited, sample.stretch);
        self.decide()
    }

    fn regulate(&mut self, share: f64, occupied: f64) {
        let p = &self.parameters;
        let keep = (1.0 - 1.0 / p.filter_periods).powf(share);
        let before = self.filtered;
        self.filtered = keep * self.filtered + (1.0 - keep) * occupied;
        let error = self.filtered - p.target_utilization_pct;
        let step = p.proportional_gain * (self.filtered - before) + p.integral_gain * error * share;
        self.regulated = (self.regulated + step).clamp(0.0, p.integral_limit_pct);
    }

    fn boost(&mut self, share: f64, credited: f64, stretch: Span) {
        let p = &self.parameters;
        let reset = f64::from(p.reset_periods);
        let was = self.streak;
        let first = |burst: bool| if burst { p.boost_periods_burst } else { p.boost_periods };
        if credited >= p.boost_min_utilization_pct {
            self.burst |= stretch >= p.burst;
            let most = first(self.burst) + p.boost_periods_again + reset;
            self.streak = (self.streak + share).min(most);
        } else {
            self.streak = (self.streak - reset * share).max(0.0);
            self.burst &= self.streak > 0.0;
        }
        let first = first(self.burst) - 1e-6;
        if self.streak >= first && was < first {
            self.hold = reset + share;
        }
        self.hold = (self.hold - share).max(0.0);
        if self.streak >= first + p.boost_periods_again {
            self.boost = (self.boost + p.proportional_gain * share)
                .max(p.boost_step_pct)
                .min(100.0 + p.proportional_gain);
        } else if self.hold > 0.0 {
            let missing = (p.boost_step_pct - self.boost).max(0.0);
            self.boost += missing * (1.0 - (1.0 - p.boost_rise).powf(share));
        } else {
            self.boost *= p.boost_fade.powf(share);
        }
    }

    fn decide(&mut self) -> PState {
        let output = self.regulated.max(self.boost);
        // The nearest state, as the boost of 50 reaches the state at 54.
        let above = self.boost_pct.windows(2).take_while(|w| output >= (w[0] + w[1]) / 2.0);
        self.pstate = PState(self.parameters.base_pstate + above.count() as u8);
        self.pstate
    }

    /// The GPU loses power; `last` is the window that was under way.
    pub fn power_off(&mut self, last: &Sample) {
        self.sample(last);
    }

    /// The GPU is powered again after `off` without power.
    pub fn power_on(&mut self, off: Span) -> PState {
        let p = &self.parameters;
        let periods = off.as_ms() / p.sample_period.as_ms();
        let reset = f64::from(p.reset_periods);
        let keep = 1.0 - 1.0 / p.filter_periods;
        self.boost *= keep.powf(periods);
        self.regulated *= keep.powf((periods - reset).max(0.0));
        self.hold = (self.hold - periods).max(0.0);
        self.streak = (self.streak - reset * periods).max(0.0);
        self.burst &= self.streak > 0.0;
        if self.decide() == PState(self.parameters.base_pstate) {
            self.filtered = 0.0;
            self.regulated = 0.0;
            self.boost = 0.0;
        }
        self.pstate
    }
}
