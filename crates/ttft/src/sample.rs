//! One measured request, kept whatever became of it.

use crate::plan::{Condition, Step};
use serde::{Deserialize, Serialize};

/// Why a sample is void. It is kept and counted, but no number is made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Label {
    /// The real-time simulation, or what lies between it and the client, ran late.
    Late,
    /// The server counts another prompt length than for the other prompts of its kind.
    Tokens,
    /// The server found most of the prompt in its cache.
    Cached,
    /// It failed.
    Error,
}

/// One measured request. Times of day are CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The round, from 0.
    pub round: u32,
    /// Tokens that were asked for.
    pub tokens: u32,
    /// What came before it.
    pub condition: Condition,
    /// When the client began to connect.
    pub sent_ns: Option<u64>,
    /// From there to the connection.
    pub connect_ms: Option<f64>,
    /// From there to the first non-empty content.
    pub ttft_ms: Option<f64>,
    /// From there to the end of the answer.
    pub total_ms: Option<f64>,
    /// The server's count of the prompt.
    pub prompt_tokens: Option<u64>,
    /// The server's count of the answer.
    pub completion_tokens: Option<u64>,
    /// Prefill by the server's own clock.
    pub prompt_ms: Option<f64>,
    /// Tokenising by the server's own clock.
    pub tokenize_ms: Option<f64>,
    /// What the client measured less what the server says of the same prefill: connecting, the
    /// way there and back, and every wait for a free processor on it.
    pub overhead_ms: Option<f64>,
    /// From the pre-warm's submission to the start of the prefill on the GPU.
    pub lead_ms: Option<f64>,
    /// The latest that the real-time simulation ran.
    pub late_max_ms: Option<f64>,
    /// What 99 of 100 of its events stayed under.
    pub late_p99_ms: Option<f64>,
    /// Energy of the GPU rail, from the beginning of the idle time to the answer's end.
    pub gpu_j: Option<f64>,
    /// Energy of the CPU spent on submission, over the same time.
    pub cpu_j: Option<f64>,
    /// Why it is void; empty for a valid one.
    pub labels: Vec<Label>,
    /// What failed.
    pub error: Option<String>,
}

impl Sample {
    /// A sample of `step` that has nothing yet.
    pub fn new(step: Step) -> Self {
        Sample {
            round: step.round,
            tokens: step.tokens,
            condition: step.condition,
            sent_ns: None,
            connect_ms: None,
            ttft_ms: None,
            total_ms: None,
            prompt_tokens: None,
            completion_tokens: None,
            prompt_ms: None,
            tokenize_ms: None,
            overhead_ms: None,
            lead_ms: None,
            late_max_ms: None,
            late_p99_ms: None,
            gpu_j: None,
            cpu_j: None,
            labels: Vec::new(),
            error: None,
        }
    }

    /// True if numbers may be made of it.
    pub fn is_valid(&self) -> bool {
        self.labels.is_empty() && self.ttft_ms.is_some()
    }

    /// The sample with a failure.
    pub(crate) fn failed(mut self, error: String) -> Self {
        self.labels.push(Label::Error);
        self.error = Some(error);
        self
    }
}

/// True if a prompt has another length than those of its kind: a fifth off, and by more than the
/// three tokens by which prompts of as many words may differ.
pub(crate) fn wrong_length(expected: u64, counted: u64) -> bool {
    let off = counted.abs_diff(expected);
    off > 3 && off * 5 > expected
}
