//! `everwarm lab` and `everwarm devices` as a user runs them.

mod common;

use serde_json::Value;
use std::path::Path;
use std::process::Output;
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
    let ran = json(&output);
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
