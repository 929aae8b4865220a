//! That every file which a table should list is listed: a chip, scenario, policy or backend that no
//! table knows is dead, and no suite walks it.

use super::Finding;
use super::source::{File, Workspace, code};

/// Folders of Rust files of which each is one plug-in, told by their last part.
const PLUG_INS: [&str; 4] = ["backend", "policy", "policies", "source"];

/// Each data file of a crate is named in that crate's sources.
///
/// Data is a TOML file in a folder of its own beside `src`. It counts as named when a source has
/// `NAME.toml` or `"NAME"`, or embeds its whole folder.
pub fn data_files(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let sources = sources(workspace, &package.folder);
        for file in &workspace.files {
            let Some((folder, stem)) = data(&file.path, &package.folder) else { continue };
            let names = [format!("{stem}.toml"), format!("\"{stem}\""), format!("({stem})")];
            let whole = format!("include_dir!(\"$CARGO_MANIFEST_DIR/{folder}\"");
            let named = |source: &&File| {
                let named = |text: &str| names.iter().any(|name| text.contains(name.as_str()));
                source.text.contains(&whole) || code(&source.text).any(|(_, line)| named(line))
            };
            if !sources.iter().any(named) {
                let what = format!("no source of {} names it", package.name);
                findings.push(Finding::new(&file.path, 0, what));
            }
        }
    }
    findings
}

/// Folder and stem of a crate's data file.
fn data<'a>(path: &'a str, package: &str) -> Option<(&'a str, &'a str)> {
    let inside = path.strip_prefix(package)?.strip_prefix('/')?;
    let (folder, name) = inside.rsplit_once('/')?;
    let fixture = ["src", "tests", "examples"].contains(&folder.split('/').next()?);
    (!fixture).then_some((folder, name.strip_suffix(".toml")?))
}

fn sources<'a>(workspace: &'a Workspace, package: &str) -> Vec<&'a File> {
    let (below, build) = (format!("{package}/src/"), format!("{package}/build.rs"));
    let source =
        |f: &&File| f.path.ends_with(".rs") && (f.path.starts_with(&below) || f.path == build);
    workspace.files.iter().filter(source).collect()
}

/// Each plug-in's file is used by the table of its folder, or by another plug-in there that is.
pub fn plug_ins(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in workspace.rust("crates") {
        let Some((folder, name)) = file.path.rsplit_once('/') else { continue };
        let stem = name.trim_end_matches(".rs");
        let plug_in = PLUG_INS.iter().any(|last| folder.ends_with(&format!("/src/{last}")));
        if !plug_in || stem == "mod" {
            continue;
        }
        let table = format!("{folder}.rs");
        let beside = workspace.rust(folder).filter(|other| other.path != file.path);
        let mut tables = beside.chain(workspace.file(&table));
        if !tables.any(|table| lists(&table.text, stem)) {
            let what = format!("no table beside it names {stem}");
            findings.push(Finding::new(&file.path, 0, what));
        }
    }
    findings
}

/// Whether a text uses `stem::`, which a table must to reach the plug-in.
fn lists(text: &str, stem: &str) -> bool {
    code(text).any(|(_, line)| {
        !line.trim_start().starts_with("pub use") && line.contains(&format!("{stem}::"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::source::made_up;
    use super::*;

    #[test]
    fn a_data_file_that_nothing_names_is_found() {
        let chip = ("crates/dvfs/soc/t9.toml", "name = \"T9\"\n");
        let check = |table: &str, findings: usize| {
            let found = data_files(&made_up(&[chip, ("crates/dvfs/src/chip.rs", table)]));
            assert_eq!(found.len(), findings, "{table}");
        };
        check("const T9: &str = include_str!(\"../soc/t9.toml\");\n", 0);
        check("chips! { \"t9\" }\n", 0);
        check("// like t9.toml\n", 1);
    }

    #[test]
    fn a_plug_in_outside_its_table_is_found() {
        let policy = ("crates/gpu/src/backend/metal.rs", "//! Metal.\n");
        let check = |table: &str, findings: usize| {
            let found = plug_ins(&made_up(&[policy, ("crates/gpu/src/backend/mod.rs", table)]));
            assert_eq!(found.len(), findings, "{table}");
        };
        check("mod metal;\nconst TABLE: &[Entry] = &[metal::ENTRY];\n", 0);
        check("mod metal;\n", 1);
    }
}
