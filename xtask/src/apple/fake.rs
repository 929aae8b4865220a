//! The tests of the Metal backend against a fake Metal, in a workspace of their own (`fake-metal/`).
//!
//! objc2-metal asks for a framework that only macOS has, in one line. A copy of it without that
//! demand is made here from what cargo has downloaded; nothing of it is kept in the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::zig::Zig;
use crate::shell;

/// The crate that is changed.
const CRATE: &str = "objc2-metal";

/// The line that is changed, and what it becomes.
const DEMAND: &str = "#[link(name = \"Metal\", kind = \"framework\")]";
const CHANGED: &str =
    "#[cfg_attr(target_vendor = \"apple\", link(name = \"Metal\", kind = \"framework\"))]";

/// The workspace, and its packages that we write.
const MANIFEST: &str = "fake-metal/Cargo.toml";
const PACKAGES: [&str; 4] = ["--package", "fake-metal", "--package", "everwarm-gpu-faulty"];

/// Looks at form and lints of these tests; the command that runs them.
///
/// # Errors
/// When the changed copy can't be made, or a lint finds something.
pub fn fake_metal() -> anyhow::Result<Command> {
    changed_copy()?;
    let mut format = shell::cargo();
    format.args(["fmt", "--manifest-path", MANIFEST]).args(PACKAGES).arg("--check");
    shell::run(&mut format)?;
    let mut lint = on("clippy")?;
    // What else is built here is linted where it belongs, and seeded faults look like faults.
    lint.args(["--package", "fake-metal", "--no-deps", "--all-targets", "--", "-D", "warnings"]);
    shell::run(&mut lint)?;
    let mut command = on("test")?;
    command.arg("--no-fail-fast");
    // Its tests compile the kernels for this machine's CPU.
    command.env("EVERWARM_CLANG", Zig::ready()?.native()).envs(Zig::caches());
    Ok(command)
}

/// A task of cargo's in that workspace, with a target folder of its own.
fn on(task: &str) -> anyhow::Result<Command> {
    let mut command = shell::cargo();
    command.args([task, "--manifest-path", MANIFEST, "--target-dir"]);
    command.arg(shell::target()?.join("fake-metal"));
    Ok(command)
}

/// Makes the copy that `fake-metal/Cargo.toml` names.
fn changed_copy() -> anyhow::Result<()> {
    let from = source()?;
    let to = shell::root().join("target/fake-metal").join(CRATE);
    let changed = Path::new("src/generated/mod.rs");
    let text = fs::read_to_string(from.join(changed))?;
    ensure!(text.matches(DEMAND).count() == 1, "{CRATE} does not have `{DEMAND}` once");
    let text = text.replace(DEMAND, CHANGED);
    if fs::read_to_string(to.join(changed)).is_ok_and(|old| old == text) {
        return Ok(()); // Made before, and cargo need not build it again.
    }
    copy(&from, &to)?;
    fs::write(to.join(changed), text)?;
    Ok(())
}

/// Where cargo has put the crate, downloaded if need be.
fn source() -> anyhow::Result<PathBuf> {
    let metadata = ["metadata", "--format-version", "1", "--filter-platform", super::TARGET];
    let described: serde_json::Value =
        serde_json::from_str(&shell::output(shell::cargo().args(metadata))?)?;
    let packages = described["packages"].as_array().context("cargo names no packages")?;
    let package = packages.iter().find(|package| package["name"] == CRATE);
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.with_context(|| format!("{CRATE} is no dependency"))?;
    Ok(Path::new(manifest).parent().context("a manifest without folder")?.to_path_buf())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        let target = to.join(path.file_name().context("a file without name")?);
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::write(&target, fs::read(&path)?)?;
        }
    }
    Ok(())
}
