//! Is there an effect, how large is it, and what could have been missed?
//!
//! An effect is claimed when ranks say so (they know no tails that could be too heavy, and few values
//! can't claim much) and the interval of the difference lies above what would matter. Everything
//! else is either small for certain or not known.

use crate::diagnosis::Finding;
use everwarm_stats::{Bootstrap, Interval, rank_sum};

/// A claim is made if chance alone would make it less often than this.
pub const ALPHA: f64 = 0.01;

/// A difference between two conditions. Unit: ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// Difference of the medians, and its interval.
    pub ms: Interval,
    /// How often chance alone would rank the values so.
    pub p: f64,
}

/// What of an effect matters. Unit: ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Less is not worth a word, or not seen by the instrument.
    pub least: f64,
    /// If as much as this could have been missed, nothing was found out.
    pub tolerable: f64,
}

/// By how much `with` lies above `base`; `None` with fewer than two values of either.
pub fn effect(base: &[f64], with: &[f64]) -> Option<Effect> {
    let bootstrap = Bootstrap { confidence: 0.95, ..Bootstrap::default() };
    let ms = bootstrap.difference(base, with)?;
    Some(Effect { ms, p: rank_sum(base, with)? })
}

impl Effect {
    /// True if there is such an effect and it matters.
    pub fn is_seen(&self, scale: Scale) -> bool {
        self.p <= ALPHA && self.ms.lo >= scale.least
    }

    /// What is found. `detail` says more about an effect that is seen.
    pub fn finding(&self, scale: Scale, detail: impl FnOnce() -> String) -> Finding {
        let missed = self.ms.hi.max(scale.least);
        if self.is_seen(scale) {
            Finding::Seen { ms: self.ms.point, lo: self.ms.lo, hi: self.ms.hi, detail: detail() }
        } else if missed <= scale.tolerable {
            Finding::NotSeen { missed_at_most_ms: missed }
        } else {
            Finding::CantTell {
                why: format!(
                    "the measurement scatters: {:.1} ms, but anything from {:.1} to {:.1} ms would fit",
                    self.ms.point, self.ms.lo, self.ms.hi
                ),
            }
        }
    }
}

/// The finding of an effect that may not have been measured.
pub fn finding(
    effect: Option<Effect>,
    scale: Scale,
    detail: impl FnOnce(&Effect) -> String,
) -> Finding {
    match effect {
        Some(effect) => effect.finding(scale, || detail(&effect)),
        None => Finding::CantTell { why: "there was no time for enough samples".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { least: 0.5, tolerable: 3.0 };

    fn check(base: &[f64], with: &[f64], expected: &str) {
        let found = finding(effect(base, with), SCALE, |_| String::new());
        let word = match found {
            Finding::Seen { .. } => "seen",
            Finding::NotSeen { .. } => "not seen",
            Finding::LeftOut { .. } | Finding::CantTell { .. } => "can't tell",
        };
        assert_eq!(word, expected, "{base:?} {with:?}");
    }

    #[test]
    fn what_is_clear_is_seen() {
        check(&[0.0; 8], &[5.0; 3], "seen");
        check(&[0.0, 0.1, 0.2, 0.1, 0.0, 0.1, 0.2, 0.1], &[5.0, 5.2, 4.9], "seen");
    }

    #[test]
    fn what_is_too_small_or_equal_is_not() {
        check(&[0.0; 8], &[0.3; 3], "not seen");
        check(&[1.0; 8], &[1.0; 3], "not seen");
        check(&[5.0; 8], &[1.0; 3], "not seen");
    }

    #[test]
    fn what_is_noisy_or_hardly_measured_is_not_known() {
        check(&[0.0, 9.0, 1.0, 30.0, 2.0, 0.0, 7.0, 3.0], &[1.0, 40.0, 8.0], "can't tell");
        check(&[0.0; 3], &[5.0; 2], "can't tell");
        check(&[0.0; 8], &[5.0], "can't tell");
    }
}
