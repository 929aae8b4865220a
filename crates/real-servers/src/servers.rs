//! The real servers, and the proxy, as programs on free ports.
//!
//! Where they are is told by `cargo xtask`: `EVERWARM_REAL` is the venv, `EVERWARM_LLAMA_SERVER` and
//! `EVERWARM_BIN` the programs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::client;
use crate::http::Request;
use crate::process::{Guard, free_address};

/// The longest that a server may take to be ready.
const START: Duration = Duration::from_secs(60);

/// A real server that is running.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    guard: Guard,
}

impl Server {
    /// Waits until it answers `/health` with 200.
    ///
    /// # Errors
    /// When it doesn't in a minute; carries its log.
    pub fn ready(self) -> anyhow::Result<Self> {
        let deadline = Instant::now() + START;
        loop {
            let health = client::send(self.address, &Request::new("GET", "/health"));
            if health.is_ok_and(|response| response.head.status() == 200) {
                return Ok(self);
            }
            if Instant::now() > deadline {
                bail!("not ready after {START:?}; its log: {}", self.guard.log());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A path that `cargo xtask` told us.
///
/// # Errors
/// When it did not.
pub fn program(variable: &str) -> anyhow::Result<PathBuf> {
    let told = std::env::var_os(variable).map(PathBuf::from);
    told.with_context(|| format!("{variable} is not set: run `cargo xtask test real-servers`"))
}

fn venv() -> anyhow::Result<PathBuf> {
    program("EVERWARM_REAL")
}

/// The venv's Python.
///
/// # Errors
/// When there is no venv.
pub fn python() -> anyhow::Result<PathBuf> {
    Ok(venv()?.join("bin/python"))
}

fn words(program: PathBuf, rest: &str) -> Vec<String> {
    let program = program.to_string_lossy().into_owned();
    std::iter::once(program).chain(rest.split_whitespace().map(str::to_owned)).collect()
}

/// Starts llama-server on `address` with a model (`tiny` or `slow`) and so many slots; it loads yet.
///
/// # Errors
/// When it can't be started.
pub fn llama_server(address: SocketAddr, model: &str, slots: u32) -> anyhow::Result<Server> {
    let model = venv()?.join("models").join(format!("{model}.gguf"));
    let (host, port) = (address.ip(), address.port());
    let context = 8192 * slots;
    let mut words = words(
        program("EVERWARM_LLAMA_SERVER")?,
        &format!(
            "--host {host} --port {port} --offline -ngl 0 -c {context} -np {slots} -t 2 --metrics \
             --slots --no-ui -a tiny"
        ),
    );
    words.extend(["-m".to_owned(), model.to_string_lossy().into_owned()]);
    Ok(Server { address, guard: Guard::start(&words, &[])? })
}

/// Starts mlx_lm.server with the tiny model and waits until it is ready.
///
/// # Errors
/// When it can't be started, or isn't ready in a minute.
pub fn mlx_server() -> anyhow::Result<Server> {
    let (venv, address) = (venv()?, free_address());
    let (host, port) = (address.ip(), address.port());
    let mut words =
        words(venv.join("bin/mlx_lm.server"), &format!("--host {host} --port {port} --model"));
    words.push(venv.join("models/tiny").to_string_lossy().into_owned());
    let hub = venv.join("hub").to_string_lossy().into_owned();
    let environment = [("HF_HUB_OFFLINE", "1".to_owned()), ("HF_HUB_CACHE", hub)];
    Server { address, guard: Guard::start(&words, &environment)? }.ready()
}

/// `everwarm proxy`, running.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    _guard: Guard,
}

impl Proxy {
    /// Starts it in front of `upstream` with further flags, and waits for its ready line.
    ///
    /// # Errors
    /// When it ends instead, or its ready line is no JSON with a URL.
    pub fn start(upstream: SocketAddr, flags: &str) -> anyhow::Result<Self> {
        let flags =
            format!("proxy --upstream http://{upstream} --listen 127.0.0.1:0 --json {flags}");
        let mut guard = Guard::start(&words(program("EVERWARM_BIN")?, &flags), &[])?;
        let line = guard.line()?;
        let ready: serde_json::Value =
            serde_json::from_str(&line).with_context(|| format!("ready line {line:?}"))?;
        let url = ready["url"].as_str().with_context(|| format!("no url in {line:?}"))?;
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        Ok(Self { address: address.parse().with_context(|| url.to_owned())?, _guard: guard })
    }
}
