//! Bodies on their way through: forwarded frame by frame, watched for their end.
//!
//! A request body keeps a copy of its first bytes, so that a request that met a dying connection
//! can be sent again; past [`REPLAY_MAX`] the copy is dropped and with it the second chance. A
//! response body carries everything that must end with it: the upstream connection, the exchange's
//! account, the meter's tap.

use crate::client::Client;
use crate::events::KeepAlive;
use crate::exchange::{Exchange, Tap};
use crate::pool::{Connection, Pool};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Sleep;

/// A prompt of some ten thousand words; memory per request in flight. Unit: B. Source: guess.
pub(crate) const REPLAY_MAX: usize = 64 * 1024;

/// A client's request body, for as many attempts as it takes.
#[derive(Clone)]
pub(crate) struct Replay(Arc<Mutex<Source>>);

struct Source {
    incoming: Incoming,
    kept: Vec<Bytes>,
    kept_bytes: usize,
    /// More was consumed than is kept.
    lost: bool,
    ended: bool,
    failed: bool,
    attempt: u32,
}

impl Replay {
    pub(crate) fn new(incoming: Incoming) -> Self {
        Replay(Arc::new(Mutex::new(Source {
            incoming,
            kept: Vec::new(),
            kept_bytes: 0,
            lost: false,
            ended: false,
            failed: false,
            attempt: 0,
        })))
    }

    /// Takes the whole body in, at most `limit` bytes, and says how long it is.
    ///
    /// For servers that refuse a body without a length; it holds the request back until then.
    pub(crate) async fn take_in(&self, limit: usize) -> Result<u64, TakeIn> {
        let took = std::future::poll_fn(|cx| self.lock().poll_take_in(cx, limit)).await;
        if took.is_err() {
            self.lock().failed = true;
        }
        took
    }

    /// The body from its beginning, for one more attempt; earlier ones get nothing more.
    pub(crate) fn body(&self, gate: Option<Gate>) -> RequestBody {
        let mut source = self.lock();
        source.attempt += 1;
        RequestBody { source: self.clone(), attempt: source.attempt, next: 0, gate }
    }

    /// True while all that was consumed is also kept.
    pub(crate) fn replayable(&self) -> bool {
        let source = self.lock();
        !source.lost && !source.failed
    }

    /// True when nothing more will come.
    pub(crate) fn complete(&self) -> bool {
        let source = self.lock();
        source.ended || source.incoming.is_end_stream()
    }

    /// True if the client broke off or sent what is no body.
    pub(crate) fn failed(&self) -> bool {
        self.lock().failed
    }

    fn lock(&self) -> MutexGuard<'_, Source> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a body could not be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeIn {
    /// The client broke off or sent what is no body.
    Broken,
    /// It is too large to be held.
    TooLarge,
}

impl Source {
    fn poll_take_in(&mut self, cx: &mut Context<'_>, limit: usize) -> Poll<Result<u64, TakeIn>> {
        loop {
            match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Trailers have no place beside a length.
                    let Ok(data) = frame.into_data() else { continue };
                    self.kept_bytes += data.len();
                    if self.kept_bytes > limit {
                        return Poll::Ready(Err(TakeIn::TooLarge));
                    }
                    self.kept.push(data);
                }
                Some(Err(_)) => return Poll::Ready(Err(TakeIn::Broken)),
                None => {
                    self.ended = true;
                    return Poll::Ready(Ok(self.kept_bytes as u64));
                }
            }
        }
    }

    fn keep(&mut self, data: &Bytes) {
        if self.lost || self.kept_bytes + data.len() > REPLAY_MAX {
            self.lost = true;
            self.kept = Vec::new();
        } else {
            self.kept_bytes += data.len();
            self.kept.push(data.clone());
        }
    }
}

/// Holds a body back until the upstream wants it (`Expect: 100-continue`).
///
/// hyper tells the client to go on as soon as its body is asked for, so asking is what waits.
pub(crate) struct Gate {
    opened: oneshot::Receiver<()>,
    /// An upstream that knows no `Expect` says nothing and waits for the body.
    wait: Pin<Box<Sleep>>,
    shut: bool,
}

/// Opens a [`Gate`], or leaves it shut for ever.
#[derive(Clone)]
pub(crate) struct GateKey(Arc<Mutex<Option<oneshot::Sender<()>>>>);

impl Gate {
    pub(crate) fn new(wait: Duration) -> (Gate, GateKey) {
        let (key, opened) = oneshot::channel();
        let gate = Gate { opened, wait: Box::pin(tokio::time::sleep(wait)), shut: false };
        (gate, GateKey(Arc::new(Mutex::new(Some(key)))))
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.shut {
            return Poll::Pending;
        }
        match Pin::new(&mut self.opened).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            Poll::Ready(Err(_)) => {
                self.shut = true;
                Poll::Pending
            }
            Poll::Pending => self.wait.as_mut().poll(cx),
        }
    }
}

impl GateKey {
    pub(crate) fn open(&self) {
        if let Some(key) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = key.send(());
        }
    }

    pub(crate) fn shut(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The body of one attempt.
pub(crate) struct RequestBody {
    source: Replay,
    attempt: u32,
    /// The next kept piece to send again.
    next: usize,
    gate: Option<Gate>,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        if let Some(gate) = &mut this.gate {
            ready!(gate.poll_open(cx));
            this.gate = None;
        }
        let mut source = this.source.lock();
        if source.attempt != this.attempt {
            // This attempt's connection is being torn down; the body belongs to the next one.
            return Poll::Pending;
        }
        if let Some(again) = source.kept.get(this.next).cloned() {
            this.next += 1;
            return Poll::Ready(Some(Ok(Frame::data(again))));
        }
        let polled = ready!(Pin::new(&mut source.incoming).poll_frame(cx));
        match &polled {
            Some(Ok(frame)) => match frame.data_ref() {
                Some(data) => {
                    source.keep(data);
                    this.next += 1;
                }
                None => source.lost = true,
            },
            Some(Err(_)) => source.failed = true,
            None => source.ended = true,
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        let source = self.source.lock();
        source.kept.len() <= self.next && (source.ended || source.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let source = self.source.lock();
        let again: u64 = source.kept.iter().skip(self.next).map(|b| b.len() as u64).sum();
        let rest = source.incoming.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + again);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + again);
        }
        hint
    }
}

/// The end of a response that is not its proper end: hyper then closes without one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cut {
    #[error("the upstream cut the response: {0}")]
    Upstream(#[from] hyper::Error),
    #[error("the upstream sent nothing for {0:?}")]
    Idle(Duration),
}

/// The upstream connection of a response, and where it goes afterwards.
pub(crate) struct Lease {
    pub(crate) connection: Connection,
    pub(crate) pool: Arc<Pool>,
    pub(crate) request: Replay,
}

impl Lease {
    fn end(self) {
        // An upstream that answers early may still be taking the request: not to be used again.
        if self.request.complete() {
            self.pool.give_back(self.connection);
        }
    }
}

/// A response body.
pub(crate) struct ResponseBody {
    pub(crate) incoming: Incoming,
    /// `None` when the connection has been dealt with.
    pub(crate) lease: Option<Lease>,
    pub(crate) exchange: Exchange,
    pub(crate) tap: Option<Tap>,
    pub(crate) client: Arc<Client>,
    /// The response ends with the client's connection: a cut must not look like that end.
    pub(crate) ends_by_close: bool,
    pub(crate) idle: Option<Idle>,
    pub(crate) keep_alive: Option<KeepAlive>,
}

/// A limit on silence.
pub(crate) struct Idle {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Idle {
    pub(crate) fn new(limit: Duration) -> Self {
        Idle { limit, timer: Box::pin(tokio::time::sleep(limit)) }
    }
}

impl ResponseBody {
    fn complete(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.exchange.complete();
            if let Some(tap) = self.tap.take() {
                tap.complete();
            }
            lease.end();
        }
    }

    fn cut(&mut self, cut: Cut) -> Cut {
        tracing::warn!(%cut, "a response was cut");
        self.exchange.cut();
        self.tap = None;
        self.lease = None;
        if self.ends_by_close {
            self.client.reset_on_close();
        }
        cut
    }

    fn passed(&mut self, frame: &Frame<Bytes>) {
        if let (Some(tap), Some(data)) = (&mut self.tap, frame.data_ref()) {
            tap.bytes(data);
        }
        if let (Some(keep_alive), Some(data)) = (&mut self.keep_alive, frame.data_ref()) {
            keep_alive.passed(data);
        }
        if let Some(idle) = &mut self.idle {
            *idle = Idle::new(idle.limit);
        }
        if frame.is_trailers() {
            // Nothing can follow, and in HTTP/2 hyper does not ask whether something does.
            self.complete();
        }
    }

    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match &mut self.keep_alive {
            Some(keep_alive) => keep_alive.poll(cx).map(|comment| Some(Ok(Frame::data(comment)))),
            None => Poll::Pending,
        }
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Cut> {
        match &mut self.idle {
            Some(idle) => idle.timer.as_mut().poll(cx).map(|()| Cut::Idle(idle.limit)),
            None => Poll::Pending,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let this = self.get_mut();
        if this.lease.is_none() {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.passed(&frame);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(this.cut(error.into())))),
            Poll::Ready(None) => {
                this.complete();
                Poll::Ready(None)
            }
            Poll::Pending => match this.poll_idle(cx) {
                Poll::Ready(cut) => Poll::Ready(Some(Err(this.cut(cut)))),
                Poll::Pending => this.poll_keep_alive(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // hyper does not ask again once a body of known length has had its bytes.
        if self.incoming.is_end_stream() {
            self.complete();
        }
    }
}
