//! Chips as a user meets them: `devices --chip`, files that are like others, `lab predict`.

mod common;

use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn everwarm(folder: &Path, args: &[&str]) -> Output {
    common::everwarm(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn succeeds(folder: &Path, args: &[&str]) -> String {
    let output = everwarm(folder, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn fails(folder: &Path, args: &[&str]) -> String {
    let output = everwarm(folder, args);
    assert!(!output.status.success(), "{args:?}: {}", text(&output.stdout));
    text(&output.stderr)
}

/// `base.toml` in a folder, and `own.toml` in a folder in it, which is like the first.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let base = "like = \"m2\"\nid = \"base\"\nname = \"Base\"\ncores = 16 # documented\n";
    std::fs::write(folder.path().join("base.toml"), base).unwrap();
    std::fs::create_dir(folder.path().join("inner")).unwrap();
    let own = "like = \"../base.toml\"\nid = \"own\"\nname = \"Own\"\ncontroller.base_pstate = 3\n";
    std::fs::write(folder.path().join("inner/own.toml"), own).unwrap();
    folder
}

#[test]
fn a_chip_shows_where_each_value_comes_from() {
    let folder = folder();
    let shown = succeeds(folder.path(), &["devices", "--chip", "inner/own.toml", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let of = |key: &str| {
        let values = shown["values"].as_array().unwrap();
        let found = values.iter().find(|value| value["key"] == key);
        found.unwrap_or_else(|| panic!("no {key}"))["origins"][0].clone()
    };
    assert_eq!(of("controller.base_pstate")["how"], "given");
    assert_eq!(of("controller.base_pstate")["line"], 4);
    assert_eq!(of("controller.sample_period")["how"], "inherited");
    assert_eq!(of("controller.sample_period")["file"], "m2 (built in)");
    assert_eq!(of("cores")["file"], "inner/../base.toml");
    assert_eq!(of("kernels.flops_per_cycle")["how"], "scaled");
    let lines = succeeds(folder.path(), &["devices", "--chip", "inner/own.toml"]);
    assert!(lines.lines().any(|line| line.contains("flops_per_cycle") && line.contains("2 x the")));
}

#[test]
fn a_printed_chip_is_the_same_device() {
    let folder = folder();
    let whole = succeeds(folder.path(), &["devices", "--chip", "inner/own.toml", "--toml"]);
    std::fs::write(folder.path().join("whole.toml"), whole).unwrap();
    let predicted = |file: &str| succeeds(folder.path(), &["lab", "predict", file, "--json"]);
    let (own, whole) = (predicted("inner/own.toml"), predicted("whole.toml"));
    assert_eq!(own, whole);
    let own: Value = serde_json::from_str(&own).unwrap();
    assert_eq!((own[0]["chip"].as_str(), own[0]["base"].as_u64()), (Some("own"), Some(3)));
    let run = ["lab", "run", "steady", "--device", "sim:inner/own.toml", "--json"];
    succeeds(folder.path(), &run);
}

#[test]
fn mistakes_are_told_in_the_file_that_has_them() {
    let folder = folder();
    let base = folder.path().join("base.toml");
    let good = std::fs::read_to_string(&base).unwrap();
    std::fs::write(&base, good.clone() + "wake.memory_ready = 3\n").unwrap();
    let error = fails(folder.path(), &["lab", "predict", "inner/own.toml"]);
    assert!(error.contains("inner/../base.toml:5:21: `wake.memory_ready`"), "{error}");
    std::fs::write(&base, good.replace("m2", "inner/own.toml")).unwrap();
    let error = fails(folder.path(), &["lab", "predict", "inner/own.toml"]);
    assert!(error.contains("each `like` the next") || error.contains("goes round"), "{error}");
    std::fs::remove_file(&base).unwrap();
    let error = fails(folder.path(), &["devices", "--chip", "inner/own.toml"]);
    assert!(
        error.contains("inner/own.toml:1:8: `like`: the chip file `inner/../base.toml`"),
        "{error}"
    );
    let error = fails(folder.path(), &["devices", "--chip", "m9"]);
    assert!(error.contains("no chip `m9`; there are m2"), "{error}");
}

#[test]
fn a_value_can_be_changed_for_a_prediction() {
    let folder = folder();
    let predicted = |set: &str| {
        let words = ["lab", "predict", "m2", "--set", set, "--json"];
        serde_json::from_str::<Value>(&succeeds(folder.path(), &words)).unwrap()
    };
    let both = predicted("controller.credited_gap=0.8 ms");
    assert_eq!(both[1]["chip"], "m2 changed");
    let holds = |n: usize| both[n]["cliffs"][0]["holds_ms"].as_f64().unwrap();
    assert!(holds(1) > holds(0) + 0.2, "{} and {}", holds(0), holds(1));
    let fails_with = |set: &str, expected: &str| {
        let error = fails(folder.path(), &["lab", "predict", "m2", "--set", set]);
        assert!(error.contains(expected), "{error}");
    };
    fails_with("controller.boost_stp_pct=3", "the nearest is `controller.boost_step_pct`");
    fails_with("controller.boost_step_pct=300", "300");
    fails_with("mlx.prefill.tile=8", "is of a runtime");
    fails_with("boost", "expected KEY=VALUE");
}
