//! `everwarm hold`.

use std::process::ExitCode;

/// Keeps a GPU warm for a time, or while a command runs.
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
