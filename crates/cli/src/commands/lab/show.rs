//! `everwarm lab show`, and what `lab run` prints: a recorded run as a table.

use super::{run_file, short};
use crate::output::{print, print_json};
use everwarm_lab::Summary;
use everwarm_record::Run;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows recorded runs: a line for each step with work in each cell.
///
/// Medians over all rounds: `wall` is the step's time on the host, `buffer` how long a command buffer
/// executed, `first start` the time from the first buffer's commit to its start on the GPU, `gap` the
/// time between two buffers on the GPU; `speed` is the lowest and the highest p-state at which a
/// buffer began, or the lowest and highest clock that was counted; `power` comes from the energy
/// counter, where the scenario reads it. docs/record.md tells what is in a record.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm lab show run.jsonl
  everwarm lab show runs/*.jsonl --markdown
  everwarm lab show run.jsonl --json")]
pub(super) struct Args {
    /// Files that `lab run -o` wrote (JSON Lines).
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Print Markdown tables.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON: a list with one object a run.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut documents = Vec::new();
    for path in &args.runs {
        let run = run_file::load(path)?;
        if let Some(cut) = &run.truncated {
            eprintln!("everwarm: {} breaks off in line {}", path.display(), cut.line);
        }
        match (args.json, args.markdown) {
            (true, _) => documents.push(json_of(&run, None)),
            (_, true) => print(&markdown(&run))?,
            _ => print(&(text(&run, None) + "\n"))?,
        }
    }
    if args.json {
        print_json(&documents)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A run as a JSON object; `output` is where its record was written.
pub(super) fn json_of(run: &Run, output: Option<&Path>) -> Value {
    json!({
        "device": run.manifest.device_id,
        "scenario": scenario(run),
        "seed": run.manifest.seed,
        "output": output.map(|path| path.display().to_string()),
        "steps": everwarm_lab::summary(run).iter().map(step_json).collect::<Vec<_>>(),
    })
}

fn step_json(row: &Summary) -> Value {
    json!({
        "cell": row.cell,
        "actor": row.actor,
        "label": row.label,
        "runs": row.runs,
        "dispatches": row.dispatches,
        "wall_ms": row.wall_ms,
        "execution_ms": row.execution_ms,
        "first_commit_to_start_ms": row.first_start_ms,
        "gap_ms": row.gap_ms,
        "pstates": row.pstates.map(|(low, high)| [low, high]),
        "clocks_mhz": row.clocks_mhz.map(|(low, high)| [low, high]),
        "power_w": row.power_w,
    })
}

/// What a run was of.
fn scenario(run: &Run) -> &str {
    run.manifest.scenario.as_ref().map_or("no scenario", |scenario| &scenario.name)
}

const HEAD: [&str; 10] =
    ["cell", "step", "runs", "buffers", "wall", "buffer", "first start", "gap", "speed", "power"];

/// The columns of one line; the first two are words, the others numbers.
fn columns(row: &Summary) -> [String; 10] {
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let ms = |value: Option<f64>| or(value.map(|v| format!("{} ms", short(v))));
    [
        or(row.cell.clone()),
        row.label.clone(),
        row.runs.to_string(),
        row.dispatches.to_string(),
        ms(row.wall_ms),
        ms(row.execution_ms),
        ms(row.first_start_ms),
        ms(row.gap_ms),
        speed(row),
        or(row.power_w.map(|power| format!("{} W", short(power)))),
    ]
}

/// A run as a table for a terminal; `output` is where its record was written.
pub(super) fn text(run: &Run, output: Option<&Path>) -> String {
    let rows: Vec<_> = everwarm_lab::summary(run).iter().map(columns).collect();
    let head = HEAD.map(str::to_owned);
    let width = |n: usize| {
        let cells = std::iter::once(&head).chain(&rows).map(|row| row[n].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: [usize; 10] = std::array::from_fn(width);
    let line = |row: &[String; 10]| {
        let cells = row.iter().zip(widths).enumerate().map(|(n, (cell, width))| match n {
            0 | 1 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let manifest = &run.manifest;
    let title =
        format!("{} on {} ({})\n\n", scenario(run), manifest.device_id, manifest.device_name);
    let recorded = output.map(|path| format!("\nrecorded in {}\n", path.display()));
    let lines: String = rows.iter().map(&line).collect();
    title + &line(&head) + &lines + &recorded.unwrap_or_default()
}

/// A run as a Markdown table under its title.
fn markdown(run: &Run) -> String {
    let manifest = &run.manifest;
    let rounds = run.dispatches.iter().filter_map(|d| d.round).max().map_or(1, |last| last + 1);
    let title = format!(
        "**{}** on `{}` ({}), {rounds} rounds\n\n",
        scenario(run),
        manifest.device_id,
        manifest.device_name,
    );
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let lines = everwarm_lab::summary(run);
    let lines: String = lines.iter().map(|row| line(&columns(row))).collect();
    let rule = "| --- ".repeat(HEAD.len()) + "|\n";
    title + &line(&HEAD.map(str::to_owned)) + &rule + &lines + "\n"
}

/// The lowest and highest p-state, or clock where the device tells no p-states.
fn speed(row: &Summary) -> String {
    match (row.pstates, row.clocks_mhz) {
        (Some((low, high)), _) if low == high => format!("P{low}"),
        (Some((low, high)), _) => format!("P{low}-P{high}"),
        (None, Some((low, high))) if high - low < 0.5 => format!("{high:.0} MHz"),
        (None, Some((low, high))) => format!("{low:.0}-{high:.0} MHz"),
        (None, None) => "-".to_owned(),
    }
}
