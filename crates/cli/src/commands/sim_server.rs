//! `everwarm sim-server`.

use std::process::ExitCode;

/// A simulated GPU in real time behind an OpenAI-compatible API.
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
