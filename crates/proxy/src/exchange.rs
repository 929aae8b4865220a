//! One request and its response: what is told to the warmer, and what is counted.
//!
//! An [`Exchange`] begins with the head and is accounted for when it is dropped, whatever became
//! of it. A [`Tap`] sends copies of the response's bytes to a task that meters them; nothing on the
//! way to the client waits for it.

use crate::metrics::Metrics;
use bytes::Bytes;
use everwarm_governor::{Ending, Event};
use everwarm_hold::Handle as Warmer;
use everwarm_stream::{End, Framing, Meter};
use http::{HeaderMap, Method, header, request};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::mpsc;

/// What became of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Both sides had everything.
    Complete,
    /// The client left.
    ClientAbort,
    /// The upstream cut its response.
    UpstreamCut,
    /// The upstream gave none.
    UpstreamFailure,
}

pub(crate) struct Exchange {
    warmer: Warmer,
    metrics: Arc<Metrics>,
    /// May make the device work.
    work: bool,
    /// When the head was here.
    pub(crate) began: Instant,
    outcome: Outcome,
}

impl Exchange {
    /// Tells the warmer of the head at once.
    pub(crate) fn begin(warmer: &Warmer, metrics: &Arc<Metrics>, head: &request::Parts) -> Self {
        let work = !head.method.is_safe() && head.method != Method::CONNECT;
        warmer.tell(Event::RequestHead { work });
        if preflight(head) {
            warmer.tell(Event::Preflight);
        }
        if expects(&head.headers) && work {
            warmer.tell(Event::ExpectContinue);
        }
        metrics.in_flight.inc();
        Exchange {
            warmer: warmer.clone(),
            metrics: Arc::clone(metrics),
            work,
            began: Instant::now(),
            outcome: Outcome::ClientAbort,
        }
    }

    pub(crate) fn forwarded(&self) {
        self.warmer.tell(Event::RequestForwarded { work: self.work });
    }

    pub(crate) fn complete(&mut self) {
        self.outcome = Outcome::Complete;
    }

    pub(crate) fn cut(&mut self) {
        self.outcome = Outcome::UpstreamCut;
    }

    pub(crate) fn failed(&mut self) {
        self.outcome = Outcome::UpstreamFailure;
    }

    /// A tap for the response with these headers; `None` where there is nothing to read.
    pub(crate) fn tap(&self, headers: &HeaderMap) -> Option<Tap> {
        let text = |name| headers.get(name).and_then(|v| v.to_str().ok());
        let framing = Framing::of(text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING));
        if framing == Framing::Opaque || !self.work {
            return None;
        }
        let (pieces, mut inbox) = mpsc::channel::<(Instant, Bytes)>(TAP_MAX);
        let ended = Arc::new(OnceLock::new());
        let tap = Tap { pieces: Some(pieces), ended: Arc::clone(&ended) };
        let (warmer, metrics, began) = (self.warmer.clone(), Arc::clone(&self.metrics), self.began);
        let on_base = move |at: Instant| {
            let span = at.saturating_duration_since(began).into();
            everwarm_units::Instant::ZERO + span
        };
        tokio::spawn(async move {
            let mut meter = Meter::new(on_base(began), framing);
            let mut read = 0;
            while let Some((at, bytes)) = inbox.recv().await {
                read += bytes.len();
                if meter.on_bytes(on_base(at), &bytes) {
                    warmer.tell(Event::DecodeRunning);
                }
            }
            let (at, end) = ended.get().copied().unwrap_or((Instant::now(), TapEnd::Cut));
            let end = match end {
                TapEnd::Complete => End::Complete,
                TapEnd::Cut => End::Cut,
                TapEnd::Overrun => {
                    metrics.unmetered.inc();
                    return;
                }
            };
            let mut measure = move || {
                meter.on_end(on_base(at), end);
                metrics.measured(&meter);
            };
            // A whole document is read at its end, and others' pieces would wait for that.
            match framing == Framing::Json && read > READ_AT_ONCE_MAX {
                true => drop(tokio::task::spawn_blocking(measure)),
                false => measure(),
            }
        });
        Some(tap)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        self.metrics.ended(self.outcome, self.began.elapsed());
        let work = self.work;
        self.warmer.tell(match self.outcome {
            Outcome::Complete => {
                Event::ResponseFinished { work, session: None, ending: Ending::Unknown }
            }
            _ => Event::ResponseAborted { work, session: None },
        });
    }
}

/// A browser's question whether it may send what makes the device work.
fn preflight(head: &request::Parts) -> bool {
    let asked = head.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD);
    let safe = |m: &http::HeaderValue| matches!(m.as_bytes(), b"GET" | b"HEAD" | b"OPTIONS");
    head.method == Method::OPTIONS && asked.is_some_and(|m| !safe(m))
}

/// The client waits to be told before it sends its body.
pub(crate) fn expects(headers: &HeaderMap) -> bool {
    let value = headers.get(header::EXPECT);
    value.is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Pieces that may wait for the meter. More means that bytes pass faster than they can be read,
/// which no model speaks; memory must not grow for it.
const TAP_MAX: usize = 1024;

/// JSON that is parsed on the thread that relays: some 0.1 ms. Unit: B. Source: guess.
const READ_AT_ONCE_MAX: usize = 32 * 1024;

#[derive(Clone, Copy, Debug)]
enum TapEnd {
    Complete,
    Cut,
    Overrun,
}

pub(crate) struct Tap {
    pieces: Option<mpsc::Sender<(Instant, Bytes)>>,
    ended: Arc<OnceLock<(Instant, TapEnd)>>,
}

impl Tap {
    pub(crate) fn bytes(&mut self, bytes: &Bytes) {
        let Some(pieces) = &self.pieces else { return };
        if pieces.try_send((Instant::now(), bytes.clone())).is_err() {
            self.end(TapEnd::Overrun);
        }
    }

    pub(crate) fn complete(mut self) {
        self.end(TapEnd::Complete);
    }

    fn end(&mut self, end: TapEnd) {
        // The first word counts: what was overrun is not complete.
        let _ = self.ended.set((Instant::now(), end));
        self.pieces = None;
    }
}
