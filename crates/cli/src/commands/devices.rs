//! `everwarm devices`.

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
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(ExitCode::SUCCESS);
    }
    let width = found.iter().map(|found| found.id.len()).max().unwrap_or(0);
    for found in &found {
        match &found.state {
            Ok(name) if found.id == default => println!("{:width$}  {name} (default)", found.id),
            Ok(name) => println!("{:width$}  {name}", found.id),
            Err(why) => println!("{:width$}  not usable: {why}", found.id),
        }
    }
    println!("\nAlso: sim:FILE.toml (a chip file), sim:SOCKET (shared by `everwarm sim-server`).");
    Ok(ExitCode::SUCCESS)
}
