//! Where a run is written and read: one file of JSON Lines, compressed or not, or tables beside each
//! other.

use crate::output::write_whole;
use anyhow::Context;
use everwarm_record::Run;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const NO_PARQUET: &str = "this build can't write Parquet (build it with `--features parquet`); \
                          any other ending than .parquet gives JSON Lines";

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext == "parquet")
}

/// Refuses a place for a run's file where nothing could be written, or something would be lost.
pub(super) fn writable(path: &Path, force: bool) -> anyhow::Result<()> {
    let shown = path.display();
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

/// Writes a run so that its file is there whole or not at all.
pub(super) fn save(path: &Path, run: &Run, force: bool) -> anyhow::Result<()> {
    match is_table(path) {
        true => save_tables(path, run, force),
        false if is_compressed(path) => {
            let mut packed = GzEncoder::new(Vec::new(), Compression::best());
            packed.write_all(&run.to_json_lines())?;
            write_whole(path, &packed.finish()?, force)
        }
        false => write_whole(path, &run.to_json_lines(), force),
    }
}

/// Reads a run that [`save`] has written as JSON Lines; what was compressed is told by its first bytes.
pub(super) fn load(path: &Path) -> anyhow::Result<Run> {
    let shown = path.display();
    let mut bytes =
        std::fs::read(path).with_context(|| format!("the run `{shown}` can't be read"))?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let packed = std::mem::take(&mut bytes);
        let unpacked = MultiGzDecoder::new(&packed[..]).read_to_end(&mut bytes);
        match unpacked {
            // Whatever came out before a cut is good, but a cut at a line's end would not show.
            Err(error) if !bytes.is_empty() => {
                eprintln!("warning: `{shown}` is damaged and read only in part: {error}");
            }
            other => drop(other.with_context(|| format!("the run `{shown}` can't be unpacked"))?),
        }
    }
    Run::from_json_lines(&bytes).with_context(|| format!("`{shown}` is no recorded run"))
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ext| ext == "gz")
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
