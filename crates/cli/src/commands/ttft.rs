//! `everwarm ttft`.

use std::process::ExitCode;

/// Measures time to first token in interleaved conditions.
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
