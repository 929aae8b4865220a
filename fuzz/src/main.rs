//! One program for all fuzz targets: libFuzzer's loop around the one that the environment names.
//!
//! `EVERWARM_FUZZ_TARGET` is the target's name. `EVERWARM_FUZZ_SEEDS` is a folder that gets the
//! target's seeds before the loop begins, and beside it, `FOLDER.dict`, every word in them as a
//! dictionary of libFuzzer's: a mutation by bytes alone finds no key of a format.

#![no_main]

use everwarm_fuzz::{TABLE, Target};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static TARGET: OnceLock<Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(
    init: begin(),
    |data: &[u8]| (TARGET.get().expect("it was set before the loop").check)(data)
);

fn begin() {
    let names = || TABLE.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    let wanted = std::env::var("EVERWARM_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = TABLE.iter().find(|target| target.name == wanted) else {
        eprintln!("error: there is no target `{wanted}`; there are {}", names());
        std::process::exit(2);
    };
    TARGET.set(*target).unwrap_or_else(|_| unreachable!("libFuzzer calls this once"));
    if let Some(folder) = std::env::var_os("EVERWARM_FUZZ_SEEDS").map(PathBuf::from) {
        let seeds = (target.seeds)();
        for (number, seed) in seeds.iter().enumerate() {
            write(&folder.join(number.to_string()), seed);
        }
        write(&folder.with_extension("dict"), dictionary(&seeds).as_bytes());
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Words of the seeds, but for comments, one entry a line.
fn dictionary(seeds: &[Vec<u8>]) -> String {
    let lines = seeds.iter().flat_map(|seed| seed.split(|b| *b == b'\n'));
    let code = lines.filter(|line| !line.starts_with(b"#"));
    let between = |b: &u8| !(b.is_ascii_alphanumeric() || b"_-.".contains(b));
    let words: BTreeSet<&[u8]> = code.flat_map(|line| line.split(between)).collect();
    let mut dictionary = String::new();
    for word in words.into_iter().filter(|word| (2..=40).contains(&word.len())) {
        writeln!(dictionary, "\"{}\"", word.escape_ascii()).expect("writing to memory works");
    }
    dictionary
}
