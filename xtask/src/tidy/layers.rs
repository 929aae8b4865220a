//! Which crate is of which layer, and that dependencies point down only.
//!
//! The table's order is part of the rule: a crate may use those above it in the table, none below.

use super::Finding;
use super::source::Workspace;

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
const TABLE: [(&str, Layer); 18] = [
    ("everwarm-units", Layer::Core),
    ("everwarm-stats", Layer::Core),
    ("everwarm-stream", Layer::Core),
    ("everwarm-record", Layer::Core),
    ("everwarm-dvfs", Layer::Core),
    ("everwarm-workload", Layer::Core),
    ("everwarm-sim", Layer::Core),
    ("everwarm-governor", Layer::Core),
    ("everwarm-gpu", Layer::Edge),
    ("everwarm-hold", Layer::Edge),
    ("everwarm-lab", Layer::Shell),
    ("everwarm-report", Layer::Shell),
    ("everwarm-sim-server", Layer::Shell),
    ("everwarm-proxy", Layer::Shell),
    ("everwarm-ttft", Layer::Shell),
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

#[cfg(test)]
mod tests {
    use super::super::source::Package;
    use super::*;

    fn check(name: &str, dependencies: &[&str], findings: usize) {
        let dependencies = dependencies.iter().map(|d| (*d).to_owned()).collect();
        let package = Package { name: name.into(), folder: "crates/a".into(), dependencies };
        let workspace = Workspace { files: Vec::new(), packages: vec![package] };
        assert_eq!(arrows_point_down(&workspace).len(), findings, "{name}");
    }

    #[test]
    fn an_arrow_up_and_an_unknown_crate_are_found() {
        check("everwarm-gpu", &["everwarm-sim", "serde"], 0);
        check("everwarm-sim", &["everwarm-gpu"], 1);
        check("everwarm-proxy", &["everwarm"], 1);
        check("everwarm-ghost", &[], 1);
    }
}
