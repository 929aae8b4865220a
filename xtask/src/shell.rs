//! Commands and places: the workspace's root, and running a program with a clear error.
//!
//! Does not know what the commands are for.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// The workspace's root folder.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let own = manifest.filter(|folder| folder.ends_with("xtask"));
    let own = own.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    own.parent().expect("xtask stands in the workspace").to_path_buf()
}

/// The cargo that runs us, in the workspace's root.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command; its output goes to the terminal.
///
/// # Errors
/// When it can't be started, or ends with anything but success.
pub fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("can't start `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` ended with {status}", line(command));
    }
    Ok(())
}

/// Runs a command and returns what it prints on stdout.
///
/// # Errors
/// When it can't be started, or ends with anything but success; carries what it said on stderr.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("can't start `{}`", line(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` ended with {}: {}", line(command), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The folder that cargo builds into.
///
/// # Errors
/// When cargo doesn't describe the workspace.
pub fn target() -> anyhow::Result<PathBuf> {
    let metadata = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let metadata: serde_json::Value = serde_json::from_str(&output(cargo().args(metadata))?)?;
    let target = metadata["target_directory"].as_str().context("cargo names no target folder")?;
    Ok(PathBuf::from(target))
}

/// Where a program of that name stands on the search path.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A command as one would type it.
fn line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let words = std::iter::once(program.file_name().unwrap_or_default()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// `path` as seen from the workspace's root.
pub fn relative(path: &Path) -> String {
    let root = root();
    path.strip_prefix(&root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}
