//! An answer as OpenAI's API writes it: as one object, or as the events of a stream.
//!
//! The words are made up from a list and mean nothing; their number and their times are what this
//! server is for. Every finished answer carries `timings` in its last event.

use crate::ask::{Ask, Kind};
use crate::lateness::Lateness;
use crate::slot::Summary;
use everwarm_gpu::Monotonic;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const WORDS: &[&str] = &[
    "warm", "clock", "river", "after", "quiet", "light", "before", "stone", "every", "morning",
    "keeps", "slow", "engine", "under", "the", "north", "wind", "and", "returns", "again",
];

/// What all parts of one answer share.
pub(crate) struct Answer {
    ask: Ask,
    id: String,
    model: String,
    created: u64,
}

impl Answer {
    pub(crate) fn new(ask: Ask, served: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = match ask.kind {
            Kind::Chat => "chatcmpl",
            Kind::Completion => "cmpl",
        };
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = format!("{prefix}-{created:x}-{:x}-{number}", std::process::id());
        let model = ask.model.clone().unwrap_or_else(|| served.to_owned());
        Answer { ask, id, model, created }
    }

    pub(crate) fn ask(&self) -> &Ask {
        &self.ask
    }

    /// The event that opens a chat's stream; a completion has none.
    pub(crate) fn opening(&self) -> Vec<u8> {
        match self.ask.kind {
            Kind::Chat => {
                self.chunk(json!({"delta": {"role": "assistant", "content": ""}}), None, None)
            }
            Kind::Completion => Vec::new(),
        }
    }

    /// The event of token number `n`.
    pub(crate) fn token(&self, n: u32) -> Vec<u8> {
        match self.ask.kind {
            Kind::Chat => self.chunk(json!({"delta": {"content": word(n)}}), None, None),
            Kind::Completion => self.chunk(json!({"text": word(n)}), None, None),
        }
    }

    /// The last events, `[DONE]` included.
    pub(crate) fn ending(&self, timings: Value) -> Vec<u8> {
        let choice = match self.ask.kind {
            Kind::Chat => json!({"delta": {}}),
            Kind::Completion => json!({"text": ""}),
        };
        let mut events = if self.ask.include_usage {
            let mut events = self.chunk(choice, Some(self.finish_reason()), None);
            let mut last = self.frame();
            last["choices"] = json!([]);
            last["usage"] = self.usage();
            last["timings"] = timings;
            events.extend(event(&last));
            events
        } else {
            self.chunk(choice, Some(self.finish_reason()), Some(timings))
        };
        events.extend_from_slice(b"data: [DONE]\n\n");
        events
    }

    /// The whole answer.
    pub(crate) fn whole(&self, timings: Value) -> Value {
        let content: String = (0..self.ask.answer_tokens).map(word).collect();
        let mut choice = match self.ask.kind {
            Kind::Chat => json!({"message": {"role": "assistant", "content": content}}),
            Kind::Completion => json!({"text": content}),
        };
        choice["index"] = json!(0);
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = json!(self.finish_reason());
        let mut whole = self.frame();
        whole["object"] = json!(match self.ask.kind {
            Kind::Chat => "chat.completion",
            Kind::Completion => "text_completion",
        });
        whole["choices"] = json!([choice]);
        whole["usage"] = self.usage();
        whole["timings"] = timings;
        whole
    }

    /// The `timings` of a finished answer; `late` are all samples, delivery included.
    ///
    /// Times are the simulation's own: `queue_ms` from the request's body to the slot,
    /// `tokenize_ms` from there to the first command buffer's encoding, `prompt_ms` from there to
    /// the first token, `predicted_ms` from the first token to the last. `prefill_gpu_start_ns` is
    /// on CLOCK_MONOTONIC. `late_p99_ms` and `late_max_ms` say how far the wall clock was behind
    /// the simulation while it served this request, its queueing not counted.
    pub(crate) fn timings(&self, s: &Summary, late: &Lateness, epoch: Monotonic) -> Value {
        let (prompt_n, predicted_n) = (self.ask.prompt_tokens, self.ask.answer_tokens);
        let per_second = |n: u32, ms: f64| (ms > 0.0).then(|| f64::from(n) * 1e3 / ms);
        json!({
            "cache_n": 0,
            "prompt_n": prompt_n,
            "prompt_ms": s.prompt.as_ms(),
            "prompt_per_second": per_second(prompt_n, s.prompt.as_ms()),
            "tokenize_ms": s.tokenize.as_ms(),
            "queue_ms": s.queued.as_ms(),
            "predicted_n": predicted_n,
            "predicted_ms": s.predicted.as_ms(),
            "predicted_per_second": per_second(predicted_n - 1, s.predicted.as_ms()),
            "prefill_gpu_start_ns": epoch.at(s.prefill_gpu_start).0,
            "late_p99_ms": late.p99().as_ms(),
            "late_max_ms": late.max().as_ms(),
        })
    }

    fn finish_reason(&self) -> &'static str {
        if self.ask.ends_by_itself { "stop" } else { "length" }
    }

    fn usage(&self) -> Value {
        let (prompt, answer) = (self.ask.prompt_tokens, self.ask.answer_tokens);
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": answer,
            "total_tokens": u64::from(prompt) + u64::from(answer),
            "prompt_tokens_details": {"cached_tokens": 0},
        })
    }

    fn frame(&self) -> Value {
        json!({
            "id": self.id,
            "object": match self.ask.kind {
                Kind::Chat => "chat.completion.chunk",
                Kind::Completion => "text_completion",
            },
            "created": self.created,
            "model": self.model,
            "system_fingerprint": concat!("everwarm-", env!("CARGO_PKG_VERSION")),
        })
    }

    fn chunk(&self, mut choice: Value, finish: Option<&str>, timings: Option<Value>) -> Vec<u8> {
        choice["index"] = json!(0);
        choice["finish_reason"] = json!(finish);
        let mut chunk = self.frame();
        chunk["choices"] = json!([choice]);
        if let Some(timings) = timings {
            chunk["timings"] = timings;
        }
        event(&chunk)
    }
}

/// One server-sent event.
fn event(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// Token number `n` of any answer; never empty.
fn word(n: u32) -> String {
    let word = WORDS[n as usize * 7 % WORDS.len()];
    if n == 0 { word.to_owned() } else { format!(" {word}") }
}
