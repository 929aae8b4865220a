//! `everwarm demo`.

use std::process::ExitCode;

/// The whole story on this machine: a simulated M2, the proxy in front of it, and the first token cold and warm.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let _ = args.json;
    anyhow::bail!("this command is still being written")
}
