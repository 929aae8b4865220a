//! Commands of this same program as child processes that end with their guard.
//!
//! A child is asked to end (SIGTERM) when its [`Child`] is dropped and killed if it does not; it
//! watches for the end of this process by itself (`--exit-with-parent`), so that nothing stays
//! behind after Ctrl-C, a panic or a kill either.

use anyhow::{Context, bail};
use everwarm_hold::{child_ended_within, end_child};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a child may take to print its ready line; a busy machine is slow to start anything.
const READY_MAX: Duration = Duration::from_secs(30);

/// How long it has to end by itself.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is kept of a child's stderr. Unit: B.
const STDERR_MAX: usize = 4096;

/// A running command of this program.
pub struct Child {
    name: String,
    process: std::process::Child,
    stderr: Arc<Mutex<Vec<u8>>>,
    /// The ready line, read as JSON.
    pub ready: serde_json::Value,
}

impl Child {
    /// Starts `everwarm WORDS…` and waits for its ready line, which must be JSON.
    pub fn start(words: &[&str]) -> anyhow::Result<Self> {
        let name = words.first().copied().unwrap_or_default().to_owned();
        let mut process = Command::new(std::env::current_exe()?)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't start everwarm {name}"))?;
        let (out, err) = (process.stdout.take(), process.stderr.take());
        let stderr = Arc::new(Mutex::new(Vec::new()));
        if let Some(err) = err {
            let kept = Arc::clone(&stderr);
            std::thread::spawn(move || keep(err, &kept));
        }
        let mut child = Child { name, process, stderr, ready: serde_json::Value::Null };
        let (line, first) = channel();
        if let Some(out) = out {
            // It goes on reading, so that a child that prints more never blocks.
            std::thread::spawn(move || {
                BufReader::new(out).lines().map_while(Result::ok).for_each(|l| drop(line.send(l)));
            });
        }
        child.ready = match first.recv_timeout(READY_MAX) {
            Ok(line) => serde_json::from_str(&line).with_context(|| {
                format!("everwarm {} printed no ready line: {line}", child.name)
            })?,
            Err(RecvTimeoutError::Timeout) => {
                bail!("everwarm {} was not ready within {READY_MAX:?}", child.name)
            }
            Err(RecvTimeoutError::Disconnected) => bail!("{}", child.epitaph()),
        };
        Ok(child)
    }

    /// A text of the ready line.
    pub fn told(&self, member: &str) -> anyhow::Result<&str> {
        let text = self.ready[member].as_str();
        text.with_context(|| format!("everwarm {} told no `{member}`: {}", self.name, self.ready))
    }

    /// Why it has ended.
    fn epitaph(&mut self) -> String {
        let status = match child_ended_within(&mut self.process, PATIENCE) {
            true => self.process.try_wait().ok().flatten(),
            false => None,
        };
        let status = status.map_or("without closing".to_owned(), |status| status.to_string());
        let stderr = self.stderr.lock().map(|s| String::from_utf8_lossy(&s).trim().to_owned());
        format!("everwarm {} ended ({status}): {}", self.name, stderr.unwrap_or_default())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        end_child(&mut self.process, PATIENCE);
    }
}

/// Keeps the end of what a child says.
fn keep(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 1024];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let Ok(mut kept) = kept.lock() else { return };
        kept.extend_from_slice(&bytes[..n]);
        let over = kept.len().saturating_sub(STDERR_MAX);
        kept.drain(..over);
    }
}
