//! The performance controller: utilisation in, p-state out, one decision a sample period.
//!
//! The firmware's own law is not published; its parameters are (`docs/model.md` lists what each one
//! is known from). This is the smallest machine found that has those parameters and shows what the
//! M2 study measured. Two paths each ask for an output on the scale of the firmware's table of
//! boosts, 0 at the base clock and 100 at the top one; the greater wins, and the p-state nearest to
//! it is set.
//!
//! **The regulator** holds utilisation at a target. Utilisation is the share of a window in which
//! the firmware knew of work, queued or running, over all queues. With u the window's percentage,
//! T the filter's time constant in periods and r the target:
//!
//! ```text
//! f' = f + (u - f) / T                       f: filtered utilisation
//! y' = y + kp (f' - f) + ki (f' - r)         y: its output, 0 ≤ y ≤ limit
//! ```
//!
//! This is a PI controller in its incremental form: clamping y keeps the integral from winding up
//! below the base state, so that an idle stretch leaves no debt. Upwards it may wind up far beyond
//! the top state. A slower clock makes kernels longer and utilisation higher, so a loop that waits
//! for its buffers settles where its duty cycle meets the target: in steps, not over a cliff.
//!
//! **The boost** does not look at how much work there is but whether the queue ever stays empty. A
//! gap shorter than `credited_gap` counts as busy. Windows credited to at least
//! `boost_min_utilization_pct` add up to a streak, and those among them that see a burst (work
//! without any gap for a while: a long kernel, or a queue that is never empty) to a streak of bursts;
//! a window that is not credited takes `reset_periods` back from both.
//!
//! * After `boost_periods` of the streak, or `boost_periods_burst` once it has a burst, the boost
//!   rises to `boost_step_pct` and stays there for `reset_periods`. Then it fades, and the regulator
//!   is left with what the load is worth: the sag of a synchronous loop.
//! * After `lasting_boost_periods` more, or `lasting_boost_periods_burst` more of bursts, the boost
//!   takes the step again, adds kp each period and stays at the top for as long as the streak does.
//!   Long kernels get there before the regulator would let them; a loop of short ones climbs late,
//!   and then holds the top clock although its utilisation is below the target.
//!
//! **Without power** no samples are taken. A boost fades with the filter's constant from the first
//! moment. The regulator stands still for `reset_periods`, so that gating between two long kernels
//! costs nothing, then its output fades with the same constant; its filtered utilisation stays, for
//! there is nothing to filter. An output that has faded to the base state ends all that, and the
//! next work meets a cleared controller: this is why a clock that was lost is not found again
//! quickly, and why the time for which it is kept grows only with the logarithm of y. After
//! `forget_after` the firmware has lost its state and begins anew, with its filter not at 0 but at
//! `filter_start_pct`: a regulator that was reset is quicker than one that has decayed.
//!
//! Contract: [`Controller::sample`] at the end of each full window, [`Controller::power_off`] with
//! the window that gating cut short, [`Controller::power_on`] with the time without power. A short
//! window (the first one lacks the wake) counts for its share of a period, which is why the boost's
//! counts are a little less than whole numbers. It knows no time of its own.

use crate::{Chip, ControllerParameters};
use everwarm_units::{PState, Span};

/// What one sampling window saw.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Length of the window: powered time only.
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
    /// Place of each p-state from the base up. Unit: output percent.
    places: Vec<f64>,
    /// Filtered utilisation, f. Unit: percent.
    filtered: f64,
    /// Output of the regulator, y. Unit: output percent.
    regulated: f64,
    /// Output of the boost. Unit: output percent.
    boost: f64,
    /// Periods for which the first boost is still held.
    hold: f64,
    /// Credited periods, less what others took back.
    streak: f64,
    /// Those of them that saw a burst; above 0 as long as the streak has one.
    bursts: f64,
    pstate: PState,
}

impl Controller {
    /// A controller that has seen no work.
    pub fn new(chip: &Chip) -> Self {
        let base = chip.controller.base_pstate;
        Controller {
            filtered: chip.controller.filter_start_pct,
            parameters: chip.controller.clone(),
            places: (base..=chip.top().0).map(|p| chip.boost_pct(PState(p))).collect(),
            regulated: 0.0,
            boost: 0.0,
            hold: 0.0,
            streak: 0.0,
            bursts: 0.0,
            pstate: PState(base),
        }
    }

    /// The p-state it asks for.
    pub fn pstate(&self) -> PState {
        self.pstate
    }

    /// A window has ended; returns the p-state from now on.
    pub fn sample(&mut self, sample: &Sample) -> PState {
        let share = sample.window.share_of(self.parameters.sample_period);
        self.regulate(share, 100.0 * sample.occupied.share_of(sample.window));
        let credited = 100.0 * sample.credited.share_of(sample.window);
        let is_credited = credited >= self.parameters.boost_min_utilization_pct;
        self.count(share, is_credited, sample.stretch);
        self.rise_or_fade(share);
        self.decide()
    }

    /// The GPU loses power; `last` is the window that was under way.
    pub fn power_off(&mut self, last: &Sample) {
        self.sample(last);
    }

    /// The GPU is powered again after `off` without power; returns the p-state it starts at.
    pub fn power_on(&mut self, off: Span) -> PState {
        if off >= self.parameters.forget_after {
            self.clear();
            self.filtered = self.parameters.filter_start_pct;
            return self.decide();
        }
        let periods = off.as_nanos() as f64 / self.parameters.sample_period.as_nanos() as f64;
        let reset = f64::from(self.parameters.reset_periods);
        self.boost *= self.filter_keeps(periods);
        self.regulated *= self.filter_keeps((periods - reset).max(0.0));
        self.hold = (self.hold - periods).max(0.0);
        self.take_back(reset * periods);
        if self.decide() == PState(self.parameters.base_pstate) {
            self.clear();
        }
        self.pstate
    }

    fn clear(&mut self) {
        (self.filtered, self.regulated, self.boost) = (0.0, 0.0, 0.0);
        (self.hold, self.streak, self.bursts) = (0.0, 0.0, 0.0);
    }

    /// What the filter keeps of an old value after `periods`.
    fn filter_keeps(&self, periods: f64) -> f64 {
        (1.0 - 1.0 / self.parameters.filter_periods).powf(periods)
    }

    fn regulate(&mut self, share: f64, utilization: f64) {
        let p = &self.parameters;
        let keep = self.filter_keeps(share);
        let before = self.filtered;
        self.filtered = keep * before + (1.0 - keep) * utilization;
        let error = self.filtered - p.target_utilization_pct;
        let step = p.proportional_gain * (self.filtered - before) + p.integral_gain * error * share;
        self.regulated = (self.regulated + step).clamp(0.0, p.output_limit_pct);
    }

    /// Keeps the streaks, and notes when one of them earns the first boost.
    fn count(&mut self, share: f64, is_credited: bool, stretch: Span) {
        let reset = f64::from(self.parameters.reset_periods);
        let earned = self.earns(0.0, 0.0);
        if is_credited {
            // A full streak survives one bad sample, so that a hiccup of the host costs nothing.
            let p = &self.parameters;
            let most = p.boost_periods + p.lasting_boost_periods + reset;
            let most_bursts = p.boost_periods_burst + p.lasting_boost_periods_burst + reset;
            self.streak = (self.streak + share).min(most);
            if stretch >= p.burst {
                self.bursts = (self.bursts + share).min(most_bursts);
            }
        } else {
            self.take_back(reset * share);
        }
        let earns = self.earns(0.0, 0.0);
        self.hold = match (0..2).any(|n| earns[n] && !earned[n]) {
            true => reset,
            false => (self.hold - share).max(0.0),
        };
    }

    fn take_back(&mut self, periods: f64) {
        self.streak = (self.streak - periods).max(0.0);
        self.bursts = (self.bursts - periods).max(0.0).min(self.streak);
    }

    /// Whether the streak, and that of bursts, is so much longer than the first boost needs. Sums of
    /// shares may end a hair below whole numbers.
    fn earns(&self, more: f64, more_bursts: f64) -> [bool; 2] {
        let p = &self.parameters;
        let first = if self.bursts > 0.0 { p.boost_periods_burst } else { p.boost_periods };
        let enough = |streak: f64, periods: f64| streak >= periods - 1e-6;
        [
            enough(self.streak, first + more),
            enough(self.bursts, p.boost_periods_burst + more_bursts),
        ]
    }

    fn rise_or_fade(&mut self, share: f64) {
        let p = &self.parameters;
        let lasts = self.earns(p.lasting_boost_periods, p.lasting_boost_periods_burst);
        if lasts.contains(&true) {
            let climbed = self.boost + p.proportional_gain * share;
            self.boost = climbed.max(p.boost_step_pct).min(100.0 + p.proportional_gain);
        } else if self.hold > 0.0 {
            let missing = (p.boost_step_pct - self.boost).max(0.0);
            self.boost += missing * (1.0 - (1.0 - p.boost_rise).powf(share));
        } else {
            self.boost *= p.boost_fade.powf(share);
        }
    }

    fn decide(&mut self) -> PState {
        let output = self.regulated.max(self.boost);
        let passed = |pair: &&[f64]| output >= (pair[0] + pair[1]) / 2.0;
        let steps = self.places.windows(2).take_while(passed).count();
        self.pstate = PState(self.parameters.base_pstate + steps as u8);
        self.pstate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller() -> Controller {
        Controller::new(&Chip::built_in("m2").unwrap())
    }

    fn window(occupied_ms: f64, credited_ms: f64, stretch_ms: f64) -> Sample {
        Sample {
            window: Span::ms(8),
            occupied: Span::from_ms(occupied_ms),
            credited: Span::from_ms(credited_ms),
            stretch: Span::from_ms(stretch_ms),
        }
    }

    /// P-states of `n` equal windows.
    fn run(controller: &mut Controller, sample: Sample, n: usize) -> Vec<u8> {
        (0..n).map(|_| controller.sample(&sample).0).collect()
    }

    #[test]
    fn full_load_is_boosted_and_then_regulated_to_the_top() {
        let mut controller = controller();
        controller.clear();
        let states = run(&mut controller, window(8.0, 8.0, 100.0), 9);
        assert_eq!(states, [1, 3, 4, 4, 4, 4, 7, 8, 8]);
    }

    #[test]
    fn credited_gaps_boost_late_and_lastingly() {
        let states = run(&mut controller(), window(5.0, 8.0, 0.6), 80);
        let first = |p: u8| states.iter().position(|s| *s >= p).unwrap() + 1;
        assert_eq!((first(3), first(4), first(5), first(8)), (5, 6, 57, 60));
        assert!(states[59..].iter().all(|s| *s == 8));
        assert!(states[30..50].iter().all(|s| *s < 4), "in between it sags: {states:?}");
    }

    #[test]
    fn bursts_climb_without_the_regulator() {
        let mut controller = controller();
        controller.parameters.proportional_gain = 0.0;
        controller.parameters.integral_gain = 0.0;
        let states = run(&mut controller, window(7.5, 8.0, 5.0), 30);
        let first = |p: u8| states.iter().position(|s| *s >= p).unwrap() + 1;
        assert_eq!((first(3), first(4)), (2, 3));
        assert!(states[10..].iter().all(|s| *s == 4), "the step is taken again: {states:?}");
    }

    #[test]
    fn a_burst_within_a_streak_is_boosted_anew() {
        let mut controller = controller();
        run(&mut controller, window(5.0, 8.0, 0.6), 40);
        let sagged = controller.pstate();
        let states = run(&mut controller, window(7.5, 8.0, 5.0), 3);
        assert!(sagged < PState(4) && states.contains(&4), "{sagged:?} and {states:?}");
    }

    #[test]
    fn gaps_too_long_never_boost() {
        assert!(run(&mut controller(), window(6.0, 6.0, 0.6), 1000).iter().all(|s| *s == 1));
    }

    #[test]
    fn one_hiccup_of_the_host_costs_nothing() {
        let mut controller = controller();
        run(&mut controller, window(5.0, 8.0, 0.6), 80);
        assert_eq!(run(&mut controller, window(5.0, 6.0, 0.6), 1), [8]);
        assert!(run(&mut controller, window(5.0, 8.0, 0.6), 50).iter().all(|s| *s == 8));
        assert!(*run(&mut controller, window(5.0, 6.0, 0.6), 50).last().unwrap() < 8);
    }

    #[test]
    fn a_clock_outlives_a_short_time_without_power() {
        let check = |load: usize, off_ms: u64, low: u8, high: u8| {
            let mut controller = controller();
            run(&mut controller, window(8.0, 8.0, 100.0), load);
            let state = controller.power_on(Span::ms(off_ms)).0;
            assert!((low..=high).contains(&state), "P{state} after {load} and {off_ms} ms");
            state
        };
        for load in [25, 60, 500] {
            check(load, 100, 8, 8);
            check(load, 198, 1, 4);
            check(load, 350, 1, 1);
        }
    }

    #[test]
    fn a_reset_controller_is_quicker_than_a_decayed_one() {
        let periods_to_top = |off: Span| {
            let mut controller = controller();
            run(&mut controller, window(8.0, 8.0, 100.0), 100);
            controller.power_on(off);
            let states = run(&mut controller, window(8.0, 8.0, 100.0), 20);
            states.iter().position(|s| *s == 8).unwrap() + 1
        };
        assert_eq!([300, 500, 700, 1000].map(|ms| periods_to_top(Span::ms(ms))), [8, 8, 4, 4]);
    }

    #[test]
    fn a_window_in_two_parts_is_nearly_the_window() {
        let halves =
            Sample { window: Span::ms(4), occupied: Span::from_ms(3.5), ..window(3.5, 4.0, 3.5) };
        let (mut whole, mut parts) = (controller(), controller());
        run(&mut whole, window(7.0, 8.0, 3.5), 100);
        run(&mut parts, halves, 200);
        assert_eq!(whole.pstate(), parts.pstate());
        assert!((whole.filtered - parts.filtered).abs() < 1e-6);
    }
}
