//! The rules of this workspace that neither compiler nor clippy can hold.
//!
//! A rule looks at a [`Workspace`], which is text and names only, and returns what breaks it. Each is
//! a line of [`RULES`] and thereby an ordinary test of the same name, so that `ARCHITECTURE.md` can
//! name it; `cargo xtask tidy` prints them all.

mod layers;
mod map;
mod pure;
mod source;
mod tables;
mod text;

use source::Workspace;

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the workspace's root.
    pub path: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is there, and what was expected.
    pub what: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

/// One rule.
pub struct Rule {
    /// Its name, and that of its test.
    pub name: &'static str,
    /// Looks for what breaks it.
    pub check: fn(&Workspace) -> Vec<Finding>,
}

/// The table of rules; each is a test, too.
macro_rules! rules {
    ($($name:ident: $check:path,)*) => {
        /// Every rule.
        pub const RULES: &[Rule] = &[$(Rule { name: stringify!($name), check: $check },)*];

        #[cfg(test)]
        mod holds {
            use super::*;

            $(#[test]
            fn $name() {
                let workspace = Workspace::read().expect("the workspace can be read");
                let findings = $check(&workspace);
                assert!(findings.is_empty(), "{}", listing(&findings));
            })*
        }
    };
}

rules! {
    core_has_no_io: pure::no_io,
    core_forbids_unsafe: pure::forbids_unsafe,
    core_has_no_heavy_dependency: pure::no_heavy_dependency,
    simulator_knows_no_experiment: pure::no_experiment,
    unsafe_is_at_the_edge_and_explained: source::unsafe_is_explained,
    arrows_point_down: layers::arrows_point_down,
    every_file_says_what_it_is: source::file_heads,
    files_are_short: source::lengths,
    no_absolute_paths: text::absolute_paths,
    no_registry_hosts: text::registry_hosts,
    nothing_is_left_to_do: text::left_to_do,
    links_resolve: text::links,
    dependencies_are_used: layers::dependencies_are_used,
    ignored_tests_are_the_real_servers: source::ignored_tests,
    core_tests_do_not_sleep: pure::no_sleep_in_tests,
    every_data_file_is_in_a_table: tables::data_files,
    every_plug_in_is_in_its_table: tables::plug_ins,
    architecture_names_every_crate: map::crates,
    architecture_is_short: map::length,
    readme_and_ci_run_the_same: map::commands,
    architecture_invariants_have_tests: map::invariants,
}

/// Runs every rule and prints what breaks it; true when nothing does.
pub fn print() -> anyhow::Result<bool> {
    let workspace = Workspace::read()?;
    let mut well = true;
    for rule in RULES {
        let findings = (rule.check)(&workspace);
        if !findings.is_empty() {
            well = false;
            print!("{} is broken:\n{}", rule.name, listing(&findings));
        }
    }
    if well {
        println!("{} rules hold over {} files", RULES.len(), workspace.files.len());
    }
    Ok(well)
}

/// One line a finding, as compilers write them.
fn listing(findings: &[Finding]) -> String {
    let line = |f: &Finding| match f.line {
        0 => format!("  {}: {}\n", f.path, f.what),
        line => format!("  {}:{line}: {}\n", f.path, f.what),
    };
    findings.iter().map(line).collect()
}
