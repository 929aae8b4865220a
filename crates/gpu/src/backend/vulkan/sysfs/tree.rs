//! Small files below a folder of the form of `/sys`, as text, numbers or bytes.
//!
//! Whatever is not there, can't be read or is not understood is `None`: permissions, drivers and
//! kernels differ, and a source that is silent is no error.

use std::io::Read;
use std::path::{Path, PathBuf};

/// No file of interest is longer. Unit: B.
const LENGTH_MAX: u64 = 64 << 10;

/// The first bytes of a file.
pub fn bytes(path: &Path) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    std::fs::File::open(path).ok()?.take(LENGTH_MAX).read_to_end(&mut all).ok()?;
    Some(all)
}

/// The text of a file, without space around it.
pub fn text(path: &Path) -> Option<String> {
    let text = String::from_utf8_lossy(&bytes(path)?).trim().to_owned();
    Some(text).filter(|text| !text.is_empty())
}

/// Larger numbers are none that a driver means.
const NUMBER_MAX: f64 = 1e18;

/// A number that is not negative.
pub fn number(path: &Path) -> Option<f64> {
    let number: f64 = text(path)?.parse().ok()?;
    (0.0..=NUMBER_MAX).contains(&number).then_some(number)
}

/// The entries of a folder whose names begin so, by name.
pub fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(all) = std::fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| name(path).starts_with(prefix);
    let mut found: Vec<_> =
        all.filter_map(|entry| Some(entry.ok()?.path())).filter(named).collect();
    found.sort();
    found
}

/// The last part of a path.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
