//! The kinds of record under a manifest. Every instant is in ns since the start of the run.

use crate::Manifest;
use serde::{Deserialize, Serialize};

/// One record of a run.
///
/// On a line of its own with its kind in front: `{"kind":"dispatch",...}`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Record {
    /// The head of the run; the first record and the only one of its kind.
    Manifest(Manifest),
    /// A command buffer that has ended.
    Dispatch(Dispatch),
    /// A reading of cumulative counters.
    Telemetry(Telemetry),
    /// A request or a prefill.
    Request(Request),
    /// A point of interest.
    Mark(Mark),
}

/// A command buffer that has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// The host actor that committed it.
    pub actor: String,
    /// Its queue, numbered within the device handle.
    pub queue: u32,
    /// Running number of the commit within the actor.
    pub number: u64,
    /// The round of an interleaved experiment.
    pub round: Option<u32>,
    /// The cell (condition, configuration) of an experiment.
    pub cell: Option<String>,
    /// The step of the scenario that it belongs to.
    #[serde(default)]
    pub step: Option<String>,
    /// The work, in words: `fma 2000 x 65536`.
    pub kernel: String,
    /// Floating-point operations, where they are what is measured.
    pub flops: Option<f64>,
    /// Bytes of memory traffic, where they are what is measured.
    pub bytes: Option<f64>,
    /// When the host committed it.
    pub committed_ns: u64,
    /// When the GPU began it.
    pub gpu_start_ns: u64,
    /// When the GPU ended it.
    pub gpu_end_ns: u64,
    /// When the host learned of its end.
    pub observed_ns: u64,
    /// From the end of the queue's previous buffer to this one's start, on the GPU timeline.
    pub gap_ns: Option<u64>,
    /// The p-state at its start (0: off).
    pub pstate: Option<u8>,
    /// The mean core clock while it ran, where the work itself could count cycles.
    #[serde(default)]
    pub clock_hz: Option<f64>,
    /// How late a real-time simulation was with it.
    pub late_ns: Option<u64>,
    /// Why it should be looked at twice: `late`, `throttled`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// A reading of cumulative counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// When they were read.
    pub at_ns: u64,
    /// Time in each p-state since the run began. Shape: index 0 is off, then P1 upwards.
    pub residency_ns: Option<Vec<u64>>,
    /// Energy of the GPU rail since the run began.
    pub gpu_energy_j: Option<f64>,
    /// Energy of the CPU spent on submission since the run began.
    pub cpu_energy_j: Option<f64>,
    /// The p-state at that moment.
    pub pstate: Option<u8>,
    /// The clock at that moment.
    pub clock_hz: Option<f64>,
    /// The clock of the memory at that moment.
    #[serde(default)]
    pub memory_clock_hz: Option<f64>,
    /// Power, as the device averages it.
    #[serde(default)]
    pub power_w: Option<f64>,
    /// The temperature of the die. Unit: degree Celsius.
    #[serde(default)]
    pub temperature_c: Option<f64>,
    /// What kept the clock down at that moment; empty if nothing did.
    #[serde(default)]
    pub limited_by: Option<Vec<String>>,
    /// Share of the time with work running, since the run began.
    pub busy: Option<f64>,
}

/// A request to a server, or a prefill of a modelled one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The host actor or client that sent it.
    pub actor: String,
    /// Running number within the actor.
    pub number: u64,
    /// The round of an interleaved experiment.
    pub round: Option<u32>,
    /// The cell (condition) of an experiment.
    pub cell: Option<String>,
    /// Where it was measured: `host`, `client`, `proxy`.
    pub measured_at: String,
    /// Tokens of the prompt, as the server counts them.
    pub prompt_tokens: Option<u32>,
    /// Tokens generated.
    pub generated_tokens: Option<u32>,
    /// When it was sent (or the prefill began).
    pub sent_ns: u64,
    /// When the first non-empty token was there.
    pub first_token_ns: Option<u64>,
    /// When the answer had ended.
    pub end_ns: Option<u64>,
    /// When the GPU began the first buffer of the prefill.
    pub prefill_gpu_start_ns: Option<u64>,
    /// How late a real-time simulation was with it, at most.
    pub late_ns: Option<u64>,
    /// Why it should be looked at twice: `late`, `tokens`, `error`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// A point of interest, named by the scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// When.
    pub at_ns: u64,
    /// The host actor that passed it.
    pub actor: String,
    /// Its name.
    pub name: String,
    /// The round of an interleaved experiment.
    pub round: Option<u32>,
    /// The cell of an experiment.
    pub cell: Option<String>,
}
