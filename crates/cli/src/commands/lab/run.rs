//! `everwarm lab run`.

use super::{device, read};
use super::{run_file, show};
use crate::bench::bar;
use crate::output::{print, print_json};
use anyhow::Context;
use everwarm_lab::Scenario;
use everwarm_record::Run;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

/// Runs a scenario and records what happened.
///
/// It prints a line for each step with work in each cell of the sweep, as `lab show` does of a
/// recorded run. docs/record.md tells what `-o` writes.
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
    /// The run's file: JSON Lines, compressed if it ends in .gz, or Parquet if in .parquet. With several scenarios, a folder
    /// that gets a file each, NAME.jsonl.
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
    if let [plan] = &plans[..] {
        let run = carry_out(plan, &id, &args)?;
        match args.json {
            true => print_json(&show::json_of(&run, plan.output.as_deref()))?,
            false => print(&show::text(&run, plan.output.as_deref()))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    run_each(&plans, &id, &args)
}

/// Runs several scenarios; one that the device can't be given is named and passed over.
fn run_each(plans: &[Plan], id: &str, args: &Args) -> anyhow::Result<ExitCode> {
    let mut documents = Vec::new();
    let mut passed_over = Vec::new();
    for (n, plan) in plans.iter().enumerate() {
        if !args.json {
            eprintln!("{} of {}: {}", n + 1, plans.len(), plan.scenario.name);
        }
        match carry_out(plan, id, args) {
            Ok(run) if args.json => documents.push(show::json_of(&run, plan.output.as_deref())),
            Ok(run) => print(&format!("{}\n", show::text(&run, plan.output.as_deref())))?,
            Err(error) => match error.downcast_ref::<everwarm_lab::Error>() {
                Some(refused) if refused.cannot() => {
                    passed_over.push((plan.scenario.name.clone(), refused.to_string()));
                }
                _ => return Err(error.context(format!("scenario `{}`", plan.scenario.name))),
            },
        }
    }
    for (name, why) in &passed_over {
        eprintln!("passed over {name}: {why}");
    }
    if args.json {
        let none = passed_over.iter().map(|(name, why)| json!({"scenario": name, "why": why}));
        print_json(&documents.into_iter().chain(none).collect::<Vec<_>>())?;
    }
    let nothing = passed_over.len() == plans.len();
    Ok(if nothing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
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
    let several = names.len() > 1;
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

/// Runs one scenario and writes its record.
fn carry_out(plan: &Plan, id: &str, args: &Args) -> anyhow::Result<Run> {
    let scenario = &plan.scenario;
    let self_test = everwarm_lab::self_test(id)?;
    let started = SystemTime::now();
    let bar = bar((scenario.cells.len() * scenario.rounds as usize) as u64, args.json);
    let run = everwarm_lab::run(scenario, id, |done, _| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    let mut manifest = everwarm_lab::manifest(&run, &plan.text);
    manifest.self_test = Some(self_test);
    if !run.device.virtual_time {
        let since = started.duration_since(SystemTime::UNIX_EPOCH).ok();
        manifest.started_unix_ns = since.and_then(|d| u64::try_from(d.as_nanos()).ok());
    }
    let run = everwarm_lab::records(&run, manifest);
    if let Some(path) = &plan.output {
        run_file::save(path, &run, args.force)?;
    }
    Ok(run)
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
