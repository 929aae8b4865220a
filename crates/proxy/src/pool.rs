//! Connections to the upstream: opened, kept for a while, closed for good.
//!
//! A connection is a hyper task that dies with its [`Connection`]: dropping one closes the socket
//! at once, whatever was under way. Idle ones are dropped before the server would drop them, so
//! that a request seldom meets a connection that is being closed.

use crate::body::RequestBody;
use crate::config::{Limits, Upstream};
use crate::error::UpstreamFailure;
use crate::route::{Noted, Routes};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_util::io::InspectReader;
use tokio_util::task::AbortOnDropHandle;

pub(crate) struct Connection {
    pub(crate) sender: SendRequest<RequestBody>,
    /// Bytes read so far: did an answer begin?
    pub(crate) read: Arc<AtomicU64>,
    /// The server's own limit on idleness, where it told.
    pub(crate) idle_max: Duration,
    served: u32,
    _noted: Noted,
    _task: AbortOnDropHandle<()>,
}

impl Connection {
    /// True if it has served a request before this one.
    pub(crate) fn reused(&self) -> bool {
        self.served > 0
    }
}

struct Idle {
    connection: Connection,
    since: Instant,
}

impl Idle {
    fn fresh(&self) -> bool {
        self.since.elapsed() < self.connection.idle_max && !self.connection.sender.is_closed()
    }
}

#[derive(Default)]
struct Shelf {
    connections: Vec<Idle>,
    /// A task looks after them.
    swept: bool,
}

impl Shelf {
    /// Drops what has lapsed; returns how long until the next one does.
    fn sweep(&mut self) -> Option<Duration> {
        self.connections.retain(Idle::fresh);
        let left = |idle: &Idle| idle.connection.idle_max.saturating_sub(idle.since.elapsed());
        self.connections.iter().map(left).min()
    }
}

/// Closes idle connections in their time, and ends when there are none. One task for all: a task for
/// each request would live for as long as a connection may idle.
async fn sweep(pool: Weak<Pool>) {
    while let Some(pool) = pool.upgrade() {
        let next = {
            let mut shelf = pool.idle();
            let next = shelf.sweep();
            shelf.swept = next.is_some();
            next
        };
        drop(pool);
        let Some(next) = next else { return };
        // Past its time, not at it.
        tokio::time::sleep(next.max(SWEEP_MIN)).await;
    }
}

pub(crate) struct Pool {
    upstream: Upstream,
    limits: Limits,
    idle: Mutex<Shelf>,
    /// Of all connections that are open, idle or not.
    pub(crate) routes: Routes,
}

impl Pool {
    pub(crate) fn new(upstream: Upstream, limits: Limits) -> Arc<Self> {
        let (idle, routes) = (Mutex::default(), Routes::default());
        Arc::new(Pool { upstream, limits, idle, routes })
    }

    /// The idle connection that was used last, if one may still be used.
    pub(crate) async fn take(&self) -> Option<Connection> {
        loop {
            let candidate = self.idle().connections.pop()?;
            if !candidate.fresh() {
                continue;
            }
            let Idle { mut connection, .. } = candidate;
            if connection.sender.is_ready() {
                return Some(connection);
            }
            // One that has just been given back needs a moment until hyper sees the end, too.
            let ready = tokio::time::timeout(SETTLE, connection.sender.ready()).await;
            if matches!(ready, Ok(Ok(()))) {
                return Some(connection);
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Shelf> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `connection` back after a response, when its request is over as well.
    pub(crate) fn give_back(self: &Arc<Self>, mut connection: Connection) {
        connection.served += 1;
        let worn = connection.served >= self.limits.pool_requests;
        if !worn && !connection.idle_max.is_zero() {
            self.keep(connection);
        }
    }

    fn keep(self: &Arc<Self>, connection: Connection) {
        let mut shelf = self.idle();
        shelf.connections.push(Idle { connection, since: Instant::now() });
        if !std::mem::replace(&mut shelf.swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Result<Connection, UpstreamFailure> {
        let began = Instant::now();
        let stream = loop {
            match self.tcp().await {
                Err(UpstreamFailure::Connect(_)) if began.elapsed() < self.limits.upstream_wait => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                other => break other?,
            }
        };
        let _ = stream.set_nodelay(true);
        let noted = self.routes.note(&stream);
        let read = Arc::new(AtomicU64::new(0));
        let total = Arc::clone(&read);
        let count = move |bytes: &[u8]| {
            total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        };
        let io = TokioIo::new(InspectReader::new(stream, count));
        let mut builder = http1::Builder::new();
        builder.preserve_header_case(true).max_headers(HEADERS_MAX);
        builder.allow_obsolete_multiline_headers_in_responses(true);
        builder.allow_spaces_after_header_name_in_responses(true);
        let handshake = builder.handshake(io).await;
        let (mut sender, connection) =
            handshake.map_err(|e| UpstreamFailure::Closed(e.to_string()))?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "an upstream connection ended");
            }
        });
        let task = AbortOnDropHandle::new(task);
        sender.ready().await.map_err(|e| UpstreamFailure::Closed(e.to_string()))?;
        let idle_max = self.limits.pool_idle;
        Ok(Connection { sender, read, idle_max, served: 0, _noted: noted, _task: task })
    }

    async fn tcp(&self) -> Result<TcpStream, UpstreamFailure> {
        let attempt = self.try_addresses();
        match self.limits.connect {
            None => attempt.await,
            Some(limit) => match tokio::time::timeout(limit, attempt).await {
                Ok(result) => result,
                Err(_) => Err(UpstreamFailure::ConnectTimeout(limit)),
            },
        }
    }

    /// Tries every address of the upstream's name, and says of each what came of it.
    async fn try_addresses(&self) -> Result<TcpStream, UpstreamFailure> {
        let target = self.upstream.target();
        let found = tokio::net::lookup_host(target).await;
        let addresses = found.map_err(|error| {
            UpstreamFailure::Connect(format!("the name `{}` is not known ({error})", target.0))
        })?;
        let mut tried = Vec::new();
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => tried.push(format!("{address}: {}", plain(&error))),
            }
        }
        Err(UpstreamFailure::Connect(format!("tried {}", tried.join("; "))))
    }
}

/// How long a connection that was given back may take to be ready: a task's turn.
const SETTLE: Duration = Duration::from_millis(20);

/// Closing a connection this late is early enough: it is no longer used anyway.
const SWEEP_MIN: Duration = Duration::from_millis(20);

/// Headers of one message, either way. Source: guess; nobody sends a tenth of it.
pub(crate) const HEADERS_MAX: usize = 512;

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    }
}
