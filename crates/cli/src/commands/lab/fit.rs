//! `everwarm lab fit`.

use super::{run_file, short};
use crate::bench::bar;
use crate::output::{print, print_json, write_whole};
use anyhow::Context;
use everwarm_lab::fit::{Fit, Options, fit};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Finds a chip that behaves like the GPU of recorded runs.
///
/// Record the probes on one device first: `everwarm lab run fit-ramp --device DEV -o fit-ramp.jsonl`,
/// and so on for fit-gaps, fit-decay, fit-idle and fit-wake. What they show is read off without a
/// model; the controller's parameters are then searched for by simulation. A fifth of the cells is
/// kept back, and the fitted chip is held against it. docs/fit.md tells the method and how good it is.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm lab fit fit-*.jsonl -o chip.toml --top-clock 1398
  everwarm lab run ramp-500ms --device sim:chip.toml")]
pub(super) struct Args {
    /// Recorded runs of one device (JSON Lines).
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// The chip file to write.
    #[arg(short, long, value_name = "CHIP")]
    output: PathBuf,
    /// Replace the chip file if it exists.
    #[arg(long)]
    force: bool,
    /// The top clock in MHz; without it clocks are known as shares of the top one only.
    #[arg(long, value_name = "MHZ")]
    top_clock: Option<f64>,
    /// The chip whose values stand where the runs show nothing.
    #[arg(long, value_name = "CHIP", default_value = "m2")]
    like: String,
    /// The most simulations of the search; 0 writes what can be read off.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    budget: usize,
    /// Simulations at once; without it as many as there are cores.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let shown = args.output.display();
    anyhow::ensure!(args.force || !args.output.exists(), "`{shown}` exists; --force replaces it");
    if let Some(clock) = args.top_clock {
        anyhow::ensure!(clock > 0.0 && clock.is_finite(), "--top-clock is {clock}; expected MHz");
    }
    let runs =
        args.runs.iter().map(|path| run_file::load(path)).collect::<anyhow::Result<Vec<_>>>()?;
    for (run, path) in runs.iter().zip(&args.runs) {
        if let Some(broken) = &run.truncated {
            let (shown, line) = (path.display(), broken.line);
            eprintln!("warning: `{shown}` breaks off in line {line}; the cell there is left out");
        }
    }
    let id = match args.like.contains(':') {
        true => args.like.clone(),
        false => format!("sim:{}", args.like),
    };
    let default = everwarm_gpu::backend::traced_chip(&id).context("no such chip for --like")?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.jobs.unwrap_or(cores).max(1);
    let options = Options { top_clock: args.top_clock, default, budget: args.budget, threads };
    let bar = bar(args.budget as u64, args.json);
    let fitted = fit(&runs, &options, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    write_whole(&args.output, fitted.chip.as_bytes(), args.force)?;
    match args.json {
        true => print_json(&document(&fitted, &args.output))?,
        false => print(&text(&fitted, &args.output))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn document(fitted: &Fit, output: &Path) -> Value {
    let finding =
        |f: &everwarm_lab::fit::Finding| json!({"value": f.value, "interval": [f.lo, f.hi]});
    let findings: Map<String, Value> =
        fitted.findings.iter().map(|(name, f)| (name.clone(), finding(f))).collect();
    let missing: Map<String, Value> =
        fitted.missing.iter().map(|(name, why)| (name.clone(), why.as_str().into())).collect();
    let parameter = |p: &everwarm_lab::fit::Parameter| json!({"key": p.key, "value": p.value, "interval": p.interval.map(|(lo, hi)| [lo, hi])});
    json!({
        "device": fitted.device,
        "output": output.display().to_string(),
        "findings": findings,
        "not_identified": missing,
        "parameters": fitted.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "searched": !fitted.parameters.is_empty(),
        "loss": {"before": fitted.loss.0, "after": fitted.loss.1},
        "kept_back": fitted.kept_back.map(|kept| json!({
            "cells": kept.cells,
            "fitted": {"median": kept.fitted.0, "p90": kept.fitted.1},
            "default": {"median": kept.default.0, "p90": kept.default.1},
        })),
    })
}

fn text(fitted: &Fit, output: &Path) -> String {
    let mut out = format!("{}\n\nread off (ms, clocks as shares of the top one)\n", fitted.device);
    for (name, f) in &fitted.findings {
        out += &format!("  {name:60} {:>9}  {} .. {}\n", short(f.value), short(f.lo), short(f.hi));
    }
    for (name, why) in &fitted.missing {
        out += &format!("  {name:60} not identified: {why}\n");
    }
    match fitted.parameters.is_empty() {
        true => out += "\nthe controller's parameters: not searched (--budget 0)\n",
        false => out += "\nsearched for\n",
    }
    for p in &fitted.parameters {
        let interval = p.interval.map_or("not identified".to_owned(), |(lo, hi)| {
            format!("{} .. {} {}", short(lo), short(hi), p.unit)
        });
        out += &format!("  {:45} {:>14}  {interval}\n", p.key, p.value);
    }
    if let Some(kept) = fitted.kept_back {
        let two = |(a, b): (f64, f64)| {
            format!("{} % (nine in ten: {} %)", short(100.0 * a), short(100.0 * b))
        };
        out += &format!(
            "\nGPU times of {} cells that were kept back: off by {}; before the search by {}\n",
            kept.cells,
            two(kept.fitted),
            two(kept.default)
        );
    }
    out + &format!("\nwritten to {}: --device sim:{0}\n", output.display())
}
