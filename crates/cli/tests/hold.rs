//! `everwarm hold` as a process: exit status, signals, and that it ends with its parent.

mod common;

use common::{EVERWARM, Guard, everwarm, ready, signal};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn hold(words: &[&str]) -> Command {
    let mut command = everwarm(&["hold"]);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = hold(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn the_exit_status_is_the_commands() {
    let check = |script: &str, expected| {
        let (code, ..) = run(&["--device", "sim:m2", "--", "sh", "-c", script]);
        assert_eq!(code, Some(expected), "{script}");
    };
    check("exit 0", 0);
    check("exit 7", 7);
    check("kill -9 $$", 128 + 9);
    assert_eq!(run(&["--", "no-such-program"]).0, Some(127));
    assert_eq!(run(&["--", "/"]).0, Some(126));
    // No device is no reason not to run the command.
    assert_eq!(run(&["--device", "sim:nothing", "--", "sh", "-c", "exit 3"]).0, Some(3));
    // A GPU that only this process simulates is not the command's.
    let (.., said) = run(&["--device", "sim:m2", "--", "sh", "-c", "sleep 0.1"]);
    assert!(said.contains("nothing real was warmed"), "{said}");
}

#[test]
fn signals_reach_the_command() {
    let script = "trap 'exit 9' TERM; echo up; while :; do sleep 0.05; done";
    let mut child = hold(&["--device", "sim:m2", "--", "sh", "-c", script]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_hold_ends_with_its_parent_and_the_command_goes_on() {
    let script = "\"$0\" hold --device sim:m2 -- sh -c 'echo up; sleep 3; echo done' & read _";
    let mut parent = Command::new("sh")
        .args(["-c", script, EVERWARM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(parent.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    drop(parent.stdin.take());
    parent.wait().unwrap();
    let mut said = String::new();
    BufReader::new(parent.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("everwarm: held sim:m2 for "), "{said}");
    // The summary came while the command was still at work.
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "done\n");
}

#[test]
fn virtual_time_is_over_at_once_and_says_so() {
    let began = Instant::now();
    let (code, out, _) = run(&["--device", "sim:m2", "--for", "10m"]);
    assert!(code == Some(0) && out.contains("10.0 min of virtual time"), "{out}");
    assert!(out.contains("nothing real was warmed"), "{out}");
    let (_, json, _) = run(&["--device", "sim:m2", "--for", "1h", "--cap", "100 J", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ended_by"], "cap_reached");
    assert!(json["energy_j"].as_f64().unwrap() <= 100.0, "{json}");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn what_cannot_be_held_says_why() {
    let check = |words: &[&str], expected: &str| {
        let (code, _, err) = run(words);
        assert!(code != Some(0) && err.contains(expected), "{words:?}: {err}");
    };
    check(&["--device", "sim:m2"], "virtual time");
    check(&["--device", "m2"], "expected KIND:NAME");
    check(&["--for", "10"], "no unit");
    check(&["--for", "-1s"], "");
    check(&["--cap", "0"], "more than 0");
    check(&["--cap", "much"], "does not start with a number");
}

/// A simulated GPU that other processes share, at that socket.
fn shared(socket: &Path) -> Guard {
    let words = ["sim-server", "--listen", "127.0.0.1:0", "--json", "--socket"];
    ready(&[&words[..], &[socket.to_str().unwrap()]].concat()).0
}

#[test]
fn a_device_that_goes_and_comes_back_is_held_again() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gpu");
    let gpu = shared(&socket);
    let device = format!("sim:{}", socket.display());
    // The command marks the time: it says a word, and the device is taken away and given back.
    let script = "echo up; read _; sleep 1.5";
    let mut child = hold(&["--device", &device, "--json", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    drop(gpu);
    std::thread::sleep(Duration::from_millis(300));
    let _again = shared(&socket);
    drop(child.stdin.take());
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let json: serde_json::Value = serde_json::from_str(&rest).unwrap();
    assert!(json["failures"].as_u64().unwrap() >= 1, "{json}");
    // More than it had time for before the loss: some 180 kernels a second.
    assert!(json["buffers"].as_u64().unwrap() > 120, "{json}");
}

#[test]
fn a_hold_without_its_device_at_the_end_has_failed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gpu");
    let gpu = shared(&socket);
    let device = format!("sim:{}", socket.display());
    let child = hold(&["--device", &device, "--for", "2s"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    drop(gpu);
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("at the end it was gone"), "{said}");
}

/// A tree like `/sys` of a laptop on battery.
fn on_battery() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let battery = root.path().join("class/power_supply/BAT0");
    std::fs::create_dir_all(&battery).unwrap();
    std::fs::write(battery.join("type"), "Battery\n").unwrap();
    std::fs::write(battery.join("status"), "Discharging\n").unwrap();
    root
}

#[test]
fn a_machine_on_battery_is_not_held_and_the_command_runs() {
    let root = on_battery();
    let sysfs = root.path().to_str().unwrap();
    let (code, _, said) =
        run(&["--device", "sim:m2", "--sysfs", sysfs, "--", "sh", "-c", "sleep 1.2; exit 4"]);
    assert_eq!(code, Some(4));
    let why = "the machine must save power: it runs on battery";
    assert!(said.contains(&format!("not holding sim:m2: {why}")), "{said}");
    assert!(said.contains(&format!("sim:m2 was not held: {why}")), "{said}");
    let (_, out, _) =
        run(&["--device", "sim:m2", "--sysfs", sysfs, "--json", "--", "sh", "-c", "sleep 0.1"]);
    let summary: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(summary["why_not"], why);
}
