//! `everwarm lab list`, `run` and `check`.

use crate::bench::bar;
use crate::output::{print, print_json, write_whole};
use anyhow::Context;
use everwarm_lab::{Claims, Report, Scenario, Summary, Verdict};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

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
///
/// It prints a line for each step with work in each cell of the sweep, medians over all rounds:
/// `wall` is the step's time on the host, `buffer` how long a command buffer executed, `first
/// start` the time from the first buffer's commit to its start on the GPU; `p-states` are the lowest
/// and the highest at which a buffer began. docs/record.md tells what `-o` writes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm lab run ramp-500ms --device sim:m2
  everwarm lab run mine.toml --device sim:m2 -o run.jsonl
  everwarm lab run mine.toml --device sim:my-chip.toml --seed 7 --json")]
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
        print_json(&all.map(row).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let lines = all.map(|scenario| format!("{:20} {}\n", scenario.name, scenario.about));
    print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

fn run_one(args: Run) -> anyhow::Result<ExitCode> {
    let (mut scenario, text) = scenario(&args.scenario)?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    if let Some(path) = &args.output {
        // Before the run, which may take long.
        writable(path, args.force)?;
        anyhow::ensure!(cfg!(feature = "parquet") || !is_table(path), NO_PARQUET);
    }
    let id = device(args.device);
    let self_test = everwarm_lab::self_test(&id)?;
    let started = SystemTime::now();
    let bar = bar((scenario.cells.len() * scenario.rounds as usize) as u64, args.json);
    let run = everwarm_lab::run(&scenario, &id, |done, _| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    if let Some(path) = &args.output {
        let mut manifest = everwarm_lab::manifest(&run, &text);
        manifest.self_test = Some(self_test);
        if !run.device.virtual_time {
            let since = started.duration_since(SystemTime::UNIX_EPOCH).ok();
            manifest.started_unix_ns = since.and_then(|d| u64::try_from(d.as_nanos()).ok());
        }
        save(path, &everwarm_lab::records(&run, manifest), args.force)?;
    }
    let rows = everwarm_lab::summary(&run);
    match args.json {
        true => {
            let document = json!({
                "device": run.device.id,
                "scenario": run.scenario,
                "seed": run.seed,
                "output": args.output.as_ref().map(|path| path.display().to_string()),
                "steps": rows.iter().map(summary_json).collect::<Vec<_>>(),
            });
            print_json(&document)?;
        }
        false => print(&summary_text(&run, &rows, args.output.as_deref()))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A scenario by its built-in name or from a file, with its text.
fn scenario(name: &str) -> anyhow::Result<(Scenario, String)> {
    if let Some(scenario) = everwarm_lab::scenario(name) {
        let found = everwarm_lab::SCENARIOS.iter().find(|one| one.name == name);
        return Ok((scenario, found.map(|one| one.text.to_owned()).unwrap_or_default()));
    }
    if !Path::new(name).exists() {
        let known = everwarm_lab::scenario_names();
        anyhow::bail!("no scenario `{name}`: no such file, and built in are {known}");
    }
    let text = read(Path::new(name), "scenario")?;
    Ok((Scenario::from_toml(name, &text)?, text))
}

/// The text of a file that a person wrote.
fn read(path: &Path, what: &str) -> anyhow::Result<String> {
    let shown = path.display();
    let bytes =
        std::fs::read(path).with_context(|| format!("the {what} file `{shown}` can't be read"))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow::anyhow!("{shown}:{line}: the {what} file is not UTF-8 from here on")
    })
}

const NO_PARQUET: &str = "this build can't write Parquet (build it with `--features parquet`); \
                          any other ending than .parquet gives JSON Lines";

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext == "parquet")
}

/// Refuses a place for a run's file where nothing could be written, or something would be lost.
fn writable(path: &Path, force: bool) -> anyhow::Result<()> {
    let shown = path.display();
    anyhow::ensure!(!path.is_dir(), "`{shown}` is a folder; expected the name of a file");
    if let Some(there) = files(path).iter().find(|file| !force && file.is_file()) {
        anyhow::bail!("`{}` exists; --force replaces it", there.display());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        anyhow::ensure!(folder.is_dir(), "`{shown}`: there is no folder `{}`", folder.display());
    }
    Ok(())
}

/// Writes a run so that its file is there whole or not at all.
fn save(path: &Path, run: &everwarm_record::Run, force: bool) -> anyhow::Result<()> {
    match is_table(path) {
        true => save_tables(path, run, force),
        false => write_whole(path, &run.to_json_lines(), force),
    }
}

/// Every file of a run that is written to `path`. In tables, the command buffers stand under the
/// name itself, the others beside it: `run.telemetry.parquet`.
fn files(path: &Path) -> Vec<PathBuf> {
    #[cfg(feature = "parquet")]
    if is_table(path) {
        let beside = everwarm_record::parquet::TABLES[1..].iter();
        let beside = beside.map(|table| path.with_extension(format!("{table}.parquet")));
        return std::iter::once(path.to_owned()).chain(beside).collect();
    }
    vec![path.to_owned()]
}

#[cfg(feature = "parquet")]
fn save_tables(path: &Path, run: &everwarm_record::Run, force: bool) -> anyhow::Result<()> {
    let tables = everwarm_record::parquet::to_tables(run)?;
    for (file, (_, bytes)) in files(path).iter().zip(tables) {
        write_whole(file, &bytes, force)?;
    }
    Ok(())
}

#[cfg(not(feature = "parquet"))]
fn save_tables(_path: &Path, _run: &everwarm_record::Run, _force: bool) -> anyhow::Result<()> {
    anyhow::bail!(NO_PARQUET)
}

fn summary_json(row: &Summary) -> Value {
    json!({
        "cell": row.cell,
        "actor": row.actor,
        "label": row.label,
        "runs": row.runs,
        "dispatches": row.dispatches,
        "wall_ms": row.wall_ms,
        "execution_ms": row.execution_ms,
        "first_commit_to_start_ms": row.first_start_ms,
        "pstates": row.pstates.map(|(low, high)| [low, high]),
    })
}

fn summary_text(run: &everwarm_lab::RunData, rows: &[Summary], output: Option<&Path>) -> String {
    let ms = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{} ms", short(v)));
    let cell = |row: &Summary| row.cell.clone().unwrap_or_else(|| "-".to_owned());
    let width =
        |shown: Vec<usize>, head: &str| shown.into_iter().max().unwrap_or(0).max(head.len());
    let cells = width(rows.iter().map(|row| cell(row).chars().count()).collect(), "cell");
    let labels = width(rows.iter().map(|row| row.label.chars().count()).collect(), "step");
    let row = |row: &Summary| {
        let states = match row.pstates {
            None => "-".to_owned(),
            Some((low, high)) if low == high => format!("P{low}"),
            Some((low, high)) => format!("P{low}-P{high}"),
        };
        format!(
            "{:cells$}  {:labels$}  {:>5} {:>9} {:>12} {:>12} {:>12}  {states}\n",
            cell(row),
            row.label,
            row.runs,
            row.dispatches,
            ms(row.wall_ms),
            ms(row.execution_ms),
            ms(row.first_start_ms),
        )
    };
    let head = format!(
        "{:cells$}  {:labels$}  {:>5} {:>9} {:>12} {:>12} {:>12}  p-states\n",
        "cell", "step", "runs", "buffers", "wall", "buffer", "first start"
    );
    let recorded = output.map(|path| format!("\nrecorded in {}\n", path.display()));
    let title = format!("{} on {} ({})\n\n", run.scenario, run.device.id, run.device.name);
    let lines: String = rows.iter().map(row).collect();
    title + &head + &lines + &recorded.unwrap_or_default()
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
    let text = read(file, "claims")?;
    let folder = file.parent().unwrap_or(Path::new("."));
    Ok(Claims::from_toml(&file.display().to_string(), &text, folder)?)
}

fn check(args: Check) -> anyhow::Result<ExitCode> {
    let mut claims = claims(args.claims.as_deref())?;
    if let Some(pattern) = &args.only {
        claims = claims.only(pattern);
        anyhow::ensure!(!claims.claims.is_empty(), "no claim's id fits `{pattern}`");
    }
    let bar = bar(0, args.json);
    let progress = |done: usize, all: usize, _: &str| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let report = everwarm_lab::check(&claims, &device(args.device), &progress)?;
    bar.finish_and_clear();
    match args.json {
        true => print_json(&report_json(&claims, &report))?,
        false => print(&report_text(&claims, &report))?,
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

fn report_text(claims: &Claims, report: &Report) -> String {
    let width = claims.claims.iter().map(|claim| claim.id.len()).max().unwrap_or(0);
    let line = |(claim, verdict): (&everwarm_lab::Claim, &Verdict)| {
        let mark = if verdict.held { "holds" } else { "FAILS" };
        let measured = match &verdict.measured {
            None => "not measured".to_owned(),
            Some(values) => {
                let shown: Vec<_> = values.iter().map(|value| short(*value)).collect();
                format!("{} {}", shown.join(", "), shown_unit(&verdict.unit))
            }
        };
        let reason = verdict.reason.as_ref().map(|reason| format!("       {reason}\n"));
        format!(
            "{mark}  {:width$}  {} (expected {})\n{}",
            claim.id,
            measured.trim_end(),
            claim.expect,
            reason.unwrap_or_default()
        )
    };
    let lines: String = claims.claims.iter().zip(&report.verdicts).map(line).collect();
    let (held, total) = (report.held(), report.verdicts.len());
    format!("{lines}\n{held} of {total} claims hold on {}\n", report.device)
}

/// A pure number has no unit in text.
fn shown_unit(unit: &str) -> &str {
    if unit == "1" { "" } else { unit }
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
