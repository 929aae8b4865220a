//! `everwarm lab`.

use std::process::ExitCode;

/// Experiments as scenario files, on any device.
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
