//! `cargo xtask fuzz`: the targets of crates/fuzz under libFuzzer, which follows what inputs cover.
//!
//! Stable Rust will do: the counters that libFuzzer reads come from LLVM's own pass, switched on by
//! flags of code generation, for the target's crates but not for build scripts. No sanitizer: there is
//! no `unsafe` in what is fuzzed. New inputs stay below `target/fuzz`; `--keep` puts the fewest that
//! cover as much into `fuzz/corpus`, which ordinary tests run, too. One core, and that politely.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::shell;

/// What is run when nobody says how often: quick targets more.
const RUNS: u64 = 1_000_000;
const QUICK: [&str; 2] = ["tap", "hint"];
const QUICK_RUNS: u64 = 10_000_000;

/// What makes libFuzzer's counters, as cargo-fuzz does it.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// The largest input that is kept (whole files of every format are smaller), and all of a target's
/// together: the smallest are kept. Unit: B.
const KEPT_MAX: usize = 16 * 1024;
const KEPT_OF_TARGET_MAX: u64 = 64 * 1024;

/// What is fuzzed, and how much.
#[derive(clap::Args)]
pub struct Args {
    /// Targets of crates/fuzz; all when none is named.
    targets: Vec<String>,
    /// Executions a target; without it 10 million of `tap` and `hint`, 1 million of the others.
    #[arg(long, value_name = "N")]
    runs: Option<u64>,
    /// Seconds a target, at most.
    #[arg(long, value_name = "S", default_value_t = 1200)]
    seconds: u64,
    /// Keep the fewest inputs that cover what was found, in fuzz/corpus.
    #[arg(long)]
    keep: bool,
}

/// Fuzzes the named targets, or all; true when nothing was found.
pub fn run(args: &Args) -> anyhow::Result<bool> {
    let known = targets()?;
    for name in &args.targets {
        ensure!(known.contains(name), "no target `{name}`; there are {}", known.join(", "));
    }
    let program = build()?;
    let mut well = true;
    for name in known.iter().filter(|n| args.targets.is_empty() || args.targets.contains(n)) {
        println!("\n=== {name}");
        let fuzz = Fuzz::new(&program, name)?;
        well &= fuzz.run(args)?;
        if args.keep {
            fuzz.keep()?;
        }
    }
    Ok(well)
}

/// Names in the table of crates/fuzz.
fn targets() -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(shell::root().join("crates/fuzz/src/lib.rs"))?;
    let names = text.split("Target { name: \"").skip(1).filter_map(|rest| rest.split('"').next());
    Ok(names.map(str::to_owned).collect())
}

fn build() -> anyhow::Result<PathBuf> {
    let host = shell::output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let (host, folder) = (host.trim(), shell::target()?.join("fuzz"));
    let mut cargo = shell::cargo();
    cargo.args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    // With a target, flags are for what runs there alone: build scripts have no counters.
    cargo.args(["--target", host]).arg("--target-dir").arg(&folder).env("RUSTFLAGS", COVERAGE);
    shell::run(&mut cargo)?;
    Ok(folder.join(host).join("release/fuzz"))
}

/// One target and its folders.
struct Fuzz<'a> {
    program: &'a Path,
    name: &'a str,
    /// Inputs that were found here.
    found: PathBuf,
    seeds: PathBuf,
    kept: PathBuf,
    crashes: PathBuf,
}

impl<'a> Fuzz<'a> {
    fn new(program: &'a Path, name: &'a str) -> anyhow::Result<Self> {
        let work = shell::target()?.join("fuzz").join("inputs").join(name);
        let fuzz = Fuzz {
            program,
            name,
            found: work.join("found"),
            seeds: work.join("seeds"),
            kept: shell::root().join("fuzz/corpus").join(name),
            crashes: work.join("crashes"),
        };
        for folder in [&fuzz.found, &fuzz.seeds, &fuzz.kept, &fuzz.crashes] {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok(fuzz)
    }

    /// The program, with the lowest priority.
    fn command(&self) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(self.program);
        command.env("EVERWARM_FUZZ_TARGET", self.name).env("EVERWARM_FUZZ_SEEDS", &self.seeds);
        command.arg(format!("-artifact_prefix={}/", self.crashes.display()));
        command.args(["-timeout=20", "-rss_limit_mb=2048"]);
        command
    }

    fn run(&self, args: &Args) -> anyhow::Result<bool> {
        let quick = QUICK.contains(&self.name);
        let runs = args.runs.unwrap_or(if quick { QUICK_RUNS } else { RUNS });
        let mut command = self.command();
        command.args([format!("-runs={runs}"), format!("-max_total_time={}", args.seconds)]);
        command.args([
            "-print_final_stats=1",
            "-verbosity=0",
            "-print_funcs=0",
            "-report_slow_units=5",
        ]);
        // The program writes it before libFuzzer looks for it.
        command.arg(format!("-dict={}", self.seeds.with_extension("dict").display()));
        command.args([&self.found, &self.kept, &self.seeds]);
        let mut fuzzing = command.stderr(Stdio::piped()).spawn().context("can't start nice")?;
        let said = BufReader::new(fuzzing.stderr.take().context("its output was asked for")?);
        // What libFuzzer would have in a dictionary is long, and of no use beside ours.
        let of_dictionary = |line: &str| line.starts_with(['"', '#']);
        for line in said.lines().map_while(Result::ok).filter(|line| !of_dictionary(line)) {
            println!("{line}");
        }
        let well = fuzzing.wait()?.success();
        if !well {
            let folder = shell::relative(&self.crashes);
            println!("{}: found something, see above; its input is in {folder}", self.name);
        }
        Ok(well)
    }

    /// Replaces what is kept by the fewest inputs that cover all that is known.
    fn keep(&self) -> anyhow::Result<()> {
        let merged = self.kept.with_extension("new");
        fs::create_dir_all(&merged)?;
        let mut command = self.command();
        // Seeds need not be kept: what they cover is there anyway.
        command.args(["-set_cover_merge=1", "-use_counters=0", "-verbosity=0"]);
        command.arg(format!("-max_len={KEPT_MAX}")).arg(&merged);
        let output = command.args([&self.seeds, &self.kept, &self.found]).output()?;
        if !output.status.success() {
            bail!("merging {}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        }
        fs::remove_dir_all(&self.kept)?;
        fs::rename(&merged, &self.kept)?;
        let (count, bytes) = smallest(&self.kept)?;
        println!("{}: {count} inputs kept, {bytes} B", self.name);
        Ok(())
    }
}

/// Leaves the smallest files of a folder, as many as fit; returns how many, and their bytes.
fn smallest(folder: &Path) -> anyhow::Result<(usize, u64)> {
    let files = fs::read_dir(folder)?.map(|file| {
        let path = file?.path();
        Ok((path.metadata()?.len(), path))
    });
    let mut files = files.collect::<anyhow::Result<Vec<_>>>()?;
    files.sort();
    let (mut count, mut bytes) = (0, 0);
    for (size, path) in files {
        if bytes + size > KEPT_OF_TARGET_MAX {
            fs::remove_file(&path)?;
        } else {
            (count, bytes) = (count + 1, bytes + size);
        }
    }
    Ok((count, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_inputs_are_kept() {
        let folder = std::env::temp_dir().join(format!("everwarm-fuzz-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        for (name, size) in [("a", 40), ("b", 10), ("c", 30)] {
            fs::write(folder.join(name), vec![0; size * 1024]).unwrap();
        }
        let left = smallest(&folder).unwrap();
        let there = |name| folder.join(name).exists();
        let kept = [there("a"), there("b"), there("c")];
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((left, kept), ((2, 40 * 1024), [false, true, true]));
    }
}
