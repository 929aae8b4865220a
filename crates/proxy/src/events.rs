//! Event streams on their way through: told to be passed at once, and kept from falling silent.
//!
//! A stream's own bytes are never touched. Where the user asks for it, a comment (`:` and a blank
//! line) goes out when a stream has been silent for a while; only between two events, never before
//! the upstream's head, and never into a body whose length or coding would not bear it. What an
//! event means is not known here.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Source: nginx, which buffers what it proxies unless it is told not to.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A comment that is an event of its own for those who split at blank lines.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// True for a response that is an event stream.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kind = value.and_then(|v| v.split(|b| *b == b';').next());
    kind.is_some_and(|k| k.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
}

/// Keeps whatever else stands before the client from buffering or storing an event stream, unless
/// the upstream has had its own say.
pub(crate) fn mark(headers: &mut HeaderMap) {
    let marks = [(X_ACCEL_BUFFERING, "no"), (header::CACHE_CONTROL, "no-cache")];
    for (name, value) in marks {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Breaks the silence of one event stream.
pub(crate) struct KeepAlive {
    every: Duration,
    timer: Pin<Box<Sleep>>,
    place: Place,
}

/// Where in a stream its last byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing has come, or a blank line: between two events.
    Between,
    /// A line of an event has ended.
    LineStart,
    InLine,
    /// After a CR that may be half a line end; what the line was, blank or not, stands beside it.
    HalfEnd {
        blank: bool,
    },
}

impl Place {
    fn after(self, byte: u8) -> Self {
        match (self, byte) {
            (Place::HalfEnd { blank: true }, b'\n') => Place::Between,
            (Place::HalfEnd { blank: false }, b'\n') => Place::LineStart,
            // A lone CR ended its line, and this byte is the next one's.
            (Place::HalfEnd { .. }, b'\r') => Place::HalfEnd { blank: true },
            (Place::Between | Place::LineStart, b'\n') => Place::Between,
            (Place::Between | Place::LineStart, b'\r') => Place::HalfEnd { blank: true },
            (Place::InLine, b'\n') => Place::LineStart,
            (Place::InLine, b'\r') => Place::HalfEnd { blank: false },
            _ => Place::InLine,
        }
    }
}

impl KeepAlive {
    /// For a response with these headers, as they go to the client; `None` where a comment would
    /// break it.
    pub(crate) fn of(headers: &HeaderMap, every: Duration) -> Option<Self> {
        let fixed = [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::CONTENT_RANGE];
        let open = is_stream(headers) && !fixed.iter().any(|name| headers.contains_key(name));
        let timer = || Box::pin(tokio::time::sleep(every));
        open.then(|| KeepAlive { every, timer: timer(), place: Place::Between })
    }

    /// These bytes of the stream go to the client now.
    pub(crate) fn passed(&mut self, bytes: &[u8]) {
        self.place = bytes.iter().fold(self.place, |place, byte| place.after(*byte));
        self.rest();
    }

    /// A comment, when the stream has been silent for long enough where one may stand.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        if self.place != Place::Between {
            return Poll::Pending;
        }
        ready!(self.timer.as_mut().poll(cx));
        self.rest();
        Poll::Ready(COMMENT)
    }

    fn rest(&mut self) {
        self.timer.as_mut().reset(Instant::now() + self.every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(bytes: &[u8]) -> bool {
        bytes.iter().fold(Place::Between, |place, byte| place.after(*byte)) == Place::Between
    }

    #[test]
    fn only_between_events() {
        let check = |stream: &str, places: &[usize]| {
            let got: Vec<usize> =
                (0..=stream.len()).filter(|n| between(&stream.as_bytes()[..*n])).collect();
            assert_eq!(got, places, "{stream:?}");
        };
        check("", &[0]);
        check("data: a\n\ndata: b\n\n", &[0, 9, 18]);
        check("event: x\r\ndata: a\r\n\r\n:\r\n\r\n", &[0, 21, 26]);
        // Blank lines are nothing, and a comment in an event's midst keeps the event open.
        check("\n\n:a\ndata: b\n\n", &[0, 1, 2, 14]);
        // Whether a lone CR is a whole line end shows only with the next byte.
        check("data: a\r\r", &[0]);
        check("data: a\r\rx\n\n", &[0, 12]);
        check("data: a\n\r\n", &[0, 10]);
        check("data: 水\u{1F600}\n\n", &[0, 15]);
    }

    #[test]
    fn what_bears_no_comment_gets_none() {
        let check = |lines: &[(&'static str, &'static str)], expected: bool| {
            let map = lines
                .iter()
                .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)));
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = runtime.unwrap();
            let _in = runtime.enter();
            let every = Duration::from_secs(1);
            assert_eq!(KeepAlive::of(&map.collect(), every).is_some(), expected, "{lines:?}");
        };
        check(&[("content-type", "text/event-stream")], true);
        check(&[("content-type", "Text/Event-Stream; charset=utf-8")], true);
        check(&[("content-type", "application/json")], false);
        check(&[], false);
        check(&[("content-type", "text/event-stream"), ("content-length", "9")], false);
        check(&[("content-type", "text/event-stream"), ("content-encoding", "gzip")], false);
    }
}
