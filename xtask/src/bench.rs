//! `cargo xtask bench`: times what a user waits for, in release.
//!
//! Measures whole commands, from start to exit.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::shell;

/// What is timed, and the most it may take.
const COMMANDS: [(&[&str], f64); 1] = [(&["lab", "check", "--json"], 5.0)];

/// Runs each command three times; true when the median keeps its limit.
pub fn run() -> anyhow::Result<bool> {
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
    Ok(well)
}

/// Prints how well `lab fit` recovers 20 random chips, with a search for each.
pub fn fit_proof() -> anyhow::Result<bool> {
    let args = ["run", "--release", "--package", "everwarm-lab", "--example", "01-fit-proof"];
    shell::run(shell::cargo().args(args).args(["--", "20", "1", "200"]))?;
    Ok(true)
}
