//! `cargo xtask bench`: times what a user waits for and the engine, in release.
//!
//! Measures whole commands, from start to exit, then the engine's example again and again, and beside
//! it the same queue in Python with SimPy, which must come to the same end; last the engine's cases
//! once more through criterion. Prints the tables of `docs/performance.md`. The engine and the
//! yardstick are measured in CPU time, of which others on the machine take little.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;

use crate::{setup, shell};

mod proxy;

/// The library of the yardstick, pinned.
const SIMPY: &str = "simpy==4.1.1";

/// How often the engine and the yardstick run. Of nine values the second and the last but one
/// enclose the true median with 96 %: 1 - 2 (1 + 9) / 2^9.
const REPEATS: usize = 9;

/// Buffers of the yardstick. With more, SimPy's store, a list, is what is measured.
const YARDSTICK: u32 = 20_000;

/// Lengths of a deep queue, in millions of buffers, at which its cost is compared.
const LENGTHS: [&str; 5] = ["0.001", "0.01", "0.1", "1", "10"];

/// What is timed, and the most it may take.
const COMMANDS: [(&[&str], f64); 1] = [(&["lab", "check", "--json"], 2.0)];

/// What is timed instead.
#[derive(clap::Subcommand)]
pub enum What {
    /// What the proxy costs beside nginx, haproxy and litellm: latency, CPU, memory; six minutes.
    Proxy(proxy::Args),
}

/// Times `what`, else the commands and the engine; true when what has a limit keeps it.
pub fn run(what: Option<&What>) -> anyhow::Result<bool> {
    match what {
        Some(What::Proxy(args)) => proxy::run(args),
        None => commands_and_engine(),
    }
}

/// Runs each command three times; true when the median keeps its limit.
fn commands_and_engine() -> anyhow::Result<bool> {
    let build = ["build", "--release", "--package", "everwarm"];
    shell::run(shell::cargo().args(build))?;
    let everwarm = shell::target()?.join("release/everwarm");
    let mut well = true;
    for (words, limit) in COMMANDS {
        let mut seconds = Vec::new();
        for _ in 0..3 {
            let begun = Instant::now();
            let mut command = Command::new(&everwarm);
            let status = command.args(words).stdout(Stdio::null()).status()?;
            // Its exit status says whether the claims held, which is not what is asked here.
            anyhow::ensure!(status.code().is_some_and(|code| code < 2), "it ended with {status}");
            seconds.push(begun.elapsed().as_secs_f64());
        }
        seconds.sort_by(f64::total_cmp);
        println!("everwarm {}: {:.2} s, at most {limit} s wanted", words.join(" "), seconds[1]);
        well &= seconds[1] <= limit;
    }
    engine()?;
    criterion()?;
    Ok(well)
}

/// The engine's cases and the yardstick, interleaved.
fn engine() -> anyhow::Result<()> {
    let package = ["--release", "--package", "everwarm-sim", "--examples"];
    shell::run(shell::cargo().arg("build").args(package))?;
    let target = shell::target()?;
    let examples = target.join("release/examples");
    let python = yardstick_python(&target)?;
    let parameters = target.join("yardstick.json");
    let mut cases: Vec<(String, Vec<f64>)> = Vec::new();
    let mut note = |name: &str, rate: f64| match cases.iter_mut().find(|case| case.0 == name) {
        Some(case) => case.1.push(rate),
        None => cases.push((name.to_owned(), vec![rate])),
    };
    for _ in 0..REPEATS {
        let text = output(Command::new(examples.join("01-deep-queue")).arg("2"))?;
        for line in text.lines() {
            if let Some((name, rate)) = rate_of(line) {
                note(name, rate);
            }
        }
        for length in LENGTHS {
            let text = output(Command::new(examples.join("01-deep-queue")).args([length, "1"]))?;
            if let Some((_, rate)) = text.lines().next().and_then(rate_of) {
                note(&format!("one queue, {length} million buffers"), rate);
            }
        }
        let buffers = YARDSTICK.to_string();
        let ours = output(Command::new(examples.join("02-yardstick")).arg(&buffers))?;
        std::fs::write(&parameters, &ours)?;
        let ours: serde_json::Value = serde_json::from_str(&ours)?;
        let millions = f64::from(YARDSTICK) / 1e6;
        note("the yardstick's queue", millions / ours["seconds"].as_f64().unwrap_or(f64::NAN));
        for (name, arguments) in [("SimPy", &[][..]), ("plain Python", &["--plain"][..])] {
            let script = "crates/sim/yardstick/simpy_queue.py";
            let theirs =
                output(Command::new(&python).arg(script).arg(&parameters).args(arguments))?;
            let theirs: serde_json::Value = serde_json::from_str(&theirs)?;
            for key in ["end_ns", "pstate"] {
                let (is, told) = (&ours[key], &theirs[key]);
                anyhow::ensure!(is == told, "{name} ends with a {key} of {told}, the engine {is}");
            }
            let seconds = theirs["cpu_s"].as_f64().context("the yardstick tells no time")?;
            note(name, millions / seconds);
        }
    }
    println!("\n| | million buffers a CPU second: median | 96 % interval | over SimPy |");
    println!("| --- | ---: | ---: | ---: |");
    let simpy = cases.iter().find(|case| case.0 == "SimPy").map_or(1.0, |case| middle(&case.1));
    for (name, rates) in &cases {
        let (low, high) = interval(rates);
        let median = middle(rates);
        println!("| {name} | {median:.2} | {low:.2} to {high:.2} | {:.0} |", median / simpy);
    }
    Ok(())
}

/// Where criterion leaves its results under the target folder, and what it writes there of a case.
const RESULTS: &str = "criterion/engine";
const ESTIMATES: &str = "new/estimates.json";
const BENCHMARK: &str = "new/benchmark.json";

/// Runs the engine's bench and prints what criterion estimated, per buffer.
fn criterion() -> anyhow::Result<()> {
    let results = shell::target()?.join(RESULTS);
    // A case that has another name now must not be in the table.
    let _ = std::fs::remove_dir_all(&results);
    let args =
        ["bench", "--package", "everwarm-sim", "--bench", "engine", "--", "--quiet", "--noplot"];
    shell::run(shell::cargo().args(args).stdout(Stdio::null()))?;
    let mut rows = Vec::new();
    for entry in std::fs::read_dir(&results)? {
        let case = entry?.path();
        if case.join(ESTIMATES).exists() {
            rows.push(row(&case).with_context(|| case.display().to_string())?);
        }
    }
    rows.sort();
    println!("\n| criterion | ns of CPU a buffer: median | 95 % interval |");
    println!("| --- | ---: | ---: |");
    println!("{}", rows.join("\n"));
    Ok(())
}

fn row(case: &Path) -> anyhow::Result<String> {
    let json = |file: &str| -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_str(&std::fs::read_to_string(case.join(file))?)?)
    };
    let (benchmark, estimates) = (json(BENCHMARK)?, json(ESTIMATES)?);
    let name = benchmark["value_str"].as_str().context("criterion names no case")?;
    let buffers = benchmark["throughput"]["Elements"].as_f64().context("it tells no throughput")?;
    let each = |value: &serde_json::Value| {
        value.as_f64().map(|ns| ns / buffers).context("criterion tells no median")
    };
    let interval = &estimates["median"]["confidence_interval"];
    let (low, high) = (each(&interval["lower_bound"])?, each(&interval["upper_bound"])?);
    let median = each(&estimates["median"]["point_estimate"])?;
    Ok(format!("| {name} | {median:.1} | {low:.1} to {high:.1} |"))
}

/// A case and its rate: `four queues   2000000 buffers, …, in 0.2 s of CPU time: 9.71 million a second`.
fn rate_of(line: &str) -> Option<(&str, f64)> {
    let rate = line.strip_suffix(" million a second")?.rsplit(' ').next()?;
    let name = line.split("  ").next()?;
    Some((name, rate.parse().ok()?))
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(values: &[f64]) -> f64 {
    sorted(values)[values.len() / 2]
}

/// All values but the least and the greatest lie in it; [`REPEATS`] says what that is worth.
fn interval(values: &[f64]) -> (f64, f64) {
    let sorted = sorted(values);
    (sorted[1], sorted[sorted.len() - 2])
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stderr(Stdio::inherit()).output()?;
    anyhow::ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// A Python that has SimPy.
fn yardstick_python(target: &Path) -> anyhow::Result<std::path::PathBuf> {
    Ok(setup::venv_of(&target.join("yardstick-venv"), SIMPY)?.join("bin/python"))
}
