//! Programs that end with the test, however it ends.
//!
//! A program runs beside a small shell that waits on a pipe of ours. When the guard is dropped, or
//! this process dies in whatever way, the pipe closes and the shell kills the program for good
//! (SIGKILL: llama-server takes 30 s over a SIGTERM while it streams). Its output goes to a log file
//! that a failing test shows.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;

/// Runs `"$@"`, and kills it when standard input ends or the shell is told to end.
const WATCHED: &str = r#"
"$@" </dev/null &
program=$!
trap 'kill -9 $program; wait $program' EXIT
trap 'exit 1' INT TERM HUP
read -r _
"#;

/// A running program.
pub struct Guard {
    shell: Child,
    log: PathBuf,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Guard {
    /// Starts a program with these words and environment.
    ///
    /// # Errors
    /// When there is no shell, or no place for the log.
    pub fn start(words: &[String], environment: &[(&str, String)]) -> anyhow::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("everwarm-real-{}-{number}.log", std::process::id());
        let log = std::env::temp_dir().join(name);
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let mut shell = Command::new("sh")
            .args(["-c", WATCHED, "watched"])
            .args(words)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .context("can't start sh")?;
        let stdout = shell.stdout.take().map(BufReader::new);
        Ok(Self { shell, log, stdout })
    }

    /// The next line that the program prints on stdout.
    ///
    /// # Errors
    /// When it ends without one; carries its log.
    pub fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let stdout = self.stdout.as_mut().context("stdout is gone")?;
        stdout.read_line(&mut line)?;
        anyhow::ensure!(!line.is_empty(), "it ended; its log: {}", self.log());
        Ok(line)
    }

    /// What the program said on stderr.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(4000);
            let from = (from..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(0);
            eprintln!("--- the end of a program's log:\n{}", &log[from..]);
        }
        let _ = std::fs::remove_file(&self.log);
    }
}

/// A loopback address that nobody listens on just now.
///
/// # Panics
/// When there is no free port.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound socket")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alive(process: &str) -> bool {
        let asked = Command::new("kill").args(["-0", process]).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    }

    #[test]
    fn a_program_ends_with_its_guard_even_if_it_ignores_being_told() {
        let stubborn = "trap '' TERM HUP INT; echo $$; exec sleep 1000";
        let words = ["sh", "-c", stubborn].map(str::to_owned);
        let mut guard = Guard::start(&words, &[]).expect("sh starts");
        let process = guard.line().expect("its number").trim().to_owned();
        assert!(alive(&process));
        drop(guard);
        assert!(!alive(&process));
    }
}
