//! `everwarm lab run`.

use super::run_file::Journal;
use super::{device, read};
use super::{run_file, show};
use crate::bench::bar;
use crate::output::{print, print_json};
use crate::stop::Stop;
use anyhow::Context;
use everwarm_lab::{Export, RunData, Scenario};
use everwarm_record::{Manifest, Run};
use serde_json::json;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Runs a scenario and records what happened.
///
/// It prints a line for each step with work in each cell of the sweep, as `lab show` does of a
/// recorded run. docs/record.md tells what `-o` writes. Ctrl-C ends the run after the round that is
/// running, and writes what there is; a second one ends it at once, and leaves RUN.part with the rounds
/// before. Of several scenarios one that fails does not keep the others from running.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm lab run ramp-500ms --device sim:m2
  everwarm lab run mine.toml --device sim:m2 -o run.jsonl
  everwarm lab run mine.toml --device sim:my-chip.toml --seed 7 --json
  everwarm lab run quick --device cuda:0 -o runs        # a set: a file each in the folder `runs`
  everwarm lab run all --rounds 1 -o runs")]
pub(super) struct Args {
    /// Built-in scenarios (see `everwarm lab list`), scenario files, or a set of built-in ones: `quick`
    /// (some minutes by the wall clock) or `all` (half an hour).
    #[arg(value_name = "NAME|FILE|SET", required = true)]
    scenarios: Vec<String>,
    /// Where to run it, such as sim:m2 [default: the first real device, else sim:m2].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The run's file: JSON Lines, compressed if it ends in .gz, or Parquet if in .parquet. With several
    /// scenarios, or a slash at the end, a folder that gets a file each, NAME.jsonl.
    #[arg(short, long, value_name = "RUN")]
    output: Option<PathBuf>,
    /// Replace the run's file if it exists.
    #[arg(long)]
    force: bool,
    /// Seed of all jitter, instead of the scenario's.
    #[arg(long)]
    seed: Option<u64>,
    /// How often each cell runs, instead of as the scenario says.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Print JSON instead of text: one object a scenario, several as a list.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plans = plans(&args)?;
    let id = device(args.device.clone());
    let stop = Stop::listen()?;
    if let [plan] = &plans[..] {
        let run = carry_out(plan, &id, &args, &stop)?;
        match args.json {
            true => print_json(&show::json_of(&run, plan.output.as_deref()))?,
            false => print(&show::text(&run, plan.output.as_deref()))?,
        }
        return Ok(if stop.asked() { Stop::code() } else { ExitCode::SUCCESS });
    }
    run_each(&plans, &id, &args, &stop)
}

/// Runs several scenarios; one that fails is named at the end, and the others run all the same.
fn run_each(plans: &[Plan], id: &str, args: &Args, stop: &Stop) -> anyhow::Result<ExitCode> {
    let mut documents = Vec::new();
    let mut failed = Vec::new();
    for (n, plan) in plans.iter().enumerate() {
        if stop.asked() {
            break;
        }
        if !args.json {
            eprintln!("{} of {}: {}", n + 1, plans.len(), plan.scenario.name);
        }
        match carry_out(plan, id, args, stop) {
            Ok(run) if args.json => documents.push(show::json_of(&run, plan.output.as_deref())),
            Ok(run) => print(&format!("{}\n", show::text(&run, plan.output.as_deref())))?,
            Err(error) => {
                // What a device can't be given is no fault of the run.
                let refused = error.downcast_ref::<everwarm_lab::Error>();
                let cannot = refused.is_some_and(everwarm_lab::Error::cannot);
                let said = if cannot { "passed over" } else { "failed:" };
                failed.push((said, plan.scenario.name.clone(), format!("{error:#}")));
            }
        }
    }
    for (said, name, why) in &failed {
        eprintln!("{said} {name}: {why}");
    }
    if args.json {
        let none = failed.iter().map(|(_, name, why)| json!({"scenario": name, "why": why}));
        print_json(&documents.into_iter().chain(none).collect::<Vec<_>>())?;
    }
    Ok(match (stop.asked(), failed.is_empty()) {
        (true, _) => Stop::code(),
        (_, true) => ExitCode::SUCCESS,
        (_, false) => ExitCode::FAILURE,
    })
}

/// What is to be run, and where its record goes.
struct Plan {
    scenario: Scenario,
    text: String,
    output: Option<PathBuf>,
}

/// The scenarios that were named, sets resolved, and every place to write to looked at before the
/// first of them runs, which may take long.
fn plans(args: &Args) -> anyhow::Result<Vec<Plan>> {
    let mut names = Vec::new();
    for name in &args.scenarios {
        match everwarm_lab::scenario_set(name) {
            Some(set) => names.extend(set.into_iter().map(str::to_owned)),
            None => names.push(name.clone()),
        }
    }
    let ends_in_slash = |path: &PathBuf| path.to_string_lossy().ends_with(std::path::is_separator);
    let several = names.len() > 1 || args.output.as_ref().is_some_and(ends_in_slash);
    if let Some(folder) = args.output.as_deref().filter(|_| several) {
        let shown = folder.display();
        anyhow::ensure!(!folder.is_file(), "`{shown}` is a file; expected a folder for the runs");
    }
    let mut plans = Vec::with_capacity(names.len());
    for name in names {
        let (mut scenario, text) = scenario(&name)?;
        scenario.seed = args.seed.unwrap_or(scenario.seed);
        if let Some(rounds) = args.rounds {
            scenario.repeat(rounds)?;
        }
        let output = match (&args.output, several) {
            (Some(folder), true) => Some(folder.join(file_name(&scenario.name)?)),
            (path, _) => path.clone(),
        };
        plans.push(Plan { scenario, text, output });
    }
    for (n, plan) in plans.iter().enumerate() {
        let twice =
            plans[..n].iter().any(|other| plan.output.is_some() && other.output == plan.output);
        anyhow::ensure!(
            !twice,
            "`{}` is named twice; both runs would go to one file",
            plan.scenario.name
        );
    }
    if let (Some(folder), true) = (&args.output, several) {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("can't make the folder `{}`", folder.display()))?;
    }
    for path in plans.iter().filter_map(|plan| plan.output.as_deref()) {
        run_file::writable(path, args.force)?;
    }
    Ok(plans)
}

/// The file of a run in the folder of several.
fn file_name(scenario: &str) -> anyhow::Result<String> {
    let plain = |c: char| !c.is_control() && !std::path::is_separator(c);
    anyhow::ensure!(
        !scenario.is_empty() && !scenario.starts_with('.') && scenario.chars().all(plain),
        "a scenario is named {scenario:?}: expected a name that can be a file's in the folder of the runs"
    );
    Ok(format!("{scenario}.jsonl"))
}

/// Runs one scenario and writes its record, of what has ended if it is stopped.
fn carry_out(plan: &Plan, id: &str, args: &Args, stop: &Stop) -> anyhow::Result<Run> {
    let journal = plan.output.as_deref().map(Journal::open).transpose()?.flatten();
    let mut recorder = Recorder { plan, journal, export: Export::default(), records: None };
    let run = recorder.record(id, args, stop);
    let Recorder { journal, records, .. } = recorder;
    let saved = run.and_then(|run| {
        if let Some(path) = &plan.output {
            run_file::save(path, &run, args.force)?;
        }
        Ok(run)
    });
    match (&saved, journal) {
        (Err(_), Some(journal)) if records.is_some_and(|run| !run.marks.is_empty()) => {
            let kept = journal.path().display().to_string();
            saved.with_context(|| format!("what was recorded is in `{kept}`"))
        }
        (_, journal) => {
            journal.into_iter().for_each(Journal::remove);
            saved
        }
    }
}

/// Makes and keeps the records of a run while it goes on.
struct Recorder<'a> {
    plan: &'a Plan,
    journal: Option<Journal>,
    export: Export,
    records: Option<Run>,
}

impl Recorder<'_> {
    fn record(&mut self, id: &str, args: &Args, stop: &Stop) -> anyhow::Result<Run> {
        let scenario = &self.plan.scenario;
        let self_test = everwarm_lab::self_test(id)?;
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok();
        let started = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        let total = scenario.cells.len() * scenario.rounds as usize;
        let bar = bar(total as u64, args.json);
        let mut trouble = None;
        let run = everwarm_lab::run_told(scenario, id, |run| {
            bar.set_position(run.units.len() as u64);
            let mut manifest = everwarm_lab::manifest(run, &self.plan.text);
            manifest.self_test = Some(self_test.clone());
            manifest.started_unix_ns = started.filter(|_| !run.device.virtual_time);
            trouble = self.add(run, manifest).err();
            match stop.asked() || trouble.is_some() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        bar.finish_and_clear();
        let done = run?.units.len();
        if let Some(trouble) = trouble {
            return Err(trouble);
        }
        if done < total {
            eprintln!("stopped: {done} of {total} rounds of cells were recorded");
        }
        Ok(self.records.clone().expect("a run is told once at least"))
    }

    /// Adds what has come last.
    fn add(&mut self, run: &RunData, manifest: Manifest) -> anyhow::Result<()> {
        let is_first = self.records.is_none();
        let mut piece = Run::new(manifest);
        if let Some(unit) = run.units.last() {
            self.export.unit(run, unit, &mut piece);
        }
        if let Some(journal) = &mut self.journal {
            journal.add(&piece, is_first)?;
        }
        match &mut self.records {
            None => self.records = Some(piece),
            Some(records) => records.extend(piece),
        }
        Ok(())
    }
}

/// A scenario by its built-in name or from a file, with its text.
fn scenario(name: &str) -> anyhow::Result<(Scenario, String)> {
    if let Some(scenario) = everwarm_lab::scenario(name) {
        let found = everwarm_lab::SCENARIOS.iter().find(|one| one.name == name);
        return Ok((scenario, found.map(|one| one.text.to_owned()).unwrap_or_default()));
    }
    if !Path::new(name).exists() {
        let known = everwarm_lab::scenario_names();
        anyhow::bail!(
            "no scenario `{name}`: no such file, and built in are {known}, and the sets quick and all"
        );
    }
    let text = read(Path::new(name), "scenario")?;
    Ok((Scenario::from_toml(name, &text)?, text))
}
