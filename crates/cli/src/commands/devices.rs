//! `everwarm devices`.

use crate::output::{print, print_json};
use std::process::ExitCode;

/// Lists the devices found, and why others were not.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON instead of text: [{"id", "usable", "default", "name" or "why"}].
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let default = everwarm_gpu::default_device();
    let found = everwarm_gpu::devices();
    if args.json {
        let row = |found: &everwarm_gpu::backend::Found| {
            let (key, text) = match &found.state {
                Ok(name) => ("name", name),
                Err(why) => ("why", why),
            };
            serde_json::json!({
                "id": found.id,
                "usable": found.state.is_ok(),
                "default": found.id == default,
                key: text,
            })
        };
        let rows: Vec<_> = found.iter().map(row).collect();
        print_json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let width = found.iter().map(|found| found.id.len()).max().unwrap_or(0);
    let line = |found: &everwarm_gpu::backend::Found| match &found.state {
        Ok(name) if found.id == default => format!("{:width$}  {name} (default)\n", found.id),
        Ok(name) => format!("{:width$}  {name}\n", found.id),
        Err(why) => format!("{:width$}  not usable: {why}\n", found.id),
    };
    let lines: String = found.iter().map(line).collect();
    let also = "Also: sim:FILE.toml (a chip file), sim:SOCKET (shared by `everwarm sim-server`).";
    print(&format!("{lines}\n{also}\n"))?;
    Ok(ExitCode::SUCCESS)
}
