//! Claims: figures that a device is held against, each with the scenario and the measure that
//! give it.
//!
//! docs/claims.md is the reference of the format.

mod check;
mod read;

pub(crate) use check::{Plan, in_parallel, threads};
pub use check::{Progress, Report, Verdict, check, check_chip};
pub use read::Error;

use crate::builtin;
use crate::measure::{Measure, Unit};
use crate::scenario::Scenario;
use std::path::Path;
use std::sync::Arc;

/// A claims file.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// In the file's order.
    pub claims: Vec<Claim>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Its name.
    pub id: String,
    /// What is submitted, in words.
    pub setup: String,
    /// What is read off, in words.
    pub metric: String,
    /// What it should be.
    pub expect: Expect,
    /// The unit of `expect`.
    pub unit: Option<Unit>,
    /// Claims that one device may be unable to meet together with this one.
    pub conflicts_with: Vec<String>,
    /// How it is measured.
    pub origin: Origin,
}

/// How a claim is measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// By this measure of this scenario.
    Known {
        /// What is submitted.
        scenario: Arc<Scenario>,
        /// What is read off.
        measure: Arc<Measure>,
    },
    /// Not at all, and why.
    Unknown(String),
}

/// What a claim expects, in its unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// One value, more or less.
    Value {
        /// The value.
        value: f64,
        /// How far off is still right.
        tol: f64,
    },
    /// Between two values, both included.
    Range {
        /// The lower end.
        lo: f64,
        /// The upper end.
        hi: f64,
    },
    /// One value a cell.
    List {
        /// The values, in the order of the cells.
        values: Vec<f64>,
        /// How far off is still right.
        tol: f64,
    },
}

impl Expect {
    /// True if every measured value is as expected.
    pub fn holds(&self, measured: &[f64]) -> bool {
        // Decimal tolerances should hold at their very ends, in spite of binary arithmetic.
        let near = |value: f64, expected: f64, tol: f64| {
            (value - expected).abs() <= tol + 1e-9 * expected.abs().max(1.0)
        };
        match self {
            Expect::Value { value, tol } => measured.iter().all(|m| near(*m, *value, *tol)),
            Expect::Range { lo, hi } => {
                let (middle, half) = ((lo + hi) / 2.0, (hi - lo) / 2.0);
                measured.iter().all(|m| near(*m, middle, half))
            }
            Expect::List { values, tol } => {
                values.len() == measured.len()
                    && measured.iter().zip(values).all(|(m, value)| near(*m, *value, *tol))
            }
        }
    }
}

impl Expect {
    /// Why a list can't hold for so many values; `None` if it can.
    pub(crate) fn miscounted(&self, measured: usize) -> Option<String> {
        let Expect::List { values, .. } = self else { return None };
        let expected = values.len();
        (expected != measured)
            .then(|| format!("{expected} values are expected, but {measured} were measured"))
    }
}

impl Claim {
    /// The measured value that strains the claim most; `None` if nothing was measured, or not as
    /// many values as are expected.
    pub fn worst(&self, verdict: &Verdict) -> Option<Worst> {
        let measured = verdict.measured.as_deref()?;
        if self.expect.miscounted(measured.len()).is_some() {
            return None;
        }
        let one = |(n, value): (usize, &f64)| {
            let (middle, half) = match &self.expect {
                Expect::Value { value, tol } => (*value, *tol),
                Expect::Range { lo, hi } => ((lo + hi) / 2.0, (hi - lo) / 2.0),
                Expect::List { values, tol } => (values[n], *tol),
            };
            let off = (value - middle).abs();
            let strain = if off == 0.0 { 0.0 } else { off / half };
            Worst { value: *value, middle, half, strain }
        };
        let all = measured.iter().enumerate().map(one);
        all.max_by(|a, b| a.strain.total_cmp(&b.strain))
    }

    /// How close a verdict is to the edge of what is expected: 0 in the middle, 1 at the edge, more
    /// beyond it; of several values the worst. Infinite if nothing was measured, or if an exact
    /// value was expected and missed.
    pub fn strain(&self, verdict: &Verdict) -> f64 {
        self.worst(verdict).map_or(f64::INFINITY, |worst| worst.strain)
    }
}

/// The one of several measured values that is nearest to being wrong, or the most wrong.
///
/// Unit: the claim's, but for `strain`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// As measured.
    pub value: f64,
    /// The middle of what was expected of it.
    pub middle: f64,
    /// Half the width of what is right; 0 where only one value is.
    pub half: f64,
    /// Its distance from the middle, by half the width: 1 at the edge, more beyond it.
    pub strain: f64,
}

impl std::fmt::Display for Expect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expect::Value { value, tol: 0.0 } => write!(f, "{value}"),
            Expect::Value { value, tol } => write!(f, "{value} ± {tol}"),
            Expect::Range { lo, hi } => write!(f, "{lo} to {hi}"),
            Expect::List { values, tol } => write!(f, "{values:?} ± {tol}"),
        }
    }
}

impl Claims {
    /// Reads a claims file's text; paths in it are relative to `folder`.
    ///
    /// # Errors
    /// [`Error`] says where, what stands there and what was expected.
    pub fn from_toml(file: &str, text: &str, folder: &Path) -> Result<Claims, Error> {
        read::read(file, text, folder)
    }

    /// The claims of the M2 study.
    pub fn built_in() -> Claims {
        Self::read_built_in(&builtin::CLAIMS[0])
    }

    /// The built-in claims of that name, such as `in-flight`.
    pub fn named(name: &str) -> Option<Claims> {
        builtin::CLAIMS.iter().find(|file| file.name == name).map(Self::read_built_in)
    }

    /// The names of the built-in claims files, the default first.
    pub fn names() -> Vec<&'static str> {
        builtin::CLAIMS.iter().map(|file| file.name).collect()
    }

    fn read_built_in(file: &builtin::BuiltIn) -> Claims {
        // A test reads them all, so that this can't fail for a user.
        let read = read::read(&file.shown("claims"), file.text, Path::new("."));
        read.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Only the claims whose id fits `pattern` (`*` and `?` as in a shell).
    pub fn only(mut self, pattern: &str) -> Claims {
        self.claims.retain(|claim| fits(pattern, &claim.id));
        self
    }
}

/// Whether `text` fits `pattern`, in which `*` and `?` stand for others as in a shell.
pub fn fits(pattern: &str, text: &str) -> bool {
    let chars = |text: &str| text.chars().collect::<Vec<_>>();
    fit(&chars(pattern), &chars(text))
}

fn fit(pattern: &[char], text: &[char]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        (['*', rest @ ..], _) => (0..=text.len()).any(|skipped| fit(rest, &text[skipped..])),
        (['?', rest @ ..], [_, text @ ..]) => fit(rest, text),
        ([p, rest @ ..], [t, text @ ..]) => p == t && fit(rest, text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expectations_include_their_ends() {
        let check = |expect: Expect, measured: &[f64], held: bool| {
            assert_eq!(expect.holds(measured), held, "{expect} {measured:?}");
        };
        check(Expect::Value { value: 0.32, tol: 0.01 }, &[0.33], true);
        check(Expect::Value { value: 0.32, tol: 0.01 }, &[0.33, 0.3305], false);
        check(Expect::Range { lo: 0.52, hi: 0.59 }, &[0.52, 0.59], true);
        check(Expect::Range { lo: 0.52, hi: 0.59 }, &[0.5199], false);
        check(Expect::List { values: vec![1.0, 2.0], tol: 0.0 }, &[1.0, 2.0], true);
        check(Expect::List { values: vec![1.0, 2.0], tol: 9.0 }, &[1.0], false);
    }

    #[test]
    fn patterns_choose_claims() {
        let check = |pattern: &str, text: &str, expected: bool| {
            assert_eq!(fits(pattern, text), expected, "{pattern} {text}");
        };
        check("gap.*", "gap.alu_first_5ms", true);
        check("gap.*", "queue.gap", false);
        check("*.first_?00ms", "deep.first_100ms", true);
        check("steady", "steady.stream", false);
    }
}
