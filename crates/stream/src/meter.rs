//! Times and counts of one response.

use crate::EVENT_MAX;
use crate::content::{Facts, read};
use crate::ending::{Ending, ending};
use crate::lines::{Line, Lines};
use crate::sse::Sse;
use everwarm_units::{Instant, Span};

/// Content times that are kept; further ones are only counted.
pub const TIMES_MAX: usize = 1 << 16;

/// How a response's body is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// `text/event-stream`.
    Events,
    /// One JSON value a line (`application/x-ndjson`).
    JsonLines,
    /// One JSON value in all.
    Json,
    /// Something else, or compressed: only its bytes are timed.
    Opaque,
}

impl Framing {
    /// By the values of `Content-Type` and `Content-Encoding`.
    pub fn of(content_type: Option<&str>, content_encoding: Option<&str>) -> Self {
        let plain = content_encoding.is_none_or(|e| e.trim().eq_ignore_ascii_case("identity"));
        let kind = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
        match kind.trim().to_ascii_lowercase().as_str() {
            _ if !plain => Framing::Opaque,
            "text/event-stream" => Framing::Events,
            "application/x-ndjson" | "application/jsonl" | "application/x-jsonlines" => {
                Framing::JsonLines
            }
            "application/json" => Framing::Json,
            _ => Framing::Opaque,
        }
    }
}

/// How the body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Properly.
    Complete,
    /// It was cut.
    Cut,
}

enum Reader {
    Events(Sse),
    JsonLines(Lines),
    Json(Option<Vec<u8>>),
    Opaque,
}

/// Reads along with one response. See the crate's contract.
pub struct Meter {
    sent: Instant,
    reader: Reader,
    first_byte: Option<Instant>,
    last_byte: Option<Instant>,
    times: Vec<Instant>,
    contents: u64,
    last_content: Option<Instant>,
    finish: Option<String>,
    calls: bool,
    response: Option<String>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    error: Option<String>,
    timings: Option<serde_json::Value>,
    end: Option<End>,
}

impl Meter {
    /// A meter for the response to a request that was sent at `sent`.
    pub fn new(sent: Instant, framing: Framing) -> Self {
        Meter {
            sent,
            reader: match framing {
                Framing::Events => Reader::Events(Sse::new(EVENT_MAX)),
                Framing::JsonLines => Reader::JsonLines(Lines::of_json(EVENT_MAX)),
                Framing::Json => Reader::Json(Some(Vec::new())),
                Framing::Opaque => Reader::Opaque,
            },
            first_byte: None,
            last_byte: None,
            times: Vec::new(),
            contents: 0,
            last_content: None,
            finish: None,
            calls: false,
            response: None,
            prompt_tokens: None,
            completion_tokens: None,
            error: None,
            timings: None,
            end: None,
        }
    }

    /// Body bytes that were seen at `now`; returns true if the first content was among them.
    pub fn on_bytes(&mut self, now: Instant, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return false;
        }
        let none_yet = self.contents == 0;
        self.first_byte.get_or_insert(now);
        self.last_byte = Some(now);
        let mut seen: Vec<Facts> = Vec::new();
        match &mut self.reader {
            Reader::Events(sse) => sse.push(bytes, |event| seen.extend(read(event.data))),
            Reader::JsonLines(lines) => lines.push(bytes, |line| seen.extend(read_line(line))),
            Reader::Json(Some(body)) if body.len() + bytes.len() <= EVENT_MAX => {
                body.extend_from_slice(bytes);
            }
            Reader::Json(body) => *body = None,
            Reader::Opaque => {}
        }
        seen.into_iter().for_each(|facts| self.take(now, facts));
        none_yet && self.contents > 0
    }

    /// The body ended at `now`. A whole answer's content counts as seen at its last byte.
    pub fn on_end(&mut self, now: Instant, end: End) {
        self.end = Some(end);
        let mut seen: Vec<Facts> = Vec::new();
        match &mut self.reader {
            Reader::JsonLines(lines) => lines.finish(|line| seen.extend(read_line(line))),
            Reader::Json(body) => seen.extend(body.take().and_then(|body| read(&body))),
            Reader::Events(_) | Reader::Opaque => {}
        }
        let at = self.last_byte.unwrap_or(now);
        seen.into_iter().for_each(|facts| self.take(at, facts));
    }

    fn take(&mut self, now: Instant, facts: Facts) {
        if facts.content {
            self.contents += 1;
            self.last_content = Some(now);
            if self.times.len() < TIMES_MAX {
                self.times.push(now);
            }
        }
        self.calls |= facts.calls;
        self.finish = facts.finish.or(self.finish.take());
        self.response = facts.response.or(self.response.take());
        self.prompt_tokens = facts.prompt_tokens.or(self.prompt_tokens);
        self.completion_tokens = facts.completion_tokens.or(self.completion_tokens);
        self.error = self.error.take().or(facts.error);
        self.timings = facts.timings.or(self.timings.take());
    }

    /// From the request sent to the first non-empty content.
    pub fn ttft(&self) -> Option<Span> {
        self.times.first().map(|at| at.since(self.sent))
    }

    /// From the request sent to the first byte of the body.
    pub fn first_byte(&self) -> Option<Span> {
        self.first_byte.map(|at| at.since(self.sent))
    }

    /// Content events seen. A server may put several tokens into one.
    pub fn contents(&self) -> u64 {
        self.contents
    }

    /// The times between content events (ITL), up to [`TIMES_MAX`].
    pub fn gaps(&self) -> impl Iterator<Item = Span> + '_ {
        self.times.windows(2).map(|pair| pair[1].since(pair[0]))
    }

    /// Time per output token after the first (TPOT): by the server's token count where it gave
    /// one, else by content events. `None` for fewer than two.
    pub fn tpot(&self) -> Option<Span> {
        let (first, last) = (*self.times.first()?, self.last_content?);
        let tokens = self.completion_tokens.unwrap_or(self.contents).max(self.contents);
        if self.contents < 2 { None } else { Some(last.since(first) / (tokens - 1)) }
    }

    /// Why the answer ended, as the server words it.
    pub fn finish_reason(&self) -> Option<&str> {
        self.finish.as_deref()
    }

    /// What the answer leaves its client to do, by what was read so far.
    pub fn ending(&self) -> Ending {
        let finish = match (&self.finish, self.end) {
            _ if self.error.is_some() => None,
            (Some(finish), _) => Some(finish.as_str()),
            // Some servers give no reason, and a last event may be too large to be looked into.
            (None, Some(End::Complete)) if self.contents > 0 => Some(""),
            (None, _) => None,
        };
        finish.map_or(Ending::Unknown, |finish| ending(finish, self.calls))
    }

    /// The name that a later request may continue this answer by, if it has one.
    pub fn response_id(&self) -> Option<&str> {
        self.response.as_deref()
    }

    /// Tokens of the prompt, if the server told.
    pub fn prompt_tokens(&self) -> Option<u64> {
        self.prompt_tokens
    }

    /// Tokens of the answer, if the server told.
    pub fn completion_tokens(&self) -> Option<u64> {
        self.completion_tokens
    }

    /// An error that the server sent inside the body.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The server's `timings` object, if it sent one.
    pub fn timings(&self) -> Option<&serde_json::Value> {
        self.timings.as_ref()
    }

    /// How the body ended; `None` while it runs.
    pub fn end(&self) -> Option<End> {
        self.end
    }
}

fn read_line(line: Line<'_>) -> Option<Facts> {
    match line {
        Line::Whole(bytes) => read(bytes),
        Line::TooLong => None,
    }
}
