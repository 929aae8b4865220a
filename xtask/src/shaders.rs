//! `cargo xtask shaders`: the Vulkan kernels, compiled from their sources into files that are
//! checked in, so that nobody needs the compiler to build everwarm.
//!
//! A test compares the files with what the compiler makes of the sources, where it is installed in
//! the version that made them; versions differ in their output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::shell;

/// Where sources and results lie.
const FOLDER: &str = "crates/gpu/src/backend/vulkan/kernels";

/// Debian's compiler, in the package glslang-tools.
const COMPILER: &str = "glslangValidator";

/// Results: the source each is made from, and what is defined in it.
const SHADERS: [(&str, &str, &[&str]); 6] = [
    ("chain.spv", "chain.comp", &[]),
    ("chain-clock.spv", "chain.comp", &["-DCLOCK"]),
    ("empty.spv", "empty.comp", &[]),
    ("fill.spv", "fill.comp", &[]),
    ("matmul.spv", "matmul.comp", &[]),
    ("stream.spv", "stream.comp", &[]),
];

/// Makes all results again, or with `check` says which are stale; true when none is, or all were
/// made.
pub fn run(check: bool) -> anyhow::Result<bool> {
    let mut well = true;
    for (result, source, flags) in SHADERS {
        let path = folder().join(result);
        let made = compiled(&folder().join(source), flags)?;
        if fs::read(&path).ok().as_ref() == Some(&made) {
            continue;
        }
        match check {
            true => {
                println!("{result} is stale (`cargo xtask shaders` makes it again)");
                well = false;
            }
            false => {
                fs::write(&path, made)?;
                println!("made {}", shell::relative(&path));
            }
        }
    }
    Ok(well)
}

fn folder() -> PathBuf {
    shell::root().join(FOLDER)
}

/// What the compiler makes of a source.
fn compiled(source: &Path, flags: &[&str]) -> anyhow::Result<Vec<u8>> {
    ensure!(
        shell::find(COMPILER).is_some(),
        "missing: {COMPILER}; install it, on Debian: apt-get install glslang-tools"
    );
    let folder = tempfile()?;
    let result = folder.join("result.spv");
    let mut command = Command::new(COMPILER);
    command.args(["-V", "--quiet", "--target-env", "vulkan1.0"]).args(flags);
    let done = shell::run(command.arg(source).arg("-o").arg(&result));
    let made = done.and_then(|()| fs::read(&result).context("the compiler left no result"));
    let _ = fs::remove_dir_all(&folder);
    made
}

/// A new folder for one result.
fn tempfile() -> anyhow::Result<PathBuf> {
    let name = format!("everwarm-shaders-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The word of a result that names the compiler and its version.
    fn compiler(spirv: &[u8]) -> Option<&[u8]> {
        spirv.get(8..12)
    }

    #[test]
    fn the_checked_in_shaders_are_what_their_sources_give() {
        let (result, source, _) = SHADERS[0];
        let ours = fs::read(folder().join(result)).unwrap();
        match compiled(&folder().join(source), &[]) {
            Err(why) => println!("skipped: {why:#}"),
            Ok(made) if compiler(&made) != compiler(&ours) => {
                println!("skipped: this is another version of {COMPILER}");
            }
            Ok(_) => assert!(run(true).unwrap(), "a result is stale, see above"),
        }
    }
}
