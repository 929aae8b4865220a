//! Copies the crate gpu and puts the faults of faults.rs into its Metal backend.
//!
//! A fault that finds its place not exactly once is an error: it would prove nothing.

#[allow(dead_code)]
#[path = "faults.rs"]
mod faults;

use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rustc-cfg=fake_metal");
    println!("cargo:rustc-check-cfg=cfg(fake_metal)");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=faults.rs");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/gpu/src");
    println!("cargo:rerun-if-changed={}", from.display());
    let to = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a folder")).join("gpu");
    copy(&from, &to);
    // An included file may not begin with the documentation of its crate.
    change(&to.join("lib.rs"), |text| text.replace("//!", "//"));
    for fault in faults::ALL {
        let file = to.join("backend/metal").join(fault.file);
        let original = fs::read_to_string(from.join("backend/metal").join(fault.file));
        let places = original.expect("it is there").matches(fault.from).count();
        assert_eq!(places, 1, "places for fault {} in {}", fault.name, fault.file);
        change(&file, |text| text.replacen(fault.from, fault.to, 1));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("it can be made");
    for entry in fs::read_dir(from).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        let target = to.join(path.file_name().expect("it has a name"));
        match path.is_dir() {
            true => copy(&path, &target),
            false => drop(fs::copy(&path, &target).expect("it can be copied")),
        }
    }
}

fn change(path: &Path, how: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).expect("it is there");
    fs::write(path, how(&text)).expect("it can be written");
}
