//! The program as a process: its words, its ready line, signals, and an end with the test's own.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

pub const EVERWARM: &str = env!("CARGO_BIN_EXE_everwarm");

pub fn everwarm(words: &[&str]) -> Command {
    let mut command = Command::new(EVERWARM);
    command.args(words);
    command
}

/// A process that is killed with its guard.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command that prints a ready line in JSON, and reads it.
pub fn ready(words: &[&str]) -> (Guard, serde_json::Value) {
    let mut guard = Guard(everwarm(words).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(guard.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line);
    (guard, ready.unwrap_or_else(|error| panic!("{error} in the ready line {line:?}")))
}

pub fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
}
