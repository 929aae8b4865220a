//! Counts tests from what the runners print, and writes the closing lines.
//!
//! Reads the summaries of cargo-nextest and of `cargo test`; all else it hands through unread.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context;

/// Tests that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed.
    pub passed: u64,
    /// Failed or timed out.
    pub failed: u64,
}

impl Tally {
    /// Adds what a summary line says; any other line says nothing.
    ///
    /// What a runner calls skipped is not read: the real servers' tests are skipped in one step and
    /// run in another.
    pub fn read(&mut self, line: &str) {
        let line = plain(line);
        // Where a test failed, nextest shows what it printed, a summary of its own indented.
        let counts = match line.trim_start().starts_with("Summary [") {
            true => line.split_once(" run: ").map(|(_, counts)| counts),
            false => line.strip_prefix("test result:"),
        };
        for count in counts.unwrap_or_default().split([',', ';', '.']) {
            let mut words = count.trim().splitn(2, ' ');
            let Some(Ok(n)) = words.next().map(str::parse::<u64>) else { continue };
            let what = words.next().unwrap_or_default();
            match what.split(" (").next().unwrap_or_default() {
                "passed" => self.passed += n,
                "failed" | "timed out" | "exec failed" => self.failed += n,
                _ => {}
            }
        }
    }

    fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// A line without terminal colours.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            text.push(c);
        }
    }
    text
}

/// Runs a test command, shows all it prints, and counts.
///
/// # Errors
/// When it can't be started. A failing test is no error here: `.1` is false.
pub fn counted(command: &mut Command) -> anyhow::Result<(Tally, bool)> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("can't start {:?}", command.get_program()))?;
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        scope.spawn(|| relay(out.expect("piped"), std::io::stdout(), &tally));
        scope.spawn(|| relay(err.expect("piped"), std::io::stderr(), &tally));
    });
    let success = child.wait()?.success();
    Ok((tally.into_inner().expect("no reader panics"), success))
}

/// Shows what comes, line by line, and counts.
fn relay(from: impl Read, mut to: impl Write, tally: &Mutex<Tally>) {
    for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
        let _ = to.write_all(&line).and_then(|()| to.write_all(b"\n"));
        tally.lock().expect("no reader panics").read(&String::from_utf8_lossy(&line));
    }
}

/// How one step went.
pub struct Outcome {
    /// Its name.
    pub step: String,
    /// What it found.
    pub verdict: Verdict,
    /// How long it took.
    pub took: Duration,
}

/// What a step found.
pub enum Verdict {
    /// All well; tests, where it ran any.
    Passed(Tally),
    /// Something is wrong; it has been printed.
    Failed(Tally, String),
    /// It did not run: how many tests, and why.
    Skipped(u64, String),
}

/// An amount of bytes as people compare disks.
pub fn megabytes(bytes: u64) -> String {
    format!("{} MB", (bytes + 500_000) / 1_000_000)
}

/// Prints one line a step and the closing count; true when nothing failed.
pub fn close(outcomes: &[Outcome]) -> bool {
    let (mut total, mut skipped, mut well) = (Tally::default(), 0, true);
    println!();
    for Outcome { step, verdict, took } in outcomes {
        let said = match verdict {
            Verdict::Passed(tally) => {
                total.add(*tally);
                "ok".to_owned()
            }
            Verdict::Failed(tally, reason) => {
                total.add(*tally);
                well = false;
                format!("FAILED: {reason}")
            }
            Verdict::Skipped(tests, reason) => {
                skipped += tests;
                format!("SKIPPED {tests} tests: {reason}")
            }
        };
        println!("{step:>14} {:>6.1} s  {said}", took.as_secs_f64());
    }
    let Tally { passed, failed } = total;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    well
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, passed: u64, failed: u64) {
        let mut tally = Tally::default();
        tally.read(line);
        assert_eq!(tally, Tally { passed, failed }, "{line:?}");
    }

    #[test]
    fn counts_are_read_from_both_runners() {
        check("     Summary [   0.005s] 3 tests run: 3 passed, 0 skipped", 3, 0);
        check(
            "\u{1b}[32m     Summary\u{1b}[0m [ 0.005s] 9 tests run: 5 passed (1 slow), 2 failed, \
             2 timed out, 4 skipped",
            5,
            4,
        );
        check(
            "test result: ok. 3 passed; 1 failed; 2 ignored; 0 measured; 7 filtered out; \
             finished in 0.00s",
            3,
            1,
        );
        check("    test result: FAILED. 0 passed; 1 failed; 0 ignored", 0, 0);
        check("5 passed, says a test of itself", 0, 0);
    }
}
