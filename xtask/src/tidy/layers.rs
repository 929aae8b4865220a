//! Which crate is of which layer, that dependencies point down only, and that each is used.
//!
//! The table's order is part of the rule: a crate may use those above it in the table, none below.

use super::Finding;
use super::source::{Workspace, code};

/// A layer; lower ones know nothing of higher ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// No clock, file, socket, thread, environment or unseeded randomness.
    Core,
    /// Devices: FFI and threads, no async runtime, no policy.
    Edge,
    /// Files, sockets, signals, async.
    Shell,
    /// The command line, and what builds and tests the rest.
    Top,
}

/// Every crate of the workspace, lowest first.
const TABLE: [(&str, Layer); 24] = [
    ("everwarm-units", Layer::Core),
    ("everwarm-stats", Layer::Core),
    ("everwarm-stream", Layer::Core),
    ("everwarm-record", Layer::Core),
    ("everwarm-dvfs", Layer::Core),
    ("everwarm-workload", Layer::Core),
    ("everwarm-sim", Layer::Core),
    ("everwarm-governor", Layer::Core),
    ("everwarm-fit", Layer::Core),
    ("everwarm-inflight", Layer::Core),
    ("everwarm-replay", Layer::Core),
    ("everwarm-gpu", Layer::Edge),
    ("everwarm-hold", Layer::Edge),
    ("everwarm-embed", Layer::Edge),
    ("everwarm-lab", Layer::Shell),
    ("everwarm-doctor", Layer::Shell),
    ("everwarm-report", Layer::Shell),
    ("everwarm-sim-server", Layer::Shell),
    ("everwarm-proxy", Layer::Shell),
    ("everwarm-ttft", Layer::Shell),
    ("everwarm-fuzz", Layer::Top),
    ("everwarm", Layer::Top),
    ("everwarm-real-servers", Layer::Top),
    ("xtask", Layer::Top),
];

/// The layer of a crate; `None` for one that is not in the table.
pub fn layer(name: &str) -> Option<Layer> {
    place(name).map(|index| TABLE[index].1)
}

fn place(name: &str) -> Option<usize> {
    TABLE.iter().position(|(entry, _)| *entry == name)
}

/// Each crate is in the table, and uses only crates above it there.
pub fn arrows_point_down(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let Some(own) = place(&package.name) else {
            let what = format!("{} is in no layer; expected a line in xtask's table", package.name);
            findings.push(Finding::new(&manifest, 0, what));
            continue;
        };
        for used in &package.dependencies {
            if place(used).is_some_and(|place| place >= own) {
                let what = format!("{} uses {used}, which stands above it", package.name);
                findings.push(Finding::new(&manifest, 0, what));
            }
        }
    }
    findings
}

/// Each crate's sources use what its manifest asks for, and some crate what the workspace lists.
pub fn dependencies_are_used(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let sources = format!("{}/src", package.folder);
        for name in &package.dependencies {
            let word = name.replace('-', "_");
            let used = workspace
                .rust(&sources)
                .any(|file| code(&file.text).any(|(_, l)| has_word(l, &word)));
            if !used {
                findings.push(Finding::new(&manifest, 0, format!("{name} is used by no source")));
            }
        }
    }
    let listed = workspace.file("Cargo.toml").map_or("", |file| file.text.as_str());
    let listed = listed.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let manifests = workspace.files.iter().filter(|f| f.path.ends_with("/Cargo.toml"));
    let asked = manifests.flat_map(|f| f.text.lines()).filter_map(dependency).collect::<Vec<_>>();
    let entries = listed.lines().take_while(|line| !line.starts_with('['));
    for name in entries.filter_map(dependency).filter(|name| !asked.contains(name)) {
        findings.push(Finding::new("Cargo.toml", 0, format!("no crate asks for {name}")));
    }
    findings
}

/// The name in front of `.workspace = true`, `= "1"` or `= { … }`.
fn dependency(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(['.', ' ', '='])?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

/// Whether `word` stands in `line` as a name of its own.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(part) && !line[at + word.len()..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::super::source::{File, Package};
    use super::*;

    fn check(name: &str, dependencies: &[&str], findings: usize) {
        let dependencies = dependencies.iter().map(|d| (*d).to_owned()).collect();
        let package = Package { name: name.into(), folder: "crates/a".into(), dependencies };
        let workspace = Workspace { files: Vec::new(), packages: vec![package] };
        assert_eq!(arrows_point_down(&workspace).len(), findings, "{name}");
    }

    #[test]
    fn an_unused_dependency_is_found() {
        let check = |source: &str, findings: usize| {
            let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
            let list = "[workspace.dependencies]\nrand = \"1\"\nhttp-body = \"1\"\n";
            let files = vec![
                file("Cargo.toml", list),
                file("crates/a/Cargo.toml", "[dependencies]\nhttp-body.workspace = true\n"),
                file("crates/a/src/lib.rs", source),
            ];
            let dependencies = vec!["http-body".to_owned()];
            let package = Package { name: "a".into(), folder: "crates/a".into(), dependencies };
            let workspace = Workspace { files, packages: vec![package] };
            assert_eq!(dependencies_are_used(&workspace).len(), findings, "{source}");
        };
        check("use http_body::Body;\n", 1); // no crate asks for rand
        check("// http_body\nuse http_body_util::Full;\n", 2);
    }

    #[test]
    fn an_arrow_up_and_an_unknown_crate_are_found() {
        check("everwarm-gpu", &["everwarm-sim", "serde"], 0);
        check("everwarm-sim", &["everwarm-gpu"], 1);
        check("everwarm-proxy", &["everwarm"], 1);
        check("everwarm-ghost", &[], 1);
    }
}
