//! A stand-in for Apple's SDK: for each library a list of what it exports, which is all that a linker
//! wants to see.
//!
//! The system library's list comes with Zig. Those of the frameworks are tools/apple/symbols.txt:
//! written by hand, of what the binary uses. A name that is misspelt or missing there does not link;
//! that Apple exports what stands there is not proven by it.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::zig::Zig;
use crate::shell;

/// The lists that are written by hand: "LIBRARY: NAME NAME …", a library's install name without
/// `.dylib`.
const SYMBOLS: &str = "tools/apple/symbols.txt";

/// Writes the stand-in to `folder`.
///
/// # Errors
/// When a list can't be read or written.
pub fn write(folder: &Path, zig: &Zig) -> anyhow::Result<()> {
    let system = fs::read_to_string(zig.system_library())?;
    put(&folder.join("usr/lib/libSystem.tbd"), &known_targets(&system))?;
    for alias in ["libc", "libm", "libSystem.B"] {
        put(&folder.join(format!("usr/lib/{alias}.tbd")), &known_targets(&system))?;
    }
    let lists = fs::read_to_string(shell::root().join(SYMBOLS))?;
    for line in lists.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let (library, names) =
            line.split_once(':').with_context(|| format!("{SYMBOLS}: `{line}`"))?;
        let path = match library.strip_prefix("/usr/lib/") {
            Some(name) => format!("usr/lib/{}.tbd", name.split('.').next().unwrap_or(name)),
            None => {
                let name = library.rsplit('/').next().unwrap_or_default();
                format!("System/Library/Frameworks/{name}.framework/{name}.tbd")
            }
        };
        put(&folder.join(path), &list(library, names))?;
    }
    // Which macOS the lists are of; the linker writes it into the program.
    let settings = "{\"Version\":\"14.0\",\"MaximumDeploymentTarget\":\"14.0.99\",\
                    \"CanonicalName\":\"macosx14.0\",\"DisplayName\":\"macOS 14.0\"}\n";
    put(&folder.join("SDKSettings.json"), settings)
}

fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::create_dir_all(path.parent().context("a file in no folder")?)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}

/// A text-based list of a library, version 4.
fn list(library: &str, names: &str) -> String {
    let install =
        if library.starts_with("/usr/lib/") { format!("{library}.dylib") } else { library.into() };
    let names: Vec<_> = names.split_whitespace().map(|name| format!("'_{name}'")).collect();
    format!(
        "--- !tapi-tbd\ntbd-version: 4\ntargets: [ arm64-macos ]\ninstall-name: '{install}'\nexports:\n  \
         - targets: [ arm64-macos ]\n    symbols: [ {} ]\n...\n",
        names.join(", ")
    )
}

/// The list without the targets that the linker does not know: `arm64e.x1-macos` and its like.
fn known_targets(text: &str) -> String {
    let mut parts = text.split("arm64e.x1-");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The comma before it, and the end of the line between, go with the word.
        out.truncate(out.trim_end().trim_end_matches(',').len());
        out += part.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_targets_go_with_their_commas() {
        let check = |text: &str, expected: &str| assert_eq!(known_targets(text), expected);
        check("[ a-macos, arm64e.x1-macos ]", "[ a-macos ]");
        check("[ a,\n  arm64e.x1-macos, arm64e.x1-maccatalyst ]", "[ a ]");
        check("[ a, arm64e.x1-macos, b ]", "[ a, b ]");
    }

    #[test]
    fn a_list_names_its_library_and_symbols() {
        let text = list("/usr/lib/libx.2", "one two");
        assert!(text.contains("'/usr/lib/libx.2.dylib'") && text.contains("[ '_one', '_two' ]"));
    }
}
