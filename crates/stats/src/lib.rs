//! Statistics of small, skewed samples: robust location, bootstrap intervals, plateaus.
//!
//! Timings have long right tails and come in handfuls, so the tools here assume no normality:
//! medians rather than means, intervals by resampling, change points by least squares with a
//! robust noise estimate. Randomness is seeded and every result is a pure function of its input;
//! the order of a sample does not matter (it does matter, of course, to the change points of a
//! series).
//!
//! Numbers are bare `f64`: a median of milliseconds is milliseconds. An empty sample gives `None`.
//! NaN is misuse and panics; it would otherwise sort somewhere and be reported as a measurement.

#![forbid(unsafe_code)]

mod bootstrap;
mod change;
mod location;
mod normal;
mod rank;

pub use bootstrap::{Bootstrap, Interval, penalty_removed};
pub use change::{Plateau, Run, Segmentation, change_points, merge_short_runs, noise, runs};
pub use location::{mad, mean, median, quantile, weighted_median, weighted_quantile};
pub use rank::rank_sum;
