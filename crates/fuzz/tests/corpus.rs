//! The seeds and the kept inputs of every target still hold: what `cargo xtask fuzz` found once is
//! tried with every test.

use everwarm_fuzz::TABLE;
use std::fs;
use std::path::PathBuf;

/// The kept inputs may not outgrow the repository. Unit: B.
const KEPT_MAX: u64 = 1 << 20;

fn kept() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

#[test]
fn seeds_and_kept_inputs_hold() {
    for target in TABLE {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        seeds.iter().for_each(|seed| (target.check)(seed));
        let folder = kept().join(target.name);
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            // Shown only if the check panics.
            println!("{}", path.display());
            (target.check)(&fs::read(&path).unwrap());
        }
    }
}

#[test]
fn kept_inputs_are_few_and_each_folder_is_a_target() {
    let mut bytes = 0;
    for folder in fs::read_dir(kept()).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        assert!(TABLE.iter().any(|target| target.name == name), "`{name}` is no target");
        for file in fs::read_dir(folder.path()).unwrap() {
            bytes += file.unwrap().metadata().unwrap().len();
        }
    }
    assert!(bytes <= KEPT_MAX, "{bytes} bytes are kept; expected at most {KEPT_MAX}");
}
