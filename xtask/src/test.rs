//! `cargo xtask test`: every check of this workspace, in steps.
//!
//! Contract: a failing step doesn't stop the later ones; what does not run is named with its
//! reason; the last line counts the tests. All compile in one profile and into one target folder,
//! so that nothing is built twice; all of it with all features, or nobody would build the optional
//! parts.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::report::{self, Outcome, Tally, Verdict};
use crate::setup::{self, Ready};
use crate::{apple, disk, pages, shell, tidy};

/// The package of the tests against real servers.
const REAL: &str = "everwarm-real-servers";

/// The file of its tests that need llama-server, and how the names of those tests begin.
const LLAMA: &str = "llama";

/// One step of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Step {
    /// `cargo fmt --check`.
    Fmt,
    /// `cargo clippy`, warnings denied.
    Clippy,
    /// The rules of `cargo xtask tidy`.
    Tidy,
    /// Unit and integration tests, but those against real servers.
    Tests,
    /// The documentation, warnings denied, and its tests; pages that commands make quickly.
    Docs,
    /// The Metal backend against a fake Metal, on Linux, and lints of that.
    FakeMetal,
    /// Types, lints and a link for macOS, on Linux.
    Apple,
    /// The tests against real servers; sets up what they need.
    RealServers,
}

const ALL: [Step; 8] = [
    Step::Fmt,
    Step::Tidy,
    Step::Clippy,
    Step::Tests,
    Step::Docs,
    Step::FakeMetal,
    Step::Apple,
    Step::RealServers,
];

impl Step {
    /// Folders that the step makes or fills, and that only steps which name them need.
    fn folders(self) -> &'static [&'static str] {
        match self {
            Step::Fmt | Step::Tidy | Step::Clippy => &[],
            Step::Tests => &["target/tmp"],
            Step::Docs => &["target/doc"],
            Step::FakeMetal => &["target/fake-metal", "target/apple", ".venv-apple"],
            Step::Apple => &["target/aarch64-apple-darwin", "target/apple", ".venv-apple"],
            Step::RealServers => &[".venv-real"],
        }
    }
}

/// Runs the named steps, or all; true when nothing failed.
pub fn run(named: &[Step]) -> anyhow::Result<bool> {
    let wanted = |step: &Step| named.is_empty() || named.contains(step);
    let steps: Vec<Step> = ALL.into_iter().filter(wanted).collect();
    let folders = steps.iter().map(|step| step.folders()).collect::<Vec<_>>();
    let shortage = named.is_empty().then(|| disk::shortage(&folders)).flatten();
    if let Some(shortage) = &shortage {
        println!("warning: {shortage}");
    }
    let mut outcomes = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let begun = Instant::now();
        for (name, verdict) in one(*step) {
            let step = name.to_owned();
            outcomes.push(Outcome { step, verdict, took: begun.elapsed() });
        }
        disk::give_back(&disk::spent(folders[n], &folders[n + 1..]));
    }
    if named.is_empty() && cfg!(not(target_os = "linux")) {
        println!("\nNote: the real servers' packages are Linux's; see what was skipped below.");
    }
    let well = report::close(&outcomes);
    if let Some(shortage) = shortage.filter(|_| !well) {
        println!("It may be this: {shortage}");
    }
    Ok(well)
}

/// Runs a step; what could not even start has failed.
fn one(step: Step) -> Vec<(&'static str, Verdict)> {
    let name = match step {
        Step::Fmt => "fmt",
        Step::Clippy => "clippy",
        Step::Tidy => "tidy",
        Step::Tests => "tests",
        Step::Docs => "docs",
        Step::FakeMetal => "fake metal",
        Step::Apple => "apple",
        Step::RealServers => return real_servers(),
    };
    headline(name);
    let verdict = match step {
        Step::Fmt => plain(shell::cargo().args(["fmt", "--all", "--check"])),
        Step::Clippy => {
            plain(shell::cargo().arg("clippy").args(ALL_OF_IT).args(["--", "-D", "warnings"]))
        }
        Step::Tidy => tidy::print().map(|tidy| match tidy {
            true => Verdict::Passed(Tally::default()),
            false => Verdict::Failed(Tally::default(), "see the findings above".into()),
        }),
        Step::Tests => with_packages().and_then(|()| tests(&mut ordinary_tests())),
        Step::Docs => docs(),
        Step::FakeMetal | Step::Apple if cfg!(not(target_os = "linux")) => {
            Ok(Verdict::Skipped(0, "it stands in for macOS, on Linux alone".into()))
        }
        Step::Apple => apple::check().map(|()| Verdict::Passed(Tally::default())),
        Step::FakeMetal => apple::fake_metal().and_then(|mut command| tests(&mut command)),
        Step::RealServers => unreachable!("returned above"),
    };
    vec![(name, verdict.unwrap_or_else(failed))]
}

/// Everything there is.
const ALL_OF_IT: [&str; 3] = ["--workspace", "--all-targets", "--all-features"];

fn headline(name: &str) {
    println!("\n=== {name}");
}

fn failed(error: anyhow::Error) -> Verdict {
    eprintln!("error: {error:#}");
    Verdict::Failed(Tally::default(), format!("{error:#}"))
}

/// A link in the documentation that leads nowhere is as wrong as an example that fails.
fn docs() -> anyhow::Result<Verdict> {
    let mut build = shell::cargo();
    build.args(["doc", "--workspace", "--no-deps", "--all-features"]);
    shell::run(build.env("RUSTDOCFLAGS", "-D warnings"))?;
    if !pages::check_quick(everwarm()?)? {
        return Ok(Verdict::Failed(Tally::default(), "a page is stale, see above".into()));
    }
    tests(shell::cargo().args(["test", "--workspace", "--doc", "--all-features"]))
}

/// A command whose success is the verdict.
fn plain(command: &mut Command) -> anyhow::Result<Verdict> {
    shell::run(command).map(|()| Verdict::Passed(Tally::default()))
}

/// A command that runs tests.
fn tests(command: &mut Command) -> anyhow::Result<Verdict> {
    let (tally, success) = report::counted(command)?;
    Ok(match success {
        true => Verdict::Passed(tally),
        false => {
            Verdict::Failed(tally, format!("{} tests failed, or it did not build", tally.failed))
        }
    })
}

/// Installs what the tests of the Vulkan backend use; without it they say what they skip.
fn with_packages() -> anyhow::Result<()> {
    match setup::system_packages() {
        Err(error) if may_skip() => println!("note: {error:#}"),
        installed => return installed,
    }
    Ok(())
}

fn has_nextest() -> bool {
    shell::output(shell::cargo().args(["nextest", "--version"])).is_ok()
}

/// All tests but the ignored ones: those are the real servers', and a rule of tidy sees to it.
fn ordinary_tests() -> Command {
    let mut command = shell::cargo();
    match has_nextest() {
        true => command.args(["nextest", "run"]).args(ALL_OF_IT).args(["--no-tests", "pass"]),
        false => command.arg("test").args(ALL_OF_IT).arg("--no-fail-fast"),
    };
    command
}

/// The real servers, each in its own binary of tests; a server that can't be had is skipped aloud.
fn real_servers() -> Vec<(&'static str, Verdict)> {
    headline("real servers");
    let ready = match setup::ready() {
        Ok(ready) => ready,
        Err(error) if may_skip() => {
            let skipped = Verdict::Skipped(ignored(""), format!("{error:#}"));
            return vec![("real servers", skipped)];
        }
        Err(error) => return vec![("real servers", failed(error))],
    };
    let mut verdicts = Vec::new();
    if let Err(reason) = &ready.llama {
        verdicts.push(("llama-server", Verdict::Skipped(ignored(LLAMA), reason.clone())));
    }
    let verdict = everwarm().and_then(|everwarm| tests(&mut real_tests(&ready, &everwarm)));
    verdicts.push(("real servers", verdict.unwrap_or_else(failed)));
    verdicts
}

/// How many of the real servers' tests stand in files whose name has `stem`.
fn ignored(stem: &str) -> u64 {
    let files = std::fs::read_dir(shell::root().join("crates/real-servers/tests"));
    let files = files.into_iter().flatten().flatten().map(|entry| entry.path());
    files
        .filter(|path| path.file_stem().is_some_and(|name| name.to_string_lossy().contains(stem)))
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .map(|text| text.matches(concat!("#[ign", "ore")).count() as u64)
        .sum()
}

/// At a desk a missing system package skips the real servers; in continuous integration it fails.
fn may_skip() -> bool {
    !setup::in_ci()
}

/// Builds the binary under test, in the profile of the tests.
fn everwarm() -> anyhow::Result<PathBuf> {
    shell::run(shell::cargo().args(["build", "--quiet"]).args(ALL_OF_IT))?;
    Ok(shell::target()?.join("debug").join("everwarm"))
}

fn real_tests(ready: &Ready, everwarm: &PathBuf) -> Command {
    let mut command = shell::cargo();
    let nextest = has_nextest();
    match nextest {
        true => command.args(["nextest", "run", "--package", REAL, "--run-ignored", "only"]),
        false => command.args(["test", "--package", REAL, "--no-fail-fast", "--tests"]),
    };
    match &ready.llama {
        Ok(llama) => {
            command.env("EVERWARM_LLAMA_SERVER", llama);
        }
        Err(_) if nextest => {
            command.args(["-E", &format!("not binary(~{LLAMA})")]);
        }
        Err(_) => {}
    }
    if !nextest {
        command.args(["--", "--ignored", "--test-threads", "1"]);
        if ready.llama.is_err() {
            command.args(["--skip", LLAMA]);
        }
    }
    command.env("EVERWARM_REAL", &ready.venv).env("EVERWARM_BIN", everwarm);
    command
}
