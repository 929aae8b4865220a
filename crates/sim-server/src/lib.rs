//! A simulated GPU in real time behind an OpenAI-compatible server, shared over a Unix socket.
//!
//! One thread owns the [`everwarm_sim::Machine`] and moves it by CLOCK_MONOTONIC (`engine`). The
//! server's own prefill and decode are host programs inside that thread (`slot`); other processes
//! commit through the socket (`socket`, `clients`; the protocol is [`everwarm_gpu::wire`]). HTTP
//! (`http`, `ask`, `answer`) turns requests into programs and their tokens into events.
//!
//! [`spawn`] serves until its [`Handle`] is dropped; [`Signals`] tells a process when to drop it.

#![forbid(unsafe_code)]

mod answer;
mod ask;
mod clients;
mod engine;
mod http;
mod lateness;
mod slot;
mod socket;

use everwarm_dvfs::Chip;
use everwarm_gpu::wire::WireDevice;
use everwarm_sim::Machine;
use everwarm_workload::Runtime;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Tokens of a prompt and its answer together, where nothing else is said.
pub const CONTEXT_DEFAULT: u32 = 8192;

/// What to serve, and where.
#[derive(Clone, Debug)]
pub struct Config {
    /// The simulated device as a user writes it, in virtual time: `sim:m2`, `sim:FILE.toml`.
    pub device: String,
    /// How prompts are submitted.
    pub runtime: Runtime,
    /// Where HTTP is served; port 0 takes any.
    pub listen: SocketAddr,
    /// Where the socket is; `None` takes a path of its own in the folder for temporary files.
    pub socket: Option<PathBuf>,
    /// Tokens of a prompt and its answer together.
    pub context: u32,
}

impl Config {
    /// The device and runtime on any port of 127.0.0.1.
    pub fn new(device: &str, runtime: Runtime) -> Self {
        Config {
            device: device.to_owned(),
            runtime,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            socket: None,
            context: CONTEXT_DEFAULT,
        }
    }
}

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device can't be simulated here.
    #[error(transparent)]
    Device(#[from] everwarm_gpu::Error),
    /// The address can't be listened on.
    #[error("can't listen on {address}: {why}")]
    Listen {
        /// As asked.
        address: SocketAddr,
        /// What is in the way.
        why: String,
    },
    /// The socket can't be listened on.
    #[error("can't share the GPU at {}: {why}", path.display())]
    Socket {
        /// As asked.
        path: PathBuf,
        /// What is in the way.
        why: String,
    },
    /// The operating system refused a thread.
    #[error("can't start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// A running server; dropping it ends it: connections are closed, socket clients find their device
/// lost, and the socket's file is removed.
pub struct Handle {
    address: SocketAddr,
    inbox: engine::Inbox,
    door: Option<socket::Door>,
    stop_http: Option<tokio::sync::oneshot::Sender<()>>,
    http: Option<JoinHandle<()>>,
    engine: Option<JoinHandle<()>>,
}

/// Starts a server.
///
/// # Errors
/// [`Error`] says which of device, address and socket is the trouble; nothing is left behind.
pub fn spawn(config: Config) -> Result<Handle, Error> {
    let (chip, device) = simulated(&config.device)?;
    let (listener, address) = listen(config.listen)?;
    let head = config.runtime.serving.head;
    let model = config.runtime.model.name.clone();
    let (inbox, engine) = engine::start(Machine::new(chip), device, config.runtime)?;
    let path = config.socket.unwrap_or_else(|| socket_path(address.port()));
    // From here on dropping the handle ends what has begun.
    let mut handle = Handle {
        address,
        inbox: inbox.clone(),
        door: None,
        stop_http: None,
        http: None,
        engine: Some(engine),
    };
    handle.door = Some(socket::Door::open(&path, inbox.clone())?);
    let api = Arc::new(http::Api { inbox, model, head, context: config.context });
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let builder = std::thread::Builder::new().name("everwarm-http".into());
    handle.http = Some(builder.spawn(move || serve_http(listener, &api, stopped))?);
    handle.stop_http = Some(stop);
    Ok(handle)
}

impl Handle {
    /// Where HTTP is served: `http://127.0.0.1:8080`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The socket's file.
    pub fn socket(&self) -> &Path {
        self.door.as_ref().expect("a handle that was given out has a door").path()
    }

    /// The device as other processes open it: `sim:PATH`.
    pub fn device(&self) -> String {
        format!("sim:{}", self.socket().display())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop_http.take(); // closing the channel is the signal
        if let Some(http) = self.http.take() {
            let _ = http.join();
        }
        self.door.take();
        let _ = self.inbox.send(everwarm_gpu::Monotonic::now(), engine::Command::Stop);
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

/// SIGINT and SIGTERM, watched.
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Watches from now on; before this a signal ends the process and leaves the socket's file.
    ///
    /// # Errors
    /// If signals can't be watched.
    pub fn watch() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        drop(inside);
        Ok(Signals { runtime, interrupt, terminate })
    }

    /// Blocks until one of them has come.
    pub fn wait(mut self) {
        self.runtime.block_on(async {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
        });
    }
}

/// The chip, and what clients are told of the device.
fn simulated(id: &str) -> Result<(Chip, WireDevice), everwarm_gpu::Error> {
    let chip = everwarm_gpu::backend::simulated_chip(id)?;
    let backend = everwarm_gpu::open(id)?;
    let device = backend.device();
    let clocks = device.pstates.iter().flatten();
    let wire = WireDevice {
        name: device.name.clone(),
        pstates_hz: clocks.map(|clock| clock.as_hz()).collect(),
        in_flight_max: device.in_flight_max,
        fma_iterations_per_ms: device.fma_iterations_per_ms,
        fma_iterations_per_ms_group: device.fma_iterations_per_ms_group,
    };
    Ok((chip, wire))
}

fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |error: std::io::Error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => "something else listens there; \
                `--listen 127.0.0.1:0` takes any free port"
                .to_owned(),
            _ => error.to_string(),
        };
        Error::Listen { address, why }
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// A socket path of this server's own: a port has one server at a time.
fn socket_path(port: u16) -> PathBuf {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let folder = folder.filter(|folder| folder.is_dir()).unwrap_or_else(std::env::temp_dir);
    folder.join(format!("everwarm-sim-{port}.sock"))
}

/// The HTTP thread: accepts until `stopped`, then drops every connection.
fn serve_http(
    listener: TcpListener,
    api: &Arc<http::Api>,
    stopped: tokio::sync::oneshot::Receiver<()>,
) {
    everwarm_gpu::wake_promptly();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the process may open an event queue");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("it is non-blocking");
        let accept = async {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => {
                        tokio::spawn(http::serve(stream, Arc::clone(api)));
                    }
                    // Out of descriptors, say: others must leave before anybody can come in.
                    Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                }
            }
        };
        tokio::select! {
            () = accept => {}
            _ = stopped => {}
        }
    });
}
