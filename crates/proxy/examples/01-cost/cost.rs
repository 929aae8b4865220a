//! The conditions and their rounds.

use std::path::PathBuf;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use crate::client::{Connection, Load, Samples, run as put};
use crate::peers::{Peer, Placement, Running, Setting};
use crate::prewarm::{Delays, Prewarm};
use crate::tables;
use crate::upstream::{Clock, Upstream};

#[derive(clap::Parser)]
pub struct Args {
    /// The binary.
    everwarm: PathBuf,
    /// Another build of it, to be compared.
    #[arg(long)]
    other: Option<PathBuf>,
    /// litellm's program, to be measured as well.
    #[arg(long)]
    litellm: Option<PathBuf>,
    /// How often each condition is measured.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// How long each time. Unit: s.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Connections at a time.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 32, 256])]
    connections: Vec<usize>,
    /// Connections in a round whose pre-warm is waited for, a tenth of a second each.
    #[arg(long, default_value_t = 50)]
    prewarms: u32,
    /// Be the bare relay, to this upstream.
    #[arg(long, hide = true)]
    pub relay_to: Option<std::net::SocketAddr>,
    /// Let the proxies run on all CPUs, nginx and haproxy with a thread for each.
    #[arg(long)]
    free: bool,
}

/// The time between two pieces of a stream's content: 50 a second for each of 256 connections is what
/// two cores carry beside the measuring, and fewer connections can have more.
fn gap(connections: usize) -> Duration {
    Duration::from_millis(match connections {
        0..=1 => 2,
        2..=32 => 5,
        _ => 20,
    })
}

/// Connections that idle while memory is measured.
const IDLE: usize = 2000;
/// Processes that are asked for it, one after the other.
const IDLE_REPEATS: usize = 3;

/// A load on the direct path (`None`) or on a proxy, and what came of it in each round.
pub struct Condition {
    pub peer: Option<Peer>,
    pub load: Load,
    pub rounds: Vec<Round>,
}

pub struct Round {
    pub samples: Samples,
    /// Of the proxy. Unit: ns.
    pub cpu_ns: u64,
    pub seconds: f64,
}

/// Memory for each idle connection, of several processes. Unit: B.
pub struct Idle {
    pub peer: Peer,
    pub bytes: Vec<f64>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let placement = Placement::of(args.free)?;
    let folder = tempfile::tempdir()?;
    raise_descriptor_limit()?;
    rustix::thread::sched_setaffinity(None, &placement.load)?;
    let clock = Clock::start();
    let upstream = Upstream::start(clock)?;
    let setting = Setting {
        everwarm: args.everwarm.clone(),
        other: args.other.clone(),
        litellm: args.litellm.clone(),
        upstream: upstream.address,
        folder: folder.path().to_owned(),
        placement,
    };
    let mut peers = vec![Peer::Everwarm, Peer::Relay, Peer::Nginx, Peer::Haproxy];
    peers.extend(args.other.as_ref().map(|_| Peer::Other));
    peers.extend(args.litellm.as_ref().map(|_| Peer::Litellm));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = async {
        let idle = idle(&peers, &setting, clock).await?;
        let running: Vec<(Peer, Running)> =
            peers.iter().map(|p| Ok((*p, p.start(&setting)?))).collect::<anyhow::Result<_>>()?;
        let mut prewarm = Prewarm::start(&setting)?;
        let (mut conditions, mut delays) = (conditions(&peers, args), Delays::default());
        for round in 0..args.rounds {
            eprintln!("round {} of {}", round + 1, args.rounds);
            let count = conditions.len();
            for n in 0..count {
                // Whoever comes first in one round does not in the next.
                let condition = &mut conditions[(n + round as usize) % count];
                upstream.schedule(condition.load.gap);
                let proxy = running.iter().find(|(peer, _)| Some(*peer) == condition.peer);
                let proxy = proxy.map(|(_, running)| running);
                let measured = measure(condition.load, proxy, &setting, clock).await?;
                condition.rounds.push(measured);
            }
            prewarm.round(clock, args.prewarms, &mut delays).await?;
        }
        anyhow::Ok(tables::all(&conditions, &idle, &delays, placement, args.rounds))
    };
    // Cut short it ends what it started.
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            text = measured => println!("{}", text?),
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            _ = terminate.recv() => anyhow::bail!("terminated"),
        }
        Ok(())
    })
}

fn conditions(peers: &[Peer], args: &Args) -> Vec<Condition> {
    let mut all = Vec::new();
    let span = Duration::from_secs_f64(args.seconds);
    for streaming in [false, true] {
        for connections in args.connections.iter().copied() {
            let load = Load { connections, streaming, span, gap: gap(connections) };
            let conditions = std::iter::once(None).chain(peers.iter().copied().map(Some));
            all.extend(conditions.map(|peer| Condition { peer, load, rounds: Vec::new() }));
        }
    }
    all
}

async fn measure(
    load: Load,
    proxy: Option<&Running>,
    setting: &Setting,
    clock: Clock,
) -> anyhow::Result<Round> {
    let cpu = || proxy.map_or(0, Running::cpu_ns);
    let address = proxy.map_or(setting.upstream, |proxy| proxy.address);
    let (mut before, mut began) = (0, clock.now());
    let samples = put(address, clock, load, || (before, began) = (cpu(), clock.now())).await?;
    let seconds = (clock.now() - began) as f64 / 1e9;
    Ok(Round { samples, cpu_ns: cpu() - before, seconds })
}

/// What an idle connection takes: the growth of a fresh process's resident memory.
async fn idle(peers: &[Peer], setting: &Setting, clock: Clock) -> anyhow::Result<Vec<Idle>> {
    let mut all: Vec<Idle> = peers.iter().map(|p| Idle { peer: *p, bytes: Vec::new() }).collect();
    for _ in 0..IDLE_REPEATS {
        for idle in &mut all {
            let proxy = idle.peer.start(setting)?;
            let mut open = Vec::with_capacity(IDLE);
            let mut before = 0;
            for n in 0..=IDLE {
                let mut connection = Connection::open(proxy.address, clock).await?;
                // One that has served a request has met every buffer that it will keep.
                connection.ask(false, &mut Samples::default()).await?;
                open.push(connection);
                if n == 0 {
                    before = proxy.resident();
                }
            }
            idle.bytes.push((proxy.resident() as f64 - before as f64) / IDLE as f64);
        }
    }
    Ok(all)
}

fn raise_descriptor_limit() -> anyhow::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    let enough = 32_768;
    limit.current = Some(limit.maximum.map_or(enough, |most| most.min(enough)));
    Ok(setrlimit(Resource::Nofile, limit)?)
}
