//! Where a run is written and read: one file of JSON Lines, compressed or not, or tables beside each
//! other.

use crate::output::write_whole;
use anyhow::Context;
use everwarm_record::{Run, gzip};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

const NO_PARQUET: &str = "this build can't write Parquet (build it with `--features parquet`); \
                          any other ending than .parquet gives JSON Lines";

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("parquet"))
}

/// Refuses a place for a run's file where nothing could be written, or something would be lost.
pub(super) fn writable(path: &Path, force: bool) -> anyhow::Result<()> {
    let shown = path.display();
    anyhow::ensure!(
        path != Path::new("-"),
        "`-o -`: standard output has the table; expected the name of a file"
    );
    anyhow::ensure!(cfg!(feature = "parquet") || !is_table(path), NO_PARQUET);
    anyhow::ensure!(!path.is_dir(), "`{shown}` is a folder; expected the name of a file");
    if let Some(there) = files(path).iter().find(|file| !force && file.is_file()) {
        anyhow::bail!("`{}` exists; --force replaces it", there.display());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder {
        anyhow::ensure!(folder.is_dir(), "`{shown}`: there is no folder `{}`", folder.display());
    }
    Ok(())
}

/// What is recorded of a run while it goes on, beside its file to be: JSON Lines, good up to the last
/// round of a cell that has ended, whatever then happens to this process.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// The journal of a run that will be written to `path`; none where that is a pipe or a device.
    ///
    /// It also keeps the name: of two runs to one file the second is refused before it runs.
    pub(super) fn open(path: &Path) -> anyhow::Result<Option<Journal>> {
        if path.exists() && !path.is_file() {
            return Ok(None);
        }
        let mut beside = path.as_os_str().to_owned();
        beside.push(".part");
        let beside = PathBuf::from(beside);
        match OpenOptions::new().write(true).create_new(true).open(&beside) {
            Ok(file) => Ok(Some(Journal { path: beside, file })),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => anyhow::bail!(
                "`{}` is there: another run to `{}` goes on, or one was killed (then `everwarm lab \
                 show` shows how far it came; remove or rename it)",
                beside.display(),
                path.display()
            ),
            Err(error) => Err(error).with_context(|| format!("can't write {}", beside.display())),
        }
    }

    /// Adds the records of `piece`; before the first of them, its manifest.
    pub(super) fn add(&mut self, piece: &Run, is_first: bool) -> anyhow::Result<()> {
        let lines = piece.to_json_lines();
        let manifest = lines.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines = if is_first { &lines[..] } else { &lines[manifest..] };
        let written = self.file.write_all(lines);
        written.with_context(|| format!("can't write {}", self.path.display()))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it: the run is written, or nothing of it is worth keeping.
    pub(super) fn remove(self) {
        let _ = std::fs::remove_file(self.path);
    }
}

/// Writes a run so that its file is there whole or not at all.
pub(super) fn save(path: &Path, run: &Run, force: bool) -> anyhow::Result<()> {
    match is_table(path) {
        true => save_tables(path, run, force),
        false if is_compressed(path) => write_whole(path, &gzip::pack(&run.to_json_lines()), force),
        false => write_whole(path, &run.to_json_lines(), force),
    }
}

/// Reads a run that [`save`] has written as JSON Lines; what was compressed is told by its first bytes.
pub(super) fn load(path: &Path) -> anyhow::Result<Run> {
    let shown = path.display();
    let mut bytes =
        std::fs::read(path).with_context(|| format!("the run `{shown}` can't be read"))?;
    if gzip::is_packed(&bytes) {
        let unpacked = gzip::unpack(&bytes);
        let (plain, fault) =
            unpacked.with_context(|| format!("the run `{shown}` can't be unpacked"))?;
        // Whatever came out before a cut is good, but a cut at a line's end would not show.
        if let Some(fault) = fault {
            eprintln!("warning: `{shown}` is damaged and read only in part: {fault}");
        }
        bytes = plain;
    }
    anyhow::ensure!(
        !bytes.starts_with(b"PAR1"),
        "`{shown}` is a Parquet table; expected a run as JSON Lines (tools for tables read this one)"
    );
    let start = &bytes[..bytes.len().min(4096)];
    anyhow::ensure!(
        !start.contains(&0) && is_text(start),
        "`{shown}` is no text; expected a run as JSON Lines, compressed or not"
    );
    let run = Run::from_json_lines(&bytes);
    let run = run.with_context(|| format!("`{shown}` is no recorded run"))?;
    if run.is_newer() {
        eprintln!(
            "warning: `{shown}` was written by a newer everwarm ({}, schema {}; this one knows {}): \
             what is new in it is passed over",
            run.manifest.everwarm,
            run.manifest.schema,
            everwarm_record::SCHEMA
        );
    }
    Ok(run)
}

/// True for UTF-8, which may be cut within a character.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("gz"))
}

/// Every file of a run that is written to `path`. In tables, the command buffers stand under the
/// name itself, the others beside it: `run.telemetry.parquet`.
fn files(path: &Path) -> Vec<PathBuf> {
    #[cfg(feature = "parquet")]
    if is_table(path) {
        let beside = everwarm_record::parquet::TABLES[1..].iter();
        let beside = beside.map(|table| path.with_extension(format!("{table}.parquet")));
        return std::iter::once(path.to_owned()).chain(beside).collect();
    }
    vec![path.to_owned()]
}

#[cfg(feature = "parquet")]
fn save_tables(path: &Path, run: &Run, force: bool) -> anyhow::Result<()> {
    let tables = everwarm_record::parquet::to_tables(run)?;
    for (file, (_, bytes)) in files(path).iter().zip(tables) {
        write_whole(file, &bytes, force)?;
    }
    Ok(())
}

#[cfg(not(feature = "parquet"))]
fn save_tables(_path: &Path, _run: &Run, _force: bool) -> anyhow::Result<()> {
    anyhow::bail!(NO_PARQUET)
}
