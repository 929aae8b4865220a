//! `everwarm lab` and `everwarm devices` as a user runs them.

mod common;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A folder of its own for one test, gone at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn everwarm(&self, args: &[&str]) -> Output {
        everwarm(self.0.path(), args)
    }
}

fn everwarm(folder: &Path, args: &[&str]) -> Output {
    common::everwarm(args).current_dir(folder).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", stderr(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

const SCENARIO: &str =
    "rounds = 2\nsteps = [{ idle = \"10 ms\" }, { run = { alu = \"1 ms\" }, times = 3 }]";

#[test]
fn a_runtime_file_lies_beside_the_scenario() {
    let folder = Folder::new();
    let text = include_str!("../../workload/runtimes/llamacpp.toml");
    std::fs::create_dir(folder.0.path().join("own")).unwrap();
    folder.write("own/mine.toml", &text.replace("buffers_per_layer = 1", "buffers_per_layer = 2"));
    folder.write("own/bad.toml", &text.replace("tile = 32", "tile = 0"));
    let run = |runtime: &str| {
        folder.write(
            "own/run.toml",
            &format!("steps = [{{ prefill = 16, runtime = \"{runtime}\" }}]"),
        );
        folder.everwarm(&["lab", "run", "own/run.toml", "--device", "sim:m2", "--json"])
    };
    let buffers = |runtime: &str| json(&run(runtime))["steps"][0]["dispatches"].as_u64().unwrap();
    // Twice as many for each block, and one for the output matrix as before.
    assert_eq!(buffers("mine.toml"), 2 * (buffers("llamacpp") - 1) + 1);
    let check = |runtime: &str, expected: &[&str]| {
        let err = stderr(&run(runtime));
        expected.iter().for_each(|part| assert!(err.contains(part), "no `{part}` in {err}"));
    };
    check("bad.toml", &["own/run.toml:1:", "own/bad.toml: [prefill] tile is 0"]);
    check("none.toml", &["own/none.toml` can't be read"]);
    check("mine", &["no runtime `mine`; there are mlx, llamacpp", "ends in .toml"]);
}

#[test]
fn a_run_is_recorded_once_and_whole() {
    let folder = Folder::new();
    folder.write("mine.toml", SCENARIO);
    let run = |extra: &[&str]| {
        let args = ["lab", "run", "mine.toml", "--device", "sim:m2", "-o", "run.jsonl", "--json"];
        folder.everwarm(&[&args, extra].concat())
    };
    let first = json(&run(&[]));
    assert_eq!(first["steps"][0]["dispatches"], 6, "{first}");
    let bytes = std::fs::read(folder.0.path().join("run.jsonl")).unwrap();
    let read = everwarm_record::Run::from_json_lines(&bytes).unwrap();
    assert_eq!(read.dispatches.len(), 6);
    assert_eq!(read.manifest.scenario.unwrap().text, SCENARIO);

    let again = run(&[]);
    assert!(!again.status.success());
    assert!(stderr(&again).contains("`run.jsonl` exists; --force replaces it"));
    json(&run(&["--force"]));
    assert_eq!(
        std::fs::read(folder.0.path().join("run.jsonl")).unwrap(),
        bytes,
        "one seed, one run"
    );
    assert_eq!(folder.files(), ["mine.toml", "run.jsonl"], "nothing else is left");
}

#[test]
fn several_scenarios_go_to_a_folder_and_one_that_cannot_run_is_passed_over() {
    let folder = Folder::new();
    folder.write("mine.toml", SCENARIO);
    // A chain that is longer than any device can be given.
    folder.write("long.toml", "steps = [{ run = { alu = \"10 h\" } }]");
    let args = ["lab", "run", "mine.toml", "long.toml", "steady", "--rounds", "1"];
    let run = |extra: &[&str]| folder.everwarm(&[&args, extra].concat());
    let output = run(&["--device", "sim:m2", "-o", "runs", "--json"]);
    assert_eq!(output.status.code(), Some(1), "one of them did not run");
    let ran: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&ran[0]["scenario"], &ran[1]["scenario"]), (&"mine".into(), &"steady".into()));
    assert_eq!(ran[0]["steps"][0]["runs"], 1, "one round, whatever the file says");
    assert!(ran[2]["why"].as_str().unwrap().contains("10 h"), "{ran}");
    assert!(stderr(&output).contains("passed over long"), "{}", stderr(&output));
    assert!(folder.0.path().join("runs/mine.jsonl").is_file());
    assert!(folder.0.path().join("runs/steady.jsonl").is_file());
    assert!(!run(&["--device", "sim:m2", "-o", "runs"]).status.success(), "nothing is replaced");
    let many = folder.everwarm(&["lab", "run", "steady", "--rounds", "4294967295"]);
    assert!(stderr(&many).contains("too many; expected at most"), "{}", stderr(&many));
    folder.write("evil.toml", &format!("name = \"../evil\"\n{SCENARIO}"));
    let evil = folder.everwarm(&["lab", "run", "evil.toml", "steady", "-o", "runs", "--force"]);
    assert!(stderr(&evil).contains("expected a name that can be a file's"), "{}", stderr(&evil));
    std::fs::remove_file(folder.0.path().join("evil.toml")).unwrap();
    let twice = folder.everwarm(&["lab", "run", "quick", "steady", "-o", "other"]);
    assert!(stderr(&twice).contains("`steady` is named twice"), "{}", stderr(&twice));
    assert_eq!(folder.files(), ["long.toml", "mine.toml", "runs"]);
}

/// A device in real time whose run takes as long as it says; the test stops it within.
fn long_run(folder: &Folder, output: &str) -> (common::Guard, common::Guard) {
    let socket = folder.0.path().join("gpu");
    let words = ["sim-server", "--listen", "127.0.0.1:0", "--socket", socket.to_str().unwrap()];
    let (server, _) = common::ready(&[&words[..], &["--json"]].concat());
    folder.write("long.toml", "rounds = 100\nsteps = [{ run = \"empty\" }, { idle = \"200 ms\" }]");
    let device = format!("sim:{}", socket.display());
    let mut command =
        common::everwarm(&["lab", "run", "long.toml", "--device", &device, "-o", output]);
    command.current_dir(folder.0.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let run = common::Guard(command.spawn().unwrap());
    let journal = folder.0.path().join(format!("{output}.part"));
    let rounds = || {
        std::fs::read_to_string(&journal)
            .unwrap_or_default()
            .matches("\"kind\":\"dispatch\"")
            .count()
    };
    let began = Instant::now();
    while rounds() < 2 {
        assert!(began.elapsed() < Duration::from_secs(30), "nothing is recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    (run, server)
}

#[test]
fn a_run_that_is_stopped_keeps_what_has_ended() {
    let folder = Folder::new();
    let (mut run, _server) = long_run(&folder, "run.jsonl");
    // Another one to the same file is refused before it runs.
    let second =
        folder.everwarm(&["lab", "run", "steady", "--device", "sim:m2", "-o", "run.jsonl"]);
    assert!(stderr(&second).contains("`run.jsonl.part` is there"), "{}", stderr(&second));
    common::signal(&run.0, "INT");
    assert_eq!(run.0.wait().unwrap().code(), Some(130));
    assert_eq!(folder.files(), ["gpu", "long.toml", "run.jsonl"]);
    let bytes = std::fs::read(folder.0.path().join("run.jsonl")).unwrap();
    let stopped = everwarm_record::Run::from_json_lines(&bytes).unwrap();
    assert!((2..100).contains(&stopped.dispatches.len()) && stopped.truncated.is_none());
}

#[test]
fn a_run_that_is_killed_leaves_what_has_ended() {
    let folder = Folder::new();
    let (mut run, _server) = long_run(&folder, "run.jsonl.gz");
    common::signal(&run.0, "KILL");
    run.0.wait().unwrap();
    let shown = json(&folder.everwarm(&["lab", "show", "run.jsonl.gz.part", "--json"]));
    assert!(shown[0]["steps"][0]["runs"].as_u64().unwrap() >= 2, "{shown}");
}

#[test]
fn what_is_no_run_is_called_what_it_is() {
    let folder = Folder::new();
    folder.write("mine.toml", SCENARIO);
    let check = |name: &str, bytes: &[u8], expected: &str| {
        std::fs::write(folder.0.path().join(name), bytes).unwrap();
        let output = folder.everwarm(&["lab", "show", name]);
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        output.status.success()
    };
    assert!(!check("x.parquet", b"PAR1\0\0", "is a Parquet table; expected a run as JSON Lines"));
    assert!(!check("x.png", b"\x89PNG\r\n\x1a\n\0\0", "is no text"));
    let run = |output: &str| {
        folder.everwarm(&["lab", "run", "mine.toml", "--device", "sim:m2", "-o", output])
    };
    assert!(stderr(&run("-")).contains("expected the name of a file"));
    assert!(run("run.jsonl.GZ").status.success());
    let packed = std::fs::read(folder.0.path().join("run.jsonl.GZ")).unwrap();
    assert!(packed.starts_with(&[0x1f, 0x8b]), "it is what its name says");
    assert!(run("new/").status.success(), "a folder is made for one run, too");
    let text = std::fs::read_to_string(folder.0.path().join("new/mine.jsonl")).unwrap();
    let newer = text.replacen("\"schema\":1", "\"schema\":99", 1);
    assert!(check("newer.jsonl", newer.as_bytes(), "by a newer everwarm (0.1.0, schema 99;"));
    let chip = stderr(&folder.everwarm(&["devices", "--chip", "cuda:0"]));
    assert!(chip.contains("no device `cuda:0`") && !chip.contains("sim:cuda:0"), "{chip}");
}

/// Only a build that can write Parquet promises to.
#[test]
fn a_run_as_tables_is_the_same_run_or_refused() {
    let folder = Folder::new();
    folder.write("mine.toml", SCENARIO);
    let run = |file: &str| {
        folder.everwarm(&["lab", "run", "mine.toml", "--device", "sim:m2", "-o", file, "--json"])
    };
    let output = run("run.parquet");
    if cfg!(feature = "parquet") {
        json(&output);
        let tables = ["marks", "requests", "telemetry"].map(|kind| format!("run.{kind}.parquet"));
        let [marks, requests, telemetry] = &tables;
        assert_eq!(folder.files(), ["mine.toml", marks, "run.parquet", requests, telemetry]);
        std::fs::remove_file(folder.0.path().join("run.parquet")).unwrap();
        let again = run("run.parquet");
        assert!(stderr(&again).contains(" exists; --force"), "{}", stderr(&again));
        assert_eq!(folder.files(), ["mine.toml", marks, requests, telemetry], "no mixed run");
    } else {
        assert!(stderr(&output).contains("`--features parquet`"), "{}", stderr(&output));
        assert_eq!(folder.files(), ["mine.toml"]);
    }
}

#[test]
fn a_run_that_fails_leaves_no_file() {
    let folder = Folder::new();
    folder.write("pin.toml", "steps = [{ run = \"empty\" }, { pin = 99 }]");
    folder.write("typo.toml", "steps = [{ run = \"empty\", tmies = 3 }]");
    std::fs::write(folder.0.path().join("latin.toml"), b"rounds = 1\nname = \"caf\xe9\"").unwrap();
    let fails = |args: &[&str], expected: &[&str]| {
        let output = folder.everwarm(args);
        assert!(!output.status.success());
        for part in expected {
            assert!(stderr(&output).contains(part), "`{part}` in {}", stderr(&output));
        }
    };
    fails(&["lab", "run", "pin.toml", "--device", "sim:m2", "-o", "r.jsonl"], &["P99", "P8"]);
    fails(&["lab", "run", "typo.toml", "-o", "r.jsonl"], &["typo.toml:1:27", "`tmies`", "`times`"]);
    fails(&["lab", "run", "latin.toml"], &["latin.toml:2", "not UTF-8"]);
    fails(&["lab", "check", "latin.toml"], &["latin.toml:2", "not UTF-8"]);
    fails(&["lab", "run", "nothing", "-o", "r.jsonl"], &["no scenario `nothing`", "ttft"]);
    fails(&["lab", "run", "pin.toml", "--device", "sim:m99", "-o", "r.jsonl"], &["m99", "m2"]);
    assert_eq!(folder.files(), ["latin.toml", "pin.toml", "typo.toml"]);
}

/// A file that takes the place of a pipe, a device or a link would be a loss.
#[cfg(unix)]
#[test]
fn a_run_goes_where_its_name_leads() {
    let folder = Folder::new();
    folder.write("mine.toml", SCENARIO);
    folder.write("kept.jsonl", "old");
    let path = |name: &str| folder.0.path().join(name);
    std::os::unix::fs::symlink("kept.jsonl", path("link.jsonl")).unwrap();
    std::os::unix::fs::symlink("/dev/null", path("null.jsonl")).unwrap();
    let run = |output: &str, extra: &[&str]| {
        let args = ["lab", "run", "mine.toml", "--device", "sim:m2", "-o", output];
        folder.everwarm(&[&args, extra].concat())
    };
    assert!(stderr(&run("link.jsonl", &[])).contains("`link.jsonl` exists"));
    assert!(run("link.jsonl", &["--force"]).status.success());
    assert!(run("null.jsonl", &["--force"]).status.success());
    for link in ["link.jsonl", "null.jsonl"] {
        assert!(path(link).is_symlink(), "{link} is no longer a link");
    }
    assert!(std::fs::read(path("kept.jsonl")).unwrap().len() > 100);
    assert!(stderr(&run("no/where.jsonl", &[])).contains("there is no folder `no`"));
    assert!(stderr(&run(".", &["--force"])).contains("is a folder"));
}

#[test]
fn check_says_what_holds() {
    let folder = Folder::new();
    let claim = |id: &str, expect: u32| {
        format!(
            "[[claim]]\nid = \"{id}\"\nexpect = {expect}\nunit = \"1\"\nscenario = \"mine.toml\"\n\
             measure = {{ metric = \"count\" }}\n"
        )
    };
    folder.write("mine.toml", SCENARIO);
    folder.write("claims.toml", &(claim("right", 3) + &claim("wrong", 4)));
    let check = |extra: &[&str]| {
        let args = ["lab", "check", "claims.toml", "--device", "sim:m2"];
        folder.everwarm(&[&args, extra].concat())
    };
    let report = json(&check(&["--json"]));
    // Each run of the step has three buffers: a cell's number is their median.
    assert_eq!((&report["held"], &report["total"]), (&1.into(), &2.into()), "{report}");
    assert_eq!(report["device"], "sim:m2");
    assert_eq!(report["claims"][0]["measured"], 3.0);
    assert_eq!(report["claims"][1]["held"], false);
    assert!(check(&[]).status.success(), "a claim that fails is a result");
    assert!(!check(&["--strict"]).status.success());
    assert!(check(&["--strict", "--only", "ri*"]).status.success());
    assert!(stderr(&check(&["--only", "x*"])).contains("no claim's id fits `x*`"));
}

#[test]
fn devices_are_listed_with_reasons() {
    let output = everwarm(Path::new("."), &["devices", "--json"]);
    let rows = json(&output);
    let of = |id: &str| rows.as_array().unwrap().iter().find(|row| row["id"] == id).unwrap();
    assert_eq!(of("sim:m2")["usable"], true);
    assert_eq!(rows.as_array().unwrap().iter().filter(|row| row["default"] == true).count(), 1);
    for row in rows.as_array().unwrap().iter().filter(|row| row["usable"] == false) {
        assert!(!row["why"].as_str().unwrap().is_empty(), "{row}");
    }
}

/// A shared device can be watched; of one in virtual time there is nothing to see.
#[test]
fn a_device_is_watched_without_being_used() {
    let folder = Folder::new();
    let socket = folder.0.path().join("gpu");
    let id = format!("sim:{}", socket.display());
    let words = ["sim-server", "--listen", "127.0.0.1:0", "--socket", socket.to_str().unwrap()];
    let (_server, _) = common::ready(&[&words[..], &["--json"]].concat());
    let watch = |extra: &[&str]| {
        let words = ["watch", &id, "--every", "100ms", "--for", "300ms"];
        folder.everwarm(&[&words, extra].concat())
    };
    let lines = watch(&["--json"]);
    let lines = String::from_utf8(lines.stdout).unwrap();
    let readings: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(readings.len(), 4, "{lines}");
    let of = |n: usize, field: &str| readings[n][field].as_f64().unwrap();
    assert!(of(3, "gpu_energy_j") > of(0, "gpu_energy_j"), "{lines}");
    assert_eq!(of(3, "busy"), 0.0, "watching is no work");
    let table = String::from_utf8(watch(&[]).stdout).unwrap();
    assert!(table.ends_with("by the energy counter\n"), "{table}");
    // Ctrl-C is how a watch without an end ends.
    let mut endless = common::everwarm(&["watch", &id, "--every", "50ms"]);
    let mut endless = common::Guard(endless.stdout(Stdio::piped()).spawn().unwrap());
    let mut out = BufReader::new(endless.0.stdout.take().unwrap());
    for _ in 0..4 {
        out.read_line(&mut String::new()).unwrap();
    }
    common::signal(&endless.0, "INT");
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("by the energy counter\n"), "{rest}");
    assert_eq!(endless.0.wait().unwrap().code(), Some(0));
    let refused = stderr(&folder.everwarm(&["watch", "sim:m2"]));
    assert!(refused.contains("nothing tells of sim:m2"), "{refused}");
    assert!(stderr(&folder.everwarm(&["watch", "sim:m2", "--every", "0"])).contains("--every"));
}

/// Terms of one's own against claims of one's own: what breaks, what a mistake looks like.
#[test]
fn terms_and_numbers_are_held_against_claims() {
    let folder = Folder::new();
    folder.write(
        "claims.toml",
        "[[claim]]\nid = \"wake.latency\"\nexpect = 0.43\ntol = 0.06\nunit = \"ms\"\n\
         [claim.scenario]\nsteps = [\n  { run = { alu = \"1 ms\" }, times = 9, label = \"load\" },\n  \
         { idle = \"2.1 ms\" },\n  { run = { alu = \"1 ms\" }, times = 1, label = \"probe\" },\n]\n\
         [claim.measure]\nmetric = \"commit_to_start\"\nlabel = \"probe\"\n",
    );
    let terms = |key: &str| {
        let text = format!(
            "[[ablation]]\nname = \"wake\"\nwhy = \"no cost\"\nchip = {{ \"{key}\" = \"0.15 ms\" }}\n\
             [[ablation]]\nname = \"matmul\"\nwhy = \"free\"\nchip = {{ kernels.matmul_cycles = \"1 cycles\" }}\n"
        );
        folder.write("terms.toml", &text);
        folder.everwarm(&["lab", "ablate", "claims.toml", "--ablations", "terms.toml", "--json"])
    };
    let table = json(&terms("wake.start.0.latency"));
    assert_eq!((&table["held"], &table["total"]), (&1.into(), &1.into()));
    let [wake, matmul] = [&table["without"][0], &table["without"][1]];
    assert_eq!(wake["breaks"][0]["id"], "wake.latency");
    assert!(wake["breaks"][0]["measured"][0].as_f64().unwrap() < 0.37, "{wake}");
    assert_eq!(matmul["breaks"], Value::Array(Vec::new()));
    let wrong = stderr(&terms("wake.start.0.latencies"));
    assert!(wrong.contains("terms.toml:4:10: ablation `wake`"), "{wrong}");
    assert!(wrong.contains("the nearest is `wake.start.0.latency`"), "{wrong}");

    let moved = |only: &str| {
        let args =
            ["lab", "ablate", "claims.toml", "--sensitivity", "0.5", "--json", "--only", only];
        folder.everwarm(&args)
    };
    let found = json(&moved("wake.start.0.*"));
    let kinds: Vec<_> = found["parameters"].as_array().unwrap().iter().collect();
    assert_eq!(kinds.len(), 2, "{found}");
    assert!(
        kinds.iter().any(|one| one["key"] == "wake.start.0.latency" && one["kind"] == "pinned")
    );
    assert!(stderr(&moved("nothing.*")).contains("no number's key fits `nothing.*`"));
}

/// A figure of one's own, as numbers and as an image.
#[test]
fn figures_are_drawn_from_a_file() {
    let folder = Folder::new();
    let text = "[scenario.two]\nsweep = { gap = [\"1 ms\", \"300 ms\"] }\nsteps = [\n\
                  { run = { alu = \"0.58 ms\" }, times = 300, label = \"warm\" }, { idle = \"$gap\" },\n\
                  { run = { alu = \"0.58 ms\" }, times = 1, label = \"probe\" } ]\n\
                [[figure]]\nname = \"two\"\ntitle = \"Two gaps & a point\"\n[[figure.panel]]\n\
                x = { label = \"gap\", unit = \"ms\", ends = [0, 400] }\n\
                y = { label = \"rate\", unit = \"GFLOP/s\", ends = [0, 1000] }\n\
                curves = [{ label = \"probe\", scenario = \"two\", over = \"gap\", measure = { metric = \"rate\", label = \"probe\", where = { gap = \"$x\" } } }]\n\
                marks = [{ x = 300, y = [200, 300], source = \"a note\" }]\n";
    folder.write("mine.toml", text);
    let run = |more: &[&str]| {
        let args = ["lab", "figures", "mine.toml", "--device", "sim:m2"];
        folder.everwarm(&[&args, more].concat())
    };
    let found = json(&run(&["--json", "-o", "."]));
    let points = &found["figures"][0]["panels"][0]["curves"][0]["points"];
    assert_eq!((points[0][0].as_f64(), points[1][0].as_f64()), (Some(1.0), Some(300.0)));
    assert!(points[0][1].as_f64() > points[1][1].as_f64(), "{points}");
    let image = std::fs::read_to_string(folder.0.path().join("model-two.svg")).unwrap();
    assert!(image.starts_with("<svg") && image.contains("Two gaps &amp; a point"), "{image}");
    assert!(stderr(&run(&["-o", "nowhere"])).contains("there is no folder `nowhere`"));
    assert!(stderr(&run(&["-o", ".", "--only", "three"])).contains("no figure's name fits"));
    folder.write("mine.toml", &text.replace("\"rate\", label", "\"power\", rail = \"gpu\", label"));
    let wrong = stderr(&run(&["--json"]));
    assert!(wrong.contains("figure `two`, curve `probe`"), "{wrong}");
}
