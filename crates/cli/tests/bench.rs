//! The commands `ttft` and `demo`, as a user runs them.

mod common;

use common::{everwarm, ready};
use std::process::Output;
use tempfile::TempDir;

const RESULTS: &str = r#"{"everwarm": "0.1.0", "command": "everwarm demo", "rows": [
    {"prompt_tokens": 16, "condition": "idle", "ttft_ms": {"median": 150, "lo": 149, "hi": 151},
     "penalty_removed": 0},
    {"prompt_tokens": 16, "condition": "busy", "ttft_ms": {"median": 116, "lo": 115, "hi": 117},
     "penalty_removed": 1}]}"#;

fn run(words: &[&str]) -> Output {
    everwarm(words).output().unwrap()
}

/// A folder of the test's own, gone at its end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn ttft_measures_a_simulated_server() {
    let words = ["sim-server", "--listen", "127.0.0.1:0", "--exit-with-parent", "--json"];
    let (_server, ready) = ready(&words);
    let (url, device) = (ready["url"].as_str().unwrap(), ready["device"].as_str().unwrap());
    // The machine that runs tests may be busy: what is late is kept, and nothing is timed here.
    let output = run(&[
        "ttft",
        "--url",
        url,
        "--device",
        device,
        "--tokens",
        "16",
        "--rounds",
        "1",
        "--late-max",
        "10 s",
        "--json",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&said);
    let rows = results["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["condition"].as_str().unwrap()).collect();
    assert_eq!(names, ["idle", "busy", "hold", "busy-hold"], "those that have what they need");
    let samples = results["samples"].as_array().unwrap();
    assert!(samples.iter().all(|s| s["prompt_tokens"] == 16 && s["gpu_j"].is_f64()), "{samples:?}");
    assert_eq!(results["simulated"], true);
}

#[test]
fn bad_words_are_explained() {
    let check = |words: &[&str], expected: &str| {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expected), "{words:?}: {said}");
    };
    check(&["ttft", "--url", "127.0.0.1:8080"], "has no scheme; expected something like http://");
    check(&["ttft", "--url", "http://127.0.0.1:1"], "can't reach http://127.0.0.1:1");
    check(
        &["ttft", "--url", "http://a", "--conditions", "warm"],
        "no condition `warm`; expected one of",
    );
    check(&["ttft", "--url", "http://a", "--conditions", "hold"], "expected --device");
    check(&["ttft", "--url", "http://a", "--conditions", "pre-warm-hint"], "expected --admin");
    check(&["ttft", "--url", "http://a", "--device", "sim:m2"], "virtual time");
    check(&["ttft", "--url", "http://a", "--tokens", "16,16"], "prompt length 16 is there twice");
    check(&["ttft", "--url", "http://a", "--rounds", "0"], "0 rounds");
    let folder = Folder::new();
    let page = folder.file("page.html");
    check(&["demo", "--chip", "m99", "-o", &page], "m99");
    check(&["demo", "--from", "no-such.json", "-o", &page], "can't read no-such.json");
    check(&["demo", "-o", &folder.file("none/page.html")], "there is no folder");
}

#[test]
fn a_saved_result_makes_a_page_and_strangers_are_not_replaced() {
    let folder = Folder::new();
    let (json, page, svg) = (folder.file("r.json"), folder.file("p.html"), folder.file("p.svg"));
    std::fs::write(&json, RESULTS).unwrap();
    let words = ["demo", "--from", &json, "-o", &page, "--svg", &svg];
    for _ in 0..2 {
        let output = run(&words);
        assert!(output.status.success(), "{output:?}"); // the second one replaces the first
    }
    assert!(std::fs::read_to_string(&page).unwrap().contains("A cold first token costs 34.0 ms"));
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    std::fs::write(&page, "<p>my own notes</p>").unwrap();
    let output = run(&words);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not of an earlier demo"));
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "<p>my own notes</p>");
}

/// Whatever ends the demo, nothing of it stays.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_demo_leaves_no_process() {
    use common::Guard;
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let folder = Folder::new();
    let page = folder.file("page.html");
    let mut demo = Guard(
        everwarm(&["demo", "-o", &page])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let patience = Instant::now() + Duration::from_secs(60);
    let pause = || std::thread::sleep(Duration::from_millis(20));
    let children = format!("/proc/{0}/task/{0}/children", demo.0.id());
    let mut pids = Vec::new();
    while pids.len() < 2 {
        assert!(Instant::now() < patience, "server and proxy did not start");
        pause();
        let listed = std::fs::read_to_string(&children).unwrap_or_default();
        pids = listed.split_whitespace().map(str::to_owned).collect();
    }
    demo.0.kill().unwrap();
    demo.0.wait().unwrap();
    let alive = |pid: &String| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // A zombie waits for whoever adopted it.
        status.contains("everwarm") && !status.contains("Z (zombie)")
    };
    while pids.iter().any(alive) {
        assert!(Instant::now() < patience, "{pids:?} outlived the demo");
        pause();
    }
    assert!(!std::path::Path::new(&page).exists());
}
