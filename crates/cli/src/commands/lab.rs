//! `everwarm lab list`, `run` and `check`.

use anyhow::Context;
use everwarm_lab::{Claims, Report, Verdict};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Experiments as scenario files, on any device.
///
/// A scenario says what is submitted to a GPU, when and by whom (docs/scenarios.md); a claims file
/// says what should be measured (docs/claims.md). Both are text: write your own.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(List),
    Run(Run),
    Check(Check),
}

/// Lists the built-in scenarios.
#[derive(clap::Args)]
struct List {
    /// Print JSON instead of text: [{"name", "about", "cells", "rounds"}].
    #[arg(long)]
    json: bool,
}

/// Runs a scenario and records what happened.
#[derive(clap::Args)]
struct Run {
    /// A built-in scenario (see `everwarm lab list`) or a scenario file.
    #[arg(value_name = "NAME|FILE")]
    scenario: String,
    /// Where to run it, such as sim:m2 [default: the first real device, else sim:m2].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The run's file: JSON Lines, or Parquet if it ends in .parquet.
    #[arg(short, long, value_name = "RUN")]
    output: Option<PathBuf>,
    /// Replace the run's file if it exists.
    #[arg(long)]
    force: bool,
    /// Seed of all jitter, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Holds a device against a claims file.
///
/// Exits with 0 when every claim could be checked or given a reason, whether it holds or not; a
/// claim that does not hold is a result, not a failure.
#[derive(clap::Args)]
struct Check {
    /// The claims file [default: the figures of the M2 study].
    #[arg(value_name = "CLAIMS.toml")]
    claims: Option<PathBuf>,
    /// The device, such as sim:m2 [default: the first real device, else sim:m2].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Only the claims whose id fits, such as 'queue.*'.
    #[arg(long, value_name = "GLOB")]
    only: Option<String>,
    /// Fail if a claim does not hold.
    #[arg(long)]
    strict: bool,
    /// Print JSON: {"device", "held", "total", "claims": [{"id", "expect", "measured", …}]}.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List(args) => list(args),
        Command::Run(args) => run_one(args),
        Command::Check(args) => check(args),
    }
}

fn list(args: List) -> anyhow::Result<ExitCode> {
    let all = everwarm_lab::SCENARIOS.iter().filter_map(|one| everwarm_lab::scenario(one.name));
    if args.json {
        let row = |s: everwarm_lab::Scenario| json!({ "name": s.name, "about": s.about, "cells": s.cells.len(), "rounds": s.rounds });
        println!("{}", serde_json::to_string_pretty(&all.map(row).collect::<Vec<_>>())?);
        return Ok(ExitCode::SUCCESS);
    }
    for scenario in all {
        println!("{:20} {}", scenario.name, scenario.about);
    }
    Ok(ExitCode::SUCCESS)
}

fn run_one(args: Run) -> anyhow::Result<ExitCode> {
    let _ = (args.scenario, args.device, args.output, args.force, args.seed, args.json);
    anyhow::bail!("`lab run` is still being written")
}

/// The device that was asked for, or the default one; says which if it was not.
fn device(asked: Option<String>) -> String {
    asked.unwrap_or_else(|| {
        let device = everwarm_gpu::default_device();
        eprintln!("no --device: using {device}");
        device
    })
}

fn claims(file: Option<&Path>) -> anyhow::Result<Claims> {
    let Some(file) = file else { return Ok(Claims::built_in()) };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("the claims file `{}` can't be read", file.display()))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    Ok(Claims::from_toml(&file.display().to_string(), &text, folder)?)
}

fn check(args: Check) -> anyhow::Result<ExitCode> {
    let mut claims = claims(args.claims.as_deref())?;
    if let Some(pattern) = &args.only {
        claims = claims.only(pattern);
        anyhow::ensure!(!claims.claims.is_empty(), "no claim's id fits `{pattern}`");
    }
    let report = everwarm_lab::check(&claims, &device(args.device), &|_, _, _| {})?;
    match args.json {
        true => println!("{}", serde_json::to_string_pretty(&report_json(&claims, &report))?),
        false => print_report(&claims, &report),
    }
    let failed = args.strict && report.held() < report.verdicts.len();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report_json(claims: &Claims, report: &Report) -> Value {
    let row = |(claim, verdict): (&everwarm_lab::Claim, &Verdict)| {
        let mut row = json!({
            "id": verdict.id,
            "expect": expect_json(&claim.expect),
            "measured": measured_json(verdict),
            "unit": verdict.unit,
            "held": verdict.held,
        });
        if let Some(reason) = &verdict.reason {
            row["reason"] = json!(reason);
        }
        row
    };
    let rows: Vec<_> = claims.claims.iter().zip(&report.verdicts).map(row).collect();
    json!({
        "device": report.device,
        "held": report.held(),
        "total": report.verdicts.len(),
        "claims": rows,
    })
}

/// A range as [low, high], else the value or the list; with its tolerance where it has one.
fn expect_json(expect: &everwarm_lab::Expect) -> Value {
    use everwarm_lab::Expect;
    match expect {
        Expect::Value { value, .. } => json!(value),
        Expect::Range { lo, hi } => json!([lo, hi]),
        Expect::List { values, .. } => json!(values),
    }
}

fn measured_json(verdict: &Verdict) -> Value {
    match verdict.measured.as_deref() {
        None => Value::Null,
        Some([one]) => json!(one),
        Some(several) => json!(several),
    }
}

fn print_report(claims: &Claims, report: &Report) {
    let width = claims.claims.iter().map(|claim| claim.id.len()).max().unwrap_or(0);
    for (claim, verdict) in claims.claims.iter().zip(&report.verdicts) {
        let mark = if verdict.held { "holds" } else { "FAILS" };
        let measured = match &verdict.measured {
            None => "not measured".to_owned(),
            Some(values) => {
                let shown: Vec<_> = values.iter().map(|value| short(*value)).collect();
                shown.join(", ")
            }
        };
        println!(
            "{mark}  {:width$}  {measured} {} (expected {})",
            claim.id, verdict.unit, claim.expect
        );
        if let Some(reason) = &verdict.reason {
            println!("       {reason}");
        }
    }
    println!("\n{} of {} claims hold on {}", report.held(), report.verdicts.len(), report.device);
}

/// Four significant digits.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        a if a == 0.0 || a >= 1000.0 => 0,
        a => (3 - a.log10().floor() as i32).clamp(0, 9) as usize,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
