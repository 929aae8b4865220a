//! `cargo xtask bench proxy`: what the proxy costs beside nginx, haproxy and, if asked for, litellm.
//!
//! Installs those, builds the proxy and the measuring program (the proxy's example `01-cost`) in
//! release, and runs the latter, which prints the tables of `docs/performance.md`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{setup, shell};

/// The peers, and the Debian package of each.
const PEERS: [(&str, &str); 2] = [("nginx", "nginx-light"), ("haproxy", "haproxy")];

/// litellm with its server, pinned.
const LITELLM: &str = "litellm[proxy]==1.108.7";

#[derive(clap::Args)]
pub struct Args {
    /// Measure litellm, too: a Python venv of 0.8 GB under the target folder, and some minutes more.
    #[arg(long)]
    litellm: bool,
    /// Another build of `everwarm`, to be compared with this one in the same rounds.
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
    /// How often each condition is measured; the conditions take turns.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// How long each condition is measured in a round. Unit: s.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    seconds: f64,
    /// Connections at a time.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 32, 256])]
    connections: Vec<usize>,
    /// Connections in a round whose pre-warm is waited for, a tenth of a second each.
    #[arg(long, value_name = "N", default_value_t = 50)]
    prewarms: u32,
    /// Let the proxies run on every CPU, nginx and haproxy with a thread for each, instead of on one.
    #[arg(long)]
    free: bool,
}

pub fn run(args: &Args) -> anyhow::Result<bool> {
    let sbin = Path::new("/usr/sbin");
    let there = |program: &str| shell::find(program).is_some() || sbin.join(program).exists();
    let missing: Vec<&str> =
        PEERS.iter().filter(|(program, _)| !there(program)).map(|(_, package)| *package).collect();
    setup::install(&missing)?;
    let target = shell::target()?;
    let litellm = args.litellm.then(|| litellm(&target)).transpose()?;
    // In one go, so that both are built from the same libraries.
    let build = ["build", "--release", "--package", "everwarm", "--package", "everwarm-proxy"];
    shell::run(shell::cargo().args(build).args(["--bins", "--example", "01-cost"]))?;
    let mut command = Command::new(target.join("release/examples/01-cost"));
    command.arg(target.join("release/everwarm"));
    command.args(["--rounds", &args.rounds.to_string(), "--seconds", &args.seconds.to_string()]);
    let connections: Vec<_> = args.connections.iter().map(usize::to_string).collect();
    command.args(["--connections", &connections.join(",")]);
    command.args(["--prewarms", &args.prewarms.to_string()]);
    command.args(args.free.then_some("--free"));
    if let Some(other) = &args.other {
        command.arg("--other").arg(other);
    }
    if let Some(litellm) = litellm {
        command.arg("--litellm").arg(litellm);
    }
    shell::run(&mut command)?;
    Ok(true)
}

/// litellm's program, installed when it is not there.
fn litellm(target: &Path) -> anyhow::Result<PathBuf> {
    let venv = setup::venv_of(&target.join("litellm-venv"), LITELLM)?;
    Ok(venv.join("bin/litellm"))
}
