//! Writing: to standard output, which may be closed by whoever reads it (`| head`), and to files,
//! which are there whole or not at all.

use anyhow::Context;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Prints `text`; a reader that has gone is no error.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_on(text).map(drop)
}

/// Prints `text`; false if the reader has gone, for those who would print on and on.
pub fn print_on(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Prints `value` as indented JSON.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Writes all of `bytes` to `file` or nothing; a file that is there is replaced only with `replace`.
///
/// A pipe or a device is written to instead: a file must not take its place.
pub fn write_whole(file: &Path, bytes: &[u8], replace: bool) -> anyhow::Result<()> {
    let written = match file.exists() && !file.is_file() {
        true => write_into(file, bytes),
        false => write_beside(file, bytes, replace),
    };
    written.with_context(|| format!("can't write {}", file.display()))
}

fn write_into(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    match std::fs::OpenOptions::new().write(true).open(file)?.write_all(bytes) {
        // Whoever reads the pipe has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn write_beside(file: &Path, bytes: &[u8], replace: bool) -> std::io::Result<()> {
    // Behind a link stands the file that is meant.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = std::fs::write(&beside, bytes).and_then(|()| match replace {
        true => std::fs::rename(&beside, &file),
        // A link fails if the name is taken, even by what came since somebody looked.
        false => std::fs::hard_link(&beside, &file),
    });
    // After a rename there is nothing left to remove.
    let _ = std::fs::remove_file(&beside);
    written
}
