//! That `ARCHITECTURE.md` is true: it names each crate, and each invariant's test exists.

use std::collections::BTreeSet;

use super::source::{File, Workspace};
use super::{Finding, RULES};

const MAP: &str = "ARCHITECTURE.md";
const LONGEST: usize = 300;
const README: &str = "README.md";
const CI: &str = ".ci/run";
const DEMO: &str = "cargo run --release -- demo";
const TEST: &str = "cargo xtask test";
const MARK: &str = "**Invariant:**";

/// The map exists and names each crate by its folder or its name.
pub fn crates(workspace: &Workspace) -> Vec<Finding> {
    let Some(map) = workspace.file(MAP) else {
        return vec![Finding::new(MAP, 0, "expected a map of the code")];
    };
    let unnamed = workspace.packages.iter().filter(|package| {
        let short = package.folder.trim_start_matches("crates/");
        let names =
            [format!("`{}`", package.folder), format!("`{}`", package.name), format!("`{short}`")];
        !names.iter().any(|name| map.text.contains(name))
    });
    unnamed.map(|p| Finding::new(MAP, 0, format!("does not name `{}`", p.folder))).collect()
}

/// The map can be read in one sitting.
pub fn length(workspace: &Workspace) -> Vec<Finding> {
    let lines = workspace.file(MAP).map_or(0, |map| map.text.lines().count());
    let what = format!("{lines} lines, expected at most {LONGEST}");
    if lines > LONGEST { vec![Finding::new(MAP, lines, what)] } else { Vec::new() }
}

/// README tells both commands, and continuous integration runs the second and nothing else.
pub fn commands(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for command in [DEMO, TEST] {
        let told = |readme: &File| readme.text.lines().any(|line| line.trim() == command);
        if !workspace.file(README).is_some_and(told) {
            findings.push(Finding::new(README, 0, format!("expected a line `{command}`")));
        }
    }
    let script = workspace.file(CI).map(|file| file.text.as_str()).unwrap_or_default();
    let commands = script.lines().filter(|line| line.contains("cargo"));
    if commands.map(|line| line.trim_start_matches("exec ")).ne([TEST]) {
        findings.push(Finding::new(CI, 0, format!("expected `{TEST}` and no other cargo command")));
    }
    findings
}

/// Each paragraph with an invariant names, in backticks, at least one test, and no test that isn't:
/// a name with an underscore is a test's.
pub fn invariants(workspace: &Workspace) -> Vec<Finding> {
    let Some(map) = workspace.file(MAP) else { return Vec::new() };
    let tests = test_names(workspace);
    let mut findings = Vec::new();
    for (line, paragraph) in paragraphs(&map.text) {
        let quoted = paragraph.split('`').skip(1).step_by(2);
        let last = |name: &str| name.rsplit("::").next().unwrap_or(name).to_owned();
        let (known, others): (Vec<_>, Vec<_>) =
            quoted.map(last).partition(|name| tests.contains(name));
        if known.is_empty() {
            findings.push(Finding::new(MAP, line, "an invariant that names no existing test"));
        }
        let gone = others.iter().filter(|name| name.contains('_'));
        findings.extend(gone.map(|name| Finding::new(MAP, line, format!("no test `{name}`"))));
    }
    findings
}

/// Each invariant, from its mark to the next mark or an empty line, and the line it begins at.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut open): (Vec<(usize, String)>, bool) = (Vec::new(), false);
    for (index, line) in text.lines().enumerate() {
        if line.contains(MARK) {
            found.push((index + 1, String::new()));
            open = true;
        } else if line.trim().is_empty() {
            open = false;
        }
        if open && let Some((_, paragraph)) = found.last_mut() {
            paragraph.push_str(line);
            paragraph.push('\n');
        }
    }
    found
}

/// Names of all tests: functions under a test attribute or in a `proptest!`, the checks of a suite
/// (its macro makes tests of them), and the rules of tidy.
fn test_names(workspace: &Workspace) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = RULES.iter().map(|rule| rule.name.to_owned()).collect();
    for file in workspace.rust("") {
        let suite = file.path.contains("/tests/suite/");
        let mut marked = false;
        for line in file.text.lines().map(str::trim) {
            let check = line.strip_prefix("pub fn ").filter(|_| suite);
            marked |= check.is_some();
            let function = check.or(line.trim_start_matches("async ").strip_prefix("fn "));
            match function.and_then(|rest| rest.split(['(', '<']).next()) {
                Some(name) if marked => {
                    names.insert(name.to_owned());
                    marked = false;
                }
                Some(_) => {}
                None => marked |= line.starts_with("#[test]") || line.starts_with("#[tokio::test"),
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::source::made_up;
    use super::*;

    #[test]
    fn a_crate_off_the_map_is_found() {
        assert_eq!(crates(&made_up(&[])).len(), 1);
        let map = "`crates/sim`, `dvfs` and `everwarm-gpu`; the proxy\n";
        let found = crates(&made_up(&[(MAP, map)]));
        assert_eq!(found, [Finding::new(MAP, 0, "does not name `crates/proxy`")]);
    }

    #[test]
    fn a_readme_or_script_that_says_otherwise_is_found() {
        let check = |readme: &str, script: &str, findings: usize| {
            let found = commands(&made_up(&[(README, readme), (CI, script)]));
            assert_eq!(found.len(), findings, "{readme:?} {script:?}");
        };
        let readme = format!("{DEMO}\n    {TEST}\n");
        check(&readme, "cd x\nexec cargo xtask test\n", 0);
        check(&readme, "exec cargo xtask test tidy\n", 1);
        check(&readme, "cargo xtask test\ncargo bench\n", 1);
        check("Run cargo xtask test.\n", "cargo xtask test\n", 2);
    }

    #[test]
    fn an_invariant_without_its_test_is_found() {
        let source = ("crates/sim/src/a.rs", "    #[test]\n    fn time_is_kept() {\n");
        let check = |map: &str, lines: &[usize]| {
            let found = invariants(&made_up(&[source, (MAP, map)]));
            assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), lines, "{map}");
        };
        check("**Invariant:** time is kept\n(`sim::a::time_is_kept`).\n", &[]);
        check("**Invariant:** core has no I/O (`core_has_no_io`).\n", &[]);
        check("Text.\n\n**Invariant:** all is `well`.\n", &[3]);
        check("**Invariant:** time is kept (`time_is_kept`, `it_is_gone`).\n", &[1]);
        check("**Invariant:** a\n\n`time_is_kept`\n", &[1]);
    }
}
