//! Listening, connections, and coming to an end.

use crate::admin;
use crate::client::Client;
use crate::config::{Config, Upstream};
use crate::error::StartError;
use crate::forward::{Shared, serve};
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::protocol;
use everwarm_governor::Event;
use everwarm_hold::{Status, Warmer};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A running proxy. Dropping it ends everything at once, [`Handle::shutdown`] lets responses end.
pub struct Handle {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    shared: Arc<Shared>,
    tasks: TaskTracker,
    drain: Duration,
    stop: CancellationToken,
    warmer: Option<Warmer>,
}

/// Starts a proxy on the current tokio runtime.
///
/// # Errors
/// [`StartError`] for an address that can't be listened on, an unknown policy, or an upstream that
/// is the proxy itself. An upstream that is down is no error: it may come up later.
pub async fn spawn(config: Config) -> Result<Handle, StartError> {
    let listener = listen(config.listen, "--listen").await?;
    let admin_listener = match config.admin {
        Some(address) => Some(listen(address, "--admin").await?),
        None => None,
    };
    let address = listener.local_addr().map_err(|e| named(config.listen, &e))?;
    refuse_loop(&config.upstream, address)?;
    let warmer = Warmer::spawn(config.warmer)?;
    let shared = Arc::new(Shared {
        pool: Pool::new(config.upstream.clone(), config.limits),
        upstream: config.upstream,
        keep_host: config.keep_host,
        x_forwarded: config.x_forwarded,
        keep_alive: config.keep_alive,
        take_in: config.take_in,
        limits: config.limits,
        metrics: Arc::new(Metrics::new(warmer.handle())),
        warmer: warmer.handle(),
        tunnels: TaskTracker::new(),
        kill: CancellationToken::new(),
    });
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    tasks.spawn(accept(listener, Arc::clone(&shared), stop.clone(), tasks.clone()));
    let admin = admin_listener.as_ref().and_then(|l| l.local_addr().ok());
    if let Some(listener) = admin_listener {
        // On no tracker: it answers until the very end.
        tokio::spawn(admin::run(listener, Arc::clone(&shared)));
    }
    let drain = config.limits.drain;
    Ok(Handle { address, admin, shared, tasks, drain, stop, warmer: Some(warmer) })
}

impl Handle {
    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The admin port's URL.
    pub fn admin_url(&self) -> Option<String> {
        self.admin.map(|address| format!("http://{address}"))
    }

    /// What the warmer is doing.
    pub fn status(&self) -> Status {
        self.shared.warmer.status()
    }

    /// Stops accepting, lets running responses end for as long as the limits say, then cuts them.
    /// Returns true if all of them ended by themselves.
    pub async fn shutdown(mut self) -> bool {
        self.stop.cancel();
        self.tasks.close();
        self.shared.tunnels.close();
        let ended = tokio::time::timeout(self.drain, self.tasks.wait()).await.is_ok();
        self.shared.kill.cancel();
        let _ = tokio::time::timeout(Duration::from_secs(1), self.tasks.wait()).await;
        let _ = tokio::time::timeout(Duration::from_secs(1), self.shared.tunnels.wait()).await;
        // Dropping joins its thread, which may be in a call on the device.
        if let Some(warmer) = self.warmer.take() {
            let _ = tokio::task::spawn_blocking(move || drop(warmer)).await;
        }
        ended
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.cancel();
        self.shared.kill.cancel();
    }
}

async fn listen(address: SocketAddr, flag: &'static str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|error| StartError::listen(address, flag, &error))
}

fn named(address: SocketAddr, error: &std::io::Error) -> StartError {
    StartError::listen(address, "--listen", error)
}

fn refuse_loop(upstream: &Upstream, own: SocketAddr) -> Result<(), StartError> {
    let (host, port) = upstream.target();
    let local = match host.parse::<std::net::IpAddr>() {
        Ok(ip) => {
            // Whoever connects to no address connects to this machine.
            let (ip, own) = (ip.to_canonical(), own.ip().to_canonical());
            ip == own || ip.is_unspecified() || (ip.is_loopback() && own.is_unspecified())
        }
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    };
    if local && port == own.port() {
        return Err(StartError::Loop { upstream: upstream.to_string() });
    }
    Ok(())
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    stop: CancellationToken,
    tasks: TaskTracker,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                // Before anything else: its request is a round trip away.
                shared.warmer.tell(Event::ConnectionAccepted);
                tasks.spawn(connection(stream, Arc::clone(&shared), stop.clone()));
            }
            Err(error) => {
                // Out of descriptors, most likely: others must end first.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Counts a connection while it lives.
struct Open(Arc<Shared>);

impl Open {
    fn count(shared: Arc<Shared>) -> Self {
        shared.metrics.accepted.inc();
        shared.metrics.connections.inc();
        Open(shared)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
        self.0.warmer.tell(Event::ConnectionClosed);
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>, stop: CancellationToken) {
    let _open = Open::count(Arc::clone(&shared));
    let _ = stream.set_nodelay(true);
    let client = match Client::of(&stream) {
        Ok(client) => Arc::new(client),
        Err(error) => return tracing::warn!(%error, "a connection could not be watched"),
    };
    let http2 = tokio::select! {
        http2 = protocol::begins_with_2(&stream) => http2,
        () = client.gone() => return,
        () = stop.cancelled() => return,
    };
    let service = {
        let (shared, client) = (Arc::clone(&shared), Arc::clone(&client));
        service_fn(move |request| serve(Arc::clone(&shared), Arc::clone(&client), request))
    };
    let io = TokioIo::new(stream);
    let ends = Ends { client: &client, shared: &shared, stop: &stop };
    let ended = match http2 {
        false => {
            let served = protocol::http1().serve_connection(io, service).with_upgrades();
            ends.drive(Box::pin(served), |served| served.graceful_shutdown()).await
        }
        true => {
            let served = protocol::http2().serve_connection(io, service);
            ends.drive(Box::pin(served), |served| served.graceful_shutdown()).await
        }
    };
    if ended {
        client.linger().await;
    }
}

/// What ends a connection, beside itself.
struct Ends<'a> {
    client: &'a Client,
    shared: &'a Shared,
    stop: &'a CancellationToken,
}

impl Ends<'_> {
    /// Drives `served` to its end; true if it ended by itself.
    async fn drive<C>(self, mut served: Pin<Box<C>>, end_soon: fn(Pin<&mut C>)) -> bool
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let mut stopping = false;
        loop {
            tokio::select! {
                ended = &mut served => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a client connection ended");
                    }
                    return true;
                }
                // Dropping it drops the service, and with it the upstream connection.
                () = self.client.gone() => return false,
                () = self.shared.kill.cancelled() => return false,
                () = self.stop.cancelled(), if !stopping => {
                    stopping = true;
                    end_soon(served.as_mut());
                }
            }
        }
    }
}
