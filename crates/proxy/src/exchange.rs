//! One request and its response: what is told to the warmer, and what is counted.
//!
//! An [`Exchange`] begins with the head and is accounted for when it is dropped, whatever became
//! of it. A [`Tap`] sends copies of the response's bytes to a task that meters them; nothing on the
//! way to the client waits for it.

use crate::metrics::Metrics;
use bytes::Bytes;
use everwarm_governor::Event;
use everwarm_hold::Handle as Warmer;
use everwarm_stream::{End, Framing, Meter};
use http::{HeaderMap, Method, header, request};
use std::sync::Arc;
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
        let (pieces, mut inbox) = mpsc::unbounded_channel::<(Instant, Piece)>();
        let (warmer, metrics, began) = (self.warmer.clone(), Arc::clone(&self.metrics), self.began);
        let on_base = move |at: Instant| {
            let span = at.saturating_duration_since(began).into();
            everwarm_units::Instant::ZERO + span
        };
        tokio::spawn(async move {
            let mut meter = Meter::new(on_base(began), framing);
            let mut end = (Instant::now(), End::Cut);
            while let Some((at, piece)) = inbox.recv().await {
                match piece {
                    Piece::Bytes(bytes) => {
                        if meter.on_bytes(on_base(at), &bytes) {
                            warmer.tell(Event::DecodeRunning);
                        }
                    }
                    Piece::Complete => end = (at, End::Complete),
                }
            }
            meter.on_end(on_base(end.0), end.1);
            metrics.measured(&meter);
        });
        Some(Tap { pieces })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
        self.metrics.ended(self.outcome, self.began.elapsed());
        let work = self.work;
        self.warmer.tell(match self.outcome {
            Outcome::Complete => Event::ResponseFinished { work },
            _ => Event::ResponseAborted { work },
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

enum Piece {
    Bytes(Bytes),
    Complete,
}

pub(crate) struct Tap {
    pieces: mpsc::UnboundedSender<(Instant, Piece)>,
}

impl Tap {
    pub(crate) fn bytes(&self, bytes: &Bytes) {
        let _ = self.pieces.send((Instant::now(), Piece::Bytes(bytes.clone())));
    }

    pub(crate) fn complete(self) {
        let _ = self.pieces.send((Instant::now(), Piece::Complete));
    }
}
