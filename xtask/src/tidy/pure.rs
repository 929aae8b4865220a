//! Rules of the core crates: no outside world, no `unsafe`, no experiment's name.

use super::Finding;
use super::layers::Layer;
use super::source::{File, Package, Workspace, code, production};

/// Modules and types through which a program reaches the outside world or another order each run.
const OUTSIDE: [&str; 10] = [
    "std::fs",
    "std::net",
    "std::os",
    "std::thread",
    "std::process",
    "std::env",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::hash::RandomState",
    "std::collections::hash_map::RandomState",
];

/// Names that make randomness without a seed, whatever path leads to them.
const UNSEEDED: [&str; 8] = [
    "thread_rng",
    "rand::rng(",
    "rand::random",
    "from_os_rng",
    "try_from_os_rng",
    "from_entropy",
    "OsRng",
    "SysRng",
];

/// Libraries that bring the outside world along; the second list is for the edge as well.
const HEAVY_FOR_CORE: [&str; 6] =
    ["libc", "socket2", "rustix", "nix", "spin_sleep", "tracing-subscriber"];
const HEAVY: [&str; 8] =
    ["tokio", "tokio-util", "hyper", "hyper-util", "reqwest", "axum", "anyhow", "clap"];

fn core_files(workspace: &Workspace) -> impl Iterator<Item = &File> {
    workspace.files.iter().filter(|file| {
        let below = |package: &Package| file.path.starts_with(&format!("{}/src/", package.folder));
        file.path.ends_with(".rs") && workspace.layer(Layer::Core).any(below)
    })
}

/// Core reads no clock, file, socket, thread, environment; its randomness has a seed.
pub fn no_io(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in core_files(workspace) {
        for (line, path) in paths(&file.text) {
            if let Some(outside) = OUTSIDE.iter().find(|outside| begins(&path, outside)) {
                findings.push(Finding::new(&file.path, line, format!("core uses {outside}")));
            }
        }
        for (line, text) in production(&file.text) {
            if let Some(name) = UNSEEDED.iter().find(|name| text.contains(*name)) {
                findings.push(Finding::new(&file.path, line, format!("unseeded: {name}")));
            }
        }
    }
    findings
}

/// Whether a path is `module` or leads into it.
fn begins(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Every path that begins with `std::` in production code, `use` trees spread out.
fn paths(text: &str) -> Vec<(usize, String)> {
    let (mut flat, mut starts) = (String::new(), Vec::new());
    for (number, line) in production(text) {
        starts.push((flat.len(), number));
        flat.push_str(line);
        flat.push('\n');
    }
    let line_of = |at: usize| starts[starts.partition_point(|(start, _)| *start <= at) - 1].1;
    let mut found = Vec::new();
    for (at, _) in flat.match_indices("std::") {
        let inside = flat[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        if !inside {
            spread("", &flat[at..], &mut |path| found.push((line_of(at), path)));
        }
    }
    found
}

/// Spreads a `use` tree such as `a::{b, c::{d, e}}`; returns what follows it.
fn spread<'a>(prefix: &str, text: &'a str, found: &mut dyn FnMut(String)) -> &'a str {
    let text = text.trim_start();
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
    let (path, mut rest) = text.split_at(end.unwrap_or(text.len()));
    let path = format!("{prefix}{path}");
    if !path.ends_with("::") || !rest.starts_with('{') {
        found(path.trim_end_matches("::").to_owned());
        return rest;
    }
    loop {
        rest = spread(&path, &rest[1..], found).trim_start();
        // `as name` and a glob's star follow a path without belonging to it.
        rest = rest.trim_start_matches(|c: char| c != ',' && c != '}' && c != ';');
        if !rest.starts_with(',') {
            return rest.strip_prefix('}').unwrap_or(rest);
        }
    }
}

/// Core crates forbid `unsafe` themselves, so that no lint table can loosen it.
pub fn forbids_unsafe(workspace: &Workspace) -> Vec<Finding> {
    let attribute = concat!("#![forbid(uns", "afe_code)]");
    let mut findings = Vec::new();
    for package in workspace.layer(Layer::Core) {
        let path = format!("{}/src/lib.rs", package.folder);
        let held = workspace.file(&path).is_none_or(|file| file.text.contains(attribute));
        if !held {
            findings.push(Finding::new(&path, 0, format!("expected {attribute}")));
        }
    }
    findings
}

/// Core and edge depend on no runtime and no boxed errors, core on no system library either.
pub fn no_heavy_dependency(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut check = |package: &Package, banned: &[&str]| {
        for used in package.dependencies.iter().filter(|used| banned.contains(&used.as_str())) {
            let path = format!("{}/Cargo.toml", package.folder);
            findings.push(Finding::new(&path, 0, format!("{} uses {used}", package.name)));
        }
    };
    for package in workspace.layer(Layer::Core) {
        check(package, &HEAVY);
        check(package, &HEAVY_FOR_CORE);
    }
    for package in workspace.layer(Layer::Edge) {
        check(package, &HEAVY);
    }
    findings
}

/// Simulator and controller name no claim, and no scenario as a string.
pub fn no_experiment(workspace: &Workspace) -> Vec<Finding> {
    let names = experiment_names(workspace);
    let blind = ["crates/sim/src", "crates/dvfs/src"];
    let files = blind.iter().flat_map(|folder| workspace.rust(folder));
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in code(&file.text) {
            if let Some(name) = names.iter().find(|name| line.contains(name.as_str())) {
                let what = format!("knows the experiment {name}");
                findings.push(Finding::new(&file.path, number, what));
            }
        }
    }
    findings
}

/// Claim ids as they stand (`group.name`), scenario names in quotes: `"ramp"` is a name, ramp a word.
fn experiment_names(workspace: &Workspace) -> Vec<String> {
    let mut names = Vec::new();
    for file in workspace.files.iter().filter(|f| f.path.ends_with(".toml")) {
        if file.text.contains("[[claim]]") {
            let ids = file.text.lines().filter_map(|line| line.trim().strip_prefix("id = \""));
            names.extend(ids.filter_map(|id| id.split('"').next()).map(str::to_owned));
        }
        let Some((folder, name)) = file.path.rsplit_once('/') else { continue };
        if folder.ends_with("/scenarios") {
            names.push(format!("\"{}\"", name.trim_end_matches(".toml")));
        }
    }
    names
}

/// Tests of core crates use made-up time.
pub fn no_sleep_in_tests(workspace: &Workspace) -> Vec<Finding> {
    let call = concat!("sle", "ep(");
    let mut findings = Vec::new();
    for package in workspace.layer(Layer::Core) {
        for file in workspace.rust(&package.folder) {
            let calls = code(&file.text).filter(|(_, line)| {
                line.contains(&format!("thread::{call}")) || line.contains(&format!("time::{call}"))
            });
            let what = "core waits in real time";
            findings.extend(calls.map(|(line, _)| Finding::new(&file.path, line, what)));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::source::made_up;
    use super::*;

    fn check(rule: fn(&Workspace) -> Vec<Finding>, files: &[(&str, &str)], lines: &[usize]) {
        let found: Vec<usize> = rule(&made_up(files)).iter().map(|f| f.line).collect();
        assert_eq!(found, lines, "{files:?}");
    }

    #[test]
    fn every_way_to_the_outside_is_found() {
        let io =
            |text: &str, lines: &[usize]| check(no_io, &[("crates/sim/src/a.rs", text)], lines);
        io("use std::collections::BTreeMap;\nuse std::time::Duration;\n", &[]);
        io("use std::fs::File;\n", &[1]);
        io("fn a() { std::env::var(\"A\"); }\n", &[1]);
        io("use std::{\n    fmt,\n    time::{Duration, Instant},\n};\n", &[1]);
        io("use std::{fmt, thread as t, net};\n", &[1, 1]);
        io("use my_std::fs;\nuse std::fsck;\n// use std::fs;\n", &[]);
        io("let r = rand::rng();\n", &[1]);
        io("#[cfg(test)]\nmod tests { use std::fs; }\n", &[]);
        check(no_io, &[("crates/proxy/src/a.rs", "use std::net::TcpStream;\n")], &[]);
    }

    #[test]
    fn an_experiment_in_the_simulator_is_found() {
        let claims = ("crates/lab/claims/m2.toml", "[[claim]]\nid = \"gap.short\"\n");
        let scenario = ("crates/lab/scenarios/ramp.toml", "");
        let named = |text: &str, lines: &[usize]| {
            check(no_experiment, &[claims, scenario, ("crates/dvfs/src/a.rs", text)], lines);
        };
        named("let ramp = gap.len();\n", &[]);
        named("if id == \"gap.short\" { 444 }\n", &[1]);
        named("\n\nmatch name { \"ramp\" => 1 }\n", &[3]);
    }

    #[test]
    fn a_core_without_its_attribute_is_found() {
        check(forbids_unsafe, &[("crates/sim/src/lib.rs", "//! Sim.\n")], &[0]);
        check(forbids_unsafe, &[("crates/gpu/src/lib.rs", "//! Gpu.\n")], &[]);
    }

    #[test]
    fn a_runtime_below_the_shell_is_found() {
        let mut workspace = made_up(&[]);
        for package in &mut workspace.packages {
            package.dependencies = vec!["tokio".into(), "libc".into()];
        }
        // Both in sim and dvfs, tokio in gpu, none in the proxy.
        assert_eq!(no_heavy_dependency(&workspace).len(), 5);
    }
}
