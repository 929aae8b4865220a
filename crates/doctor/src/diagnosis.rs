//! What an examination found: rows of causes, what was tried against them, and a verdict.

use crate::instrument::Instrument;
use crate::remedies::Trials;
use serde::Serialize;

/// One cause on one machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Finding {
    /// It is there.
    Seen {
        /// What it adds to a first token. Unit: ms.
        ms: f64,
        /// Lower end of the 95 % interval.
        lo: f64,
        /// Upper end.
        hi: f64,
        /// When, and what else was seen of it.
        detail: String,
    },
    /// It is not there, or too small to matter.
    NotSeen {
        /// The largest effect that the measurement would have missed. Unit: ms.
        missed_at_most_ms: f64,
    },
    /// It was not looked for.
    LeftOut {
        /// Why not.
        why: String,
    },
    /// The measurement can't tell.
    CantTell {
        /// Why.
        why: String,
    },
}

impl Finding {
    /// Milliseconds of a cause that is there; 0 of others.
    pub fn ms(&self) -> f64 {
        match self {
            Finding::Seen { ms, .. } => *ms,
            _ => 0.0,
        }
    }
}

/// A cause with what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// A short name that stays: `clock-decay`.
    pub cause: &'static str,
    /// For people.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// What was found.
    #[serde(flatten)]
    pub finding: Finding,
    /// What could be done about it, in words; empty if it is not seen.
    pub helps: Vec<String>,
}

/// What all of it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// No cause that matters, and each was looked for.
    NothingToGain,
    /// At least one cause was seen.
    SomethingToGain,
    /// None was seen, and at least one could not be told.
    CantTell,
}

/// Everything that an examination found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The device's id.
    pub device: String,
    /// Its maker's name.
    pub device_name: String,
    /// True for a modelled one.
    pub simulated: bool,
    /// The examination was a quick one.
    pub quick: bool,
    /// How long it took on the device's clock. Unit: s.
    pub took_s: f64,
    /// What it comes to.
    pub verdict: Verdict,
    /// The verdict in a sentence or two.
    pub summary: Vec<String>,
    /// The causes.
    pub causes: Vec<Row>,
    /// What was tried; `None` if there was no reason to, or no time.
    pub trials: Option<Trials>,
    /// The instrument, measured first.
    pub instrument: Instrument,
    /// What is known of the device and of the state in which it was found.
    pub facts: Vec<(String, String)>,
}

impl Verdict {
    /// The verdict on these rows.
    pub fn of(rows: &[Row]) -> Verdict {
        let any = |test: fn(&Finding) -> bool| rows.iter().any(|row| test(&row.finding));
        if any(|f| matches!(f, Finding::Seen { .. })) {
            Verdict::SomethingToGain
        } else if any(|f| matches!(f, Finding::CantTell { .. })) {
            Verdict::CantTell
        } else {
            Verdict::NothingToGain
        }
    }
}
