//! Room on the disk: whether there is enough for all tests, and what of it they give back.
//!
//! Contract: nothing is ever refused for lack of room, as what will be needed is an estimate; it is said
//! aloud before the first step and again beside a failure. Only continuous integration gives room
//! back: there a folder goes as soon as no step to come names it. At a desk it is what makes the
//! next run quick.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{report, setup, shell};

/// What a run of all steps needs, from nothing, with what cargo downloads. Unit: B.
/// Source: measured with `du` after such a run, and rounded up.
const AT_A_DESK: u64 = 4_800_000_000;

/// The same where each step's folders go after it, and binaries carry no debug information.
const IN_CI: u64 = 3_000_000_000;

/// Where cargo builds what most steps share, as the steps' folders are named.
const SHARED: &str = "target/debug";

/// The folders of `done` that none of `rest` names.
pub fn spent<'a>(done: &[&'a str], rest: &[&[&'a str]]) -> Vec<&'a str> {
    let wanted = |folder: &&str| rest.iter().any(|folders| folders.contains(folder));
    done.iter().copied().filter(|folder| !wanted(folder)).collect()
}

/// Removes folders, where nobody will come back to them, and says how much that gave.
///
/// A folder that can't be removed is said and is no failure of a test.
pub fn give_back(folders: &[&str]) {
    if !setup::in_ci() {
        return;
    }
    for path in folders.iter().flat_map(|folder| places(folder)).filter(|path| path.exists()) {
        let size = size(&path);
        match fs::remove_dir_all(&path) {
            Ok(()) => println!("removed {}, {}", shell::relative(&path), report::megabytes(size)),
            Err(error) => println!("note: {} stays: {error}", path.display()),
        }
    }
}

/// What to say if there is too little room for all steps, which use these folders.
pub fn shortage(folders: &[&[&str]]) -> Option<String> {
    let all = folders.concat().into_iter().chain([SHARED]);
    let mut paths: Vec<PathBuf> = all.flat_map(places).collect();
    paths.sort();
    paths.dedup();
    let there = paths.iter().map(|path| size(path)).sum();
    let need = if setup::in_ci() { IN_CI } else { AT_A_DESK };
    let disks = [Some(shell::root()), shell::target().ok()];
    let free = disks.into_iter().flatten().filter_map(|path| free(&path)).min()?;
    too_little(need, there, free)
}

fn too_little(need: u64, there: u64, free: u64) -> Option<String> {
    let more = need.saturating_sub(there);
    (free < more).then(|| {
        let [need, there, free, more] = [need, there, free, more].map(report::megabytes);
        format!(
            "too little room on the disk: all steps need some {need}, of which {there} are there; \
             expected {more} free, found {free}"
        )
    })
}

/// Bytes that may be written on the disk of `path`; `None` if it can't be asked.
fn free(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

/// Where a folder may stand: cargo can be told to build elsewhere, and some of `target/` is made by us.
fn places(folder: &str) -> Vec<PathBuf> {
    let mut places = vec![shell::root().join(folder)];
    if let (Some(below), Ok(target)) = (folder.strip_prefix("target/"), shell::target()) {
        places.push(target.join(below));
        places.dedup();
    }
    places
}

/// What lies below `path`; files with several names are counted once. Unit: B on the disk.
fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let mut folders = vec![path.to_owned()];
    let (mut total, mut seen) = (0, std::collections::HashSet::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                folders.push(entry.path());
            }
            if about.nlink() < 2 || about.is_dir() || seen.insert(about.ino()) {
                total += 512 * about.blocks();
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_the_last_step_that_names_it() {
        let [fake, apple]: [&[&str]; 2] = [&["fake", "venv"], &["macos", "venv"]];
        assert_eq!(spent(fake, &[&[], apple]), ["fake"]);
        assert_eq!(spent(apple, &[]), ["macos", "venv"]);
    }

    #[test]
    fn too_little_room_says_how_much_is_needed() {
        assert_eq!(too_little(5_000_000_000, 2_000_000_000, 3_000_000_000), None);
        assert_eq!(too_little(5_000_000_000, 6_000_000_000, 0), None);
        assert_eq!(
            too_little(5_000_000_000, 2_000_000_000, 1_234_000_000).unwrap(),
            "too little room on the disk: all steps need some 5000 MB, of which 2000 MB are there; \
             expected 3000 MB free, found 1234 MB"
        );
        assert!(free(Path::new("/")).unwrap() > 0);
    }

    #[test]
    fn a_file_of_several_names_is_counted_once() {
        let folder = std::env::temp_dir().join(format!("everwarm-disk-{}", std::process::id()));
        fs::create_dir_all(folder.join("below")).unwrap();
        fs::write(folder.join("one"), vec![1; 1_000_000]).unwrap();
        let once = size(&folder);
        fs::hard_link(folder.join("one"), folder.join("below/two")).unwrap();
        let twice = size(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert!(once >= 1_000_000 && twice == once, "{once}, {twice}");
    }
}
