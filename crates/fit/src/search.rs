//! A coordinate search: each parameter in turn takes the best of a few steps, which shrink when
//! nothing gains.
//!
//! A controller's loss is piecewise constant (it decides once a period) and has about twenty
//! parameters, most of which act alone: gradients are useless, and a simplex of twenty corners
//! needs more runs than twenty lines. Knows nothing of what the parameters mean; a pure function of
//! its loss.

/// One parameter of a search. Bounds are part of the search, not of the file format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Where it begins.
    pub start: f64,
    /// The least it may be.
    pub min: f64,
    /// The most it may be.
    pub max: f64,
    /// Only whole numbers.
    pub whole: bool,
}

impl Axis {
    /// `value` moved by a share of itself, within the bounds.
    fn moved(&self, value: f64, share: f64) -> f64 {
        let moved = match self.whole {
            true if share > 0.0 => (value * (1.0 + share)).round().max(value + 1.0),
            true => (value / (1.0 - share)).round().min(value - 1.0),
            false if share > 0.0 => value * (1.0 + share),
            false => value / (1.0 - share),
        };
        moved.clamp(self.min, self.max)
    }
}

/// The end of a search. Shape: one value and one interval an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The best values found.
    pub values: Vec<f64>,
    /// For each axis the values between which the loss stays within the tolerance; `None` where
    /// the loss does not move at all.
    pub intervals: Vec<Option<(f64, f64)>>,
    /// The loss where the search began.
    pub loss_start: f64,
    /// The loss at the best values.
    pub loss: f64,
    /// How often the loss was asked for.
    pub evaluations: usize,
}

/// Shares by which a parameter moves, sweep by sweep.
const STEPS: [f64; 4] = [0.4, 0.2, 0.1, 0.05];
/// Shares at which a parameter's profile is looked at.
const PROFILE: [f64; 4] = [0.05, 0.1, 0.25, 0.6];

/// Lowers `loss` over `axes` within about `budget` evaluations, then walks along each axis from the
/// best values until the loss has risen by a `tolerance` share: its interval.
pub fn search(
    axes: &[Axis],
    budget: usize,
    tolerance: f64,
    loss: &mut dyn FnMut(&[f64]) -> f64,
) -> Fitted {
    let mut best: Vec<f64> = axes.iter().map(|a| a.start.clamp(a.min, a.max)).collect();
    let loss_start = loss(&best);
    let (mut least, mut evaluations) = (loss_start, 1);
    for share in STEPS {
        // A sweep that gained is worth another with the same steps.
        for _ in 0..2 {
            let before = least;
            for (n, axis) in axes.iter().enumerate() {
                for sign in [1.0, -1.0] {
                    while evaluations < budget {
                        let mut tried = best.clone();
                        tried[n] = axis.moved(best[n], sign * share);
                        if tried[n] == best[n] {
                            break;
                        }
                        let found = loss(&tried);
                        evaluations += 1;
                        if found >= least {
                            break;
                        }
                        (best, least) = (tried, found);
                    }
                }
            }
            if least > before * 0.98 {
                break;
            }
        }
    }
    let intervals = (0..axes.len()).map(|n| {
        let mut profile = Profile { axis: axes[n], at: n, best: &best, least, tolerance };
        profile.interval(&mut |values| {
            evaluations += 1;
            loss(values)
        })
    });
    let intervals = intervals.collect();
    Fitted { values: best, intervals, loss_start, loss: least, evaluations }
}

/// The loss along one axis.
struct Profile<'a> {
    axis: Axis,
    at: usize,
    best: &'a [f64],
    least: f64,
    tolerance: f64,
}

impl Profile<'_> {
    /// `None` if no step to either side raises the loss beyond the tolerance.
    fn interval(&mut self, loss: &mut dyn FnMut(&[f64]) -> f64) -> Option<(f64, f64)> {
        let (low, low_found) = self.side(-1.0, loss);
        let (high, high_found) = self.side(1.0, loss);
        (low_found || high_found).then_some((low, high))
    }

    /// The first value to one side at which the loss has risen, and whether there is one.
    fn side(&self, sign: f64, loss: &mut dyn FnMut(&[f64]) -> f64) -> (f64, bool) {
        let mut values = self.best.to_vec();
        for share in PROFILE {
            let moved = self.axis.moved(self.best[self.at], sign * share);
            if moved == values[self.at] {
                continue;
            }
            values[self.at] = moved;
            if loss(&values) > self.least * (1.0 + self.tolerance) {
                return (moved, true);
            }
        }
        (if sign < 0.0 { self.axis.min } else { self.axis.max }, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_found_and_what_does_not_is_said_so() {
        let axis = |start| Axis { start, min: 0.1, max: 100.0, whole: false };
        let whole = Axis { start: 3.0, min: 1.0, max: 20.0, whole: true };
        let mut loss = |v: &[f64]| {
            0.01 + (v[0] / 7.0).ln().abs() + 0.5 * (v[1] - 9.0).abs() // v[2] says nothing
        };
        let found = search(&[axis(2.0), whole, axis(5.0)], 400, 0.5, &mut loss);
        assert!((found.values[0] / 7.0 - 1.0).abs() < 0.05, "{found:?}");
        assert_eq!(found.values[1], 9.0);
        let (lo, hi) = found.intervals[0].unwrap();
        assert!(lo < 7.0 && 7.0 < hi, "{found:?}");
        assert_eq!(found.intervals[2], None);
        assert!(found.loss < found.loss_start);
    }
}
