//! `everwarm lab list`.

use crate::output::{print, print_json};
use serde_json::json;
use std::process::ExitCode;

/// Lists the built-in scenarios.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Print JSON instead of text: [{"name", "about", "cells", "rounds"}].
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let all = everwarm_lab::SCENARIOS.iter().filter_map(|one| everwarm_lab::scenario(one.name));
    if args.json {
        let row = |s: everwarm_lab::Scenario| json!({ "name": s.name, "about": s.about, "cells": s.cells.len(), "rounds": s.rounds });
        print_json(&all.map(row).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = all.map(|scenario| format!("{:20} {}\n", scenario.name, scenario.about));
    print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}
