//! `everwarm lab run`.

use super::{device, read, short};
use crate::bench::bar;
use crate::output::{print, print_json, write_whole};
use everwarm_lab::{Scenario, Summary};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

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
pub(super) struct Args {
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

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
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
