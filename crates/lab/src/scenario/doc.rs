//! A scenario file as it is written. `read.rs` turns it into a plan and holds it to the rules.

use super::value::{Count, Depth, Duration, Pin, Telemetry, Work};
use serde::Deserialize;
use toml::{Spanned, Value};

/// The whole file, its sweep taken out and its variables filled in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioDoc {
    pub name: Option<String>,
    pub about: Option<String>,
    pub rounds: Option<Spanned<Count>>,
    pub seed: Option<u64>,
    pub order: Option<Order>,
    pub telemetry: Option<Telemetry>,
    #[serde(default)]
    pub actor: Vec<Spanned<ActorDoc>>,
    pub steps: Option<Vec<Spanned<StepDoc>>>,
    /// Taken out before; named here so that errors list it.
    #[serde(rename = "sweep")]
    _sweep: Option<Value>,
}

/// In which order cells and rounds are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Every cell once, then all again, for each round.
    #[default]
    Interleaved,
    /// All rounds of a cell, then the next cell.
    CellByCell,
}

/// One host thread.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActorDoc {
    pub name: String,
    #[serde(default)]
    pub background: bool,
    /// Read before; named here so that errors list it.
    #[serde(rename = "when")]
    _when: Option<Value>,
    pub steps: Vec<Spanned<StepDoc>>,
}

/// One step; which one, its only main key says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDoc {
    // Main keys.
    pub idle: Option<Duration>,
    pub run: Option<Work>,
    pub prefill: Option<Count>,
    pub decode: Option<Count>,
    pub answer: Option<Count>,
    #[serde(rename = "await")]
    pub wait_for: Option<String>,
    pub signal: Option<String>,
    pub pin: Option<Pin>,
    pub steps: Option<Vec<Spanned<StepDoc>>>,
    // Of any step.
    pub label: Option<String>,
    #[serde(rename = "when")]
    _when: Option<Value>,
    // Of some.
    pub lead: Option<Duration>,
    pub jitter: Option<Duration>,
    pub spin: Option<bool>,
    pub times: Option<Count>,
    #[serde(rename = "for")]
    pub span: Option<Duration>,
    pub in_flight: Option<Depth>,
    pub deep: Option<Count>,
    pub sleep: Option<Duration>,
    pub delay: Option<Duration>,
    pub gap: Option<Duration>,
    pub drain: Option<bool>,
    pub runtime: Option<String>,
    pub context: Option<Count>,
    pub prompt: Option<Count>,
    pub repeat: Option<Count>,
}

impl StepDoc {
    /// The main keys that are there.
    pub fn main_keys(&self) -> Vec<&'static str> {
        let all = [
            ("idle", self.idle.is_some()),
            ("run", self.run.is_some()),
            ("prefill", self.prefill.is_some()),
            ("decode", self.decode.is_some()),
            ("answer", self.answer.is_some()),
            ("await", self.wait_for.is_some()),
            ("pin", self.pin.is_some()),
            ("steps", self.steps.is_some()),
            // With `idle` it is that step's, alone it is a step.
            ("signal", self.signal.is_some() && self.idle.is_none()),
        ];
        all.into_iter().filter(|(_, there)| *there).map(|(key, _)| key).collect()
    }

    /// The other keys that are there, each with the main keys it belongs to.
    pub fn other_keys(&self) -> Vec<(&'static str, &'static [&'static str])> {
        const MODEL: &[&str] = &["prefill", "decode", "answer"];
        let all: [(&str, bool, &[&str]); 14] = [
            ("lead", self.lead.is_some(), &["idle"]),
            ("jitter", self.jitter.is_some(), &["idle"]),
            ("spin", self.spin.is_some(), &["idle"]),
            ("times", self.times.is_some(), &["run"]),
            ("for", self.span.is_some(), &["run"]),
            ("in_flight", self.in_flight.is_some(), &["run"]),
            ("deep", self.deep.is_some(), &["run"]),
            ("sleep", self.sleep.is_some(), &["run"]),
            ("delay", self.delay.is_some(), &["run"]),
            ("gap", self.gap.is_some(), &["run"]),
            ("drain", self.drain.is_some(), &["run"]),
            ("runtime", self.runtime.is_some(), MODEL),
            ("context", self.context.is_some(), &["decode"]),
            ("prompt", self.prompt.is_some(), &["answer"]),
        ];
        let repeat = ("repeat", self.repeat.is_some(), &["steps"][..]);
        let there = all.into_iter().chain([repeat]).filter(|(_, there, _)| *there);
        there.map(|(key, _, belongs)| (key, belongs)).collect()
    }
}
