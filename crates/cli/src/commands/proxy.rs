//! `everwarm proxy`.

use crate::output::print;
use anyhow::Context;
use everwarm_governor::POLICIES;
use everwarm_hold::{Prewarm, Shape, on_parent_exit};
use everwarm_proxy::{Config, Handle, Limits, Upstream};
use everwarm_units::Span;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The drop-in proxy: warms the GPU for the requests that pass through it.
///
/// Put it in front of any HTTP server that runs a model (llama-server, mlx_lm.server, Ollama, LM
/// Studio, vLLM), and give clients its address instead of the server's. Every path, method and
/// stream passes as it is. A connection, a request's head or a hint makes it submit one small
/// kernel at once and keep the GPU's clock up until the request is under way; after a request it
/// stays warm for a while, under an energy cap.
///
/// It warms the device that `--device` names (`everwarm devices` says what there is), which should be
/// the server's GPU; whatever becomes of that, it relays and measures. docs/proxy.md tells more.
///
/// Example: `everwarm proxy --upstream http://127.0.0.1:8080`, then point clients at
/// http://127.0.0.1:8081. Hints: `curl -d '{"source":"key-stroke"}' http://127.0.0.1:8082/hint`.
#[derive(clap::Args)]
pub struct Args {
    /// The server's URL, such as http://127.0.0.1:8080.
    #[arg(long, value_name = "URL")]
    upstream: Upstream,
    /// Where clients connect. Port 0 takes any free port. Anything but a loopback address lets
    /// other machines use your server.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8081",
          value_parser = address)]
    listen: SocketAddr,
    /// Where /status, /metrics, /hint and /policy are served, or `off`.
    #[arg(long, value_name = "ADDRESS:PORT|off", default_value = "127.0.0.1:8082")]
    admin: Admin,
    /// The GPU to warm (`everwarm devices` lists them), or `none`. Default: the first real one;
    /// without one nothing is warmed.
    #[arg(long, value_name = "DEVICE|none")]
    device: Option<String>,
    /// When to warm.
    #[arg(long, default_value = "study", value_parser = policies())]
    policy: String,
    /// How long another request is expected after one, by the policy `study`; `0 s` = never hold
    /// after a request.
    #[arg(long, value_name = "SPAN", default_value = "60 s")]
    hold_for: Span,
    #[command(flatten)]
    price: crate::price::PriceArgs,
    #[command(flatten)]
    power: crate::power::PowerArgs,
    /// What a pre-warm kernel is: a single threadgroup, which delays nobody, or a matrix product
    /// that fills the GPU.
    #[arg(long, default_value = "group", value_parser = ["group", "matmul"])]
    prewarm: String,
    /// Pass the client's Host header on. Default: the upstream's, which servers that check it want.
    #[arg(long)]
    keep_host: bool,
    /// Tell the upstream who asked: X-Forwarded-For (the client's address behind those that are
    /// there), X-Forwarded-Host and X-Forwarded-Proto (unless they are there).
    #[arg(long)]
    x_forwarded: bool,
    /// Send a comment (`:`, which clients skip) into an event stream that has been silent for this
    /// long, for clients that would give up in a long prefill. Default: never.
    #[arg(long, value_name = "SPAN")]
    sse_keep_alive: Option<Span>,
    /// Hold request bodies that come without a length, up to so many megabytes, and send them with
    /// one. For servers that refuse chunked bodies with 411, as mlx_lm.server does.
    #[arg(long, value_name = "MB")]
    take_in_mb: Option<u32>,
    /// Give up a connection to the upstream after this.
    #[arg(long, value_name = "SPAN", default_value = "10 s")]
    connect_timeout: Span,
    /// Give up when the upstream's response head has not come after this. Default: never; a
    /// prefill or a model's loading may take minutes.
    #[arg(long, value_name = "SPAN")]
    head_timeout: Option<Span>,
    /// Cut a response that has been silent for this long. Default: never.
    #[arg(long, value_name = "SPAN")]
    idle_timeout: Option<Span>,
    /// Keep trying for this long to reach an upstream that refuses connections.
    #[arg(long, value_name = "SPAN", default_value = "0 s")]
    upstream_wait: Span,
    /// Open a new upstream connection for every request.
    #[arg(long)]
    no_reuse: bool,
    /// How long running responses may go on after SIGTERM or SIGINT; a second signal ends them.
    #[arg(long, value_name = "SPAN", default_value = "30 s")]
    drain: Span,
    /// Threads that relay. One carries tens of thousands of requests or pieces of streams a second,
    /// and costs a single one the least.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// End when the process that started this one ends.
    #[arg(long)]
    exit_with_parent: bool,
    /// Print the ready line as JSON.
    #[arg(long)]
    json: bool,
}

fn policies() -> clap::builder::PossibleValuesParser {
    let value = |entry: &'static everwarm_governor::Entry| {
        clap::builder::PossibleValue::new(entry.name).help(entry.about)
    };
    clap::builder::PossibleValuesParser::new(POLICIES.iter().map(value))
}

/// An address to listen on; the error says what one looks like.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:8081".to_owned())
}

#[derive(Clone, Copy)]
struct Admin(Option<SocketAddr>);

impl std::str::FromStr for Admin {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Admin(None)),
            _ => match address(text) {
                Ok(address) => Ok(Admin(Some(address))),
                Err(expected) => Err(format!("{expected}, or off")),
            },
        }
    }
}

impl Args {
    /// # Errors
    /// A budget that the cap forbids.
    fn config(&self) -> anyhow::Result<Config> {
        let limit = |span: Span| (!span.is_zero()).then(|| Duration::from(span));
        let prewarm = if self.prewarm == "matmul" { Prewarm::Matmul } else { Prewarm::Group };
        Ok(Config {
            upstream: self.upstream.clone(),
            listen: self.listen,
            admin: self.admin.0,
            keep_host: self.keep_host,
            x_forwarded: self.x_forwarded,
            keep_alive: self.sse_keep_alive.and_then(limit),
            take_in: self.take_in_mb.map(|mb| (mb as usize).saturating_mul(1_000_000)),
            warmer: everwarm_hold::Config {
                device: self.device(),
                policy: self.policy.clone(),
                governor: everwarm_governor::Config {
                    hold_for: self.hold_for,
                    tick: self.price.tick(),
                    cap: self.price.cap()?,
                    price: self.price.price()?,
                    ..everwarm_governor::Config::default()
                },
                shape: Shape { prewarm, ..Shape::default() },
                surroundings: self.power.surroundings(self.device().as_deref()),
            },
            limits: Limits {
                connect: limit(self.connect_timeout),
                head: self.head_timeout.and_then(limit),
                idle: self.idle_timeout.and_then(limit),
                drain: self.drain.into(),
                upstream_wait: self.upstream_wait.into(),
                pool_idle: match self.no_reuse {
                    true => Duration::ZERO,
                    false => Limits::default().pool_idle,
                },
                ..Limits::default()
            },
        })
    }

    /// Warming a GPU that only this process simulates would warm nothing: not without being asked.
    fn device(&self) -> Option<String> {
        match self.device.as_deref() {
            Some("none") => None,
            Some(device) => Some(device.to_owned()),
            None => Some(everwarm_gpu::default_device()).filter(|d| !d.starts_with("sim:")),
        }
    }

    /// What is warmed, for the ready line, with a warning if it is not what a user would expect.
    ///
    /// A device that can't be opened yet is no reason not to relay: the warmer keeps trying.
    ///
    /// # Errors
    /// A device that can never be.
    fn warming(&self) -> anyhow::Result<String> {
        let Some(device) = self.device() else { return Ok("warming nothing (no GPU)".to_owned()) };
        everwarm_gpu::known(&device)?;
        let by = format!("by the policy `{}`", self.policy);
        Ok(match everwarm_gpu::open(&device).map(|backend| backend.device().virtual_time) {
            Ok(false) => format!("warming {device} {by}"),
            Ok(true) => {
                eprintln!(
                    "everwarm: warning: {device} is simulated in this process alone, so that \
                     nothing real is warmed; `everwarm sim-server` shares one (sim:SOCKET)"
                );
                format!("warming {device} (nothing real) {by}")
            }
            Err(error) => {
                eprintln!(
                    "everwarm: warning: {error}; nothing is warmed until it can be opened, \
                     which is tried again and again"
                );
                format!("not warming {device} yet")
            }
        })
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_max_level(tracing::Level::WARN)
        .with_target(false)
        .init();
    raise_descriptor_limit();
    let warming = args.warming()?;
    runtime(args.threads)?.block_on(serve(args, warming))
}

/// On one thread a request and its upstream connection never wait for another to wake up.
fn runtime(threads: u16) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.into());
    builder.enable_all().build().context("the runtime could not be started")
}

/// A connection takes three descriptors, and some systems start with 256.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    const ENOUGH: u64 = 65_536;
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(ENOUGH).min(ENOUGH);
    if limit.current.is_some_and(|current| current < most) {
        limit.current = Some(most);
        // Without it fewer clients fit, which is no reason not to start.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

async fn serve(args: Args, warming: String) -> anyhow::Result<ExitCode> {
    let config = args.config()?;
    if let Some(warning) = args.price.warning(&args.policy) {
        eprintln!("everwarm: warning: {warning}");
    }
    if !args.listen.ip().is_loopback() {
        eprintln!(
            "everwarm: warning: {} can be reached from other machines, and so can the server \
             behind it",
            args.listen
        );
    }
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (orphaned, mut parent_gone) = tokio::sync::mpsc::channel::<()>(1);
    if args.exit_with_parent {
        on_parent_exit(move || orphaned.blocking_send(()).unwrap_or_default());
    }
    let proxy = everwarm_proxy::spawn(config).await?;
    announce(&args, &proxy, &warming)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        Some(()) = parent_gone.recv() => {}
    }
    let drained = tokio::select! {
        drained = shut_down(proxy, args.drain) => drained,
        _ = interrupt.recv() => false,
        _ = terminate.recv() => false,
    };
    if !drained {
        eprintln!("everwarm: responses that were still running have been cut");
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets running responses end, and says so if that takes a while.
async fn shut_down(proxy: Handle, drain: Span) -> bool {
    let mut ended = std::pin::pin!(proxy.shutdown());
    tokio::select! {
        drained = &mut ended => return drained,
        () = tokio::time::sleep(Duration::from_millis(300)) => {}
    }
    eprintln!(
        "everwarm: responses are still running and may go on for {drain:.0}; a second signal ends \
         them"
    );
    ended.await
}

fn announce(args: &Args, proxy: &Handle, warming: &str) -> anyhow::Result<()> {
    let (url, admin) = (proxy.url(), proxy.admin_url());
    if args.json {
        print(&format!("{}\n", serde_json::json!({ "url": url, "admin": admin })))
    } else {
        let admin = admin.map_or("admin port off".to_owned(), |admin| format!("admin {admin}"));
        print(&format!("everwarm proxy: {url} -> {}, {warming}, {admin}\n", args.upstream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args as _;

    #[test]
    fn the_page_names_every_option() {
        let page = include_str!("../../../../docs/proxy.md");
        let command = Args::augment_args(clap::Command::new("proxy"));
        for option in command.get_arguments().filter_map(clap::Arg::get_long) {
            let named = page.contains(&format!("| `--{option}"))
                || page.contains(&format!(", `--{option}"));
            assert!(named, "--{option} is not in docs/proxy.md");
        }
        for policy in POLICIES {
            assert!(page.contains(&format!("`{}`", policy.name)), "{}", policy.name);
        }
    }
}
