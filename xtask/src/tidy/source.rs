//! The workspace as text, and the rules about source files in general.
//!
//! Contract: [`Workspace`] holds every text file that could be committed, so that a rule needs no
//! file system and its test can make one up.

use std::fs;
use std::path::Path;

use anyhow::Context;

use super::Finding;
use super::layers::{self, Layer};
use crate::shell;

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    /// From the workspace's root, with `/`.
    pub path: String,
    /// All of it.
    pub text: String,
}

/// A package of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name in Cargo.toml.
    pub name: String,
    /// Its folder, from the workspace's root.
    pub folder: String,
    /// Its dependencies for building and running: what tests alone need is not among them.
    pub dependencies: Vec<String>,
}

/// What rules look at.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// Every text file.
    pub files: Vec<File>,
    /// Every package.
    pub packages: Vec<Package>,
}

/// Most lines of a source file.
const LONGEST: usize = 600;

/// Folders that hold nothing of ours; those that begin with a dot are passed over, but the listed.
const FOREIGN: [&str; 4] = ["target", "runs", "node_modules", "corpus"];
const DOTTED: [&str; 4] = [".cargo", ".ci", ".config", ".github"];

impl Workspace {
    /// Reads the workspace that this program was built in.
    ///
    /// # Errors
    /// When a file can't be read or cargo doesn't describe the packages.
    pub fn read() -> anyhow::Result<Self> {
        let mut workspace = Self::default();
        workspace.read_folder(&shell::root())?;
        workspace.files.sort_by(|a, b| a.path.cmp(&b.path));
        workspace.packages = packages()?;
        Ok(workspace)
    }

    fn read_folder(&mut self, folder: &Path) -> anyhow::Result<()> {
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type()?;
            let dotted = name.starts_with('.') && !DOTTED.contains(&name.as_str());
            if kind.is_dir() && !dotted && !FOREIGN.contains(&name.as_str()) {
                self.read_folder(&path)?;
            } else if kind.is_file() && !dotted && !name.ends_with(".lock") {
                // What is no UTF-8 is no text.
                let Ok(text) = fs::read_to_string(&path) else { continue };
                self.files.push(File { path: shell::relative(&path), text });
            }
        }
        Ok(())
    }

    /// The file of that path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// True if there is such a file, or a folder with files.
    pub fn has(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&below))
    }

    /// Rust files below a folder.
    pub fn rust<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a File> {
        let prefix = format!("{folder}/");
        self.files.iter().filter(move |f| {
            f.path.ends_with(".rs") && (folder.is_empty() || f.path.starts_with(&prefix))
        })
    }

    /// Packages of one layer.
    pub fn layer(&self, layer: Layer) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(move |p| layers::layer(&p.name) == Some(layer))
    }
}

/// The workspace's packages as cargo sees them.
fn packages() -> anyhow::Result<Vec<Package>> {
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let text = shell::output(shell::cargo().args(arguments))?;
    let metadata: serde_json::Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().context("cargo names no packages")?;
    packages.iter().map(package).collect()
}

fn package(described: &serde_json::Value) -> anyhow::Result<Package> {
    let manifest = described["manifest_path"].as_str().context("a package without manifest")?;
    let folder = Path::new(manifest).parent().context("a manifest without folder")?;
    let dependencies = described["dependencies"].as_array().into_iter().flatten();
    Ok(Package {
        name: described["name"].as_str().context("a package without name")?.to_owned(),
        folder: shell::relative(folder),
        dependencies: dependencies
            .filter(|dependency| dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect(),
    })
}

/// Lines of code with their numbers, comments cut off.
pub fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, without_comment(line)))
}

/// As [`code`], up to the unit tests at the file's end.
pub fn production(text: &str) -> impl Iterator<Item = (usize, &str)> {
    code(text).take_while(|(_, line)| line.trim() != "#[cfg(test)]")
}

/// A line up to its `//`, but not one inside an address such as `http://`.
fn without_comment(line: &str) -> &str {
    let mut from = 0;
    while let Some(at) = line[from..].find("//").map(|at| at + from) {
        if at == 0 || line.as_bytes()[at - 1] != b':' {
            return &line[..at];
        }
        from = at + 2;
    }
    line
}

/// Each Rust file opens with what it is.
pub fn file_heads(workspace: &Workspace) -> Vec<Finding> {
    let headless = |file: &&File| !file.text.starts_with("//! ");
    let expected = "expected `//!` first: what it is, what it does not know, its contract";
    workspace.rust("").filter(headless).map(|f| Finding::new(&f.path, 1, expected)).collect()
}

/// No source file is too long to read.
pub fn lengths(workspace: &Workspace) -> Vec<Finding> {
    let sources =
        workspace.files.iter().filter(|f| f.path.ends_with(".rs") || f.path.ends_with(".py"));
    let lengths = sources.map(|f| (f, f.text.lines().count()));
    lengths
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(f, lines)| {
            Finding::new(&f.path, lines, format!("{lines} lines, expected at most {LONGEST}"))
        })
        .collect()
}

/// `unsafe` stands outside of core only, under a comment that says why it is sound.
pub fn unsafe_is_explained(workspace: &Workspace) -> Vec<Finding> {
    let keyword = concat!("uns", "afe ");
    let mut findings = Vec::new();
    for file in workspace.rust("") {
        let lines: Vec<&str> = file.text.lines().collect();
        for (number, line) in code(&file.text).filter(|(_, line)| starts_word(line, keyword)) {
            let above = &lines[number.saturating_sub(8)..number];
            if !above.iter().any(|l| l.contains("SAFETY:") || l.contains("# Safety")) {
                let what = format!("`{}` without a SAFETY comment above", line.trim());
                findings.push(Finding::new(&file.path, number, what));
            }
        }
    }
    findings
}

/// Whether the keyword stands in code, not inside a word or a string.
fn starts_word(line: &str, keyword: &str) -> bool {
    line.match_indices(keyword).any(|(at, _)| {
        let before = &line[..at];
        let whole = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        whole && before.matches('"').count().is_multiple_of(2)
    })
}

/// Only the tests against real servers are ignored by default, and each says why.
pub fn ignored_tests(workspace: &Workspace) -> Vec<Finding> {
    let attribute = concat!("#[ign", "ore");
    let mut findings = Vec::new();
    for file in workspace.rust("") {
        for (number, line) in code(&file.text).filter(|(_, line)| line.contains(attribute)) {
            if !file.path.starts_with("crates/real-servers/") {
                let what = "an ignored test that `cargo xtask test` never runs";
                findings.push(Finding::new(&file.path, number, what));
            } else if !line.contains('=') {
                findings.push(Finding::new(&file.path, number, "an ignored test without a reason"));
            }
        }
    }
    findings
}

/// A made-up workspace of files, for the tests of rules.
#[cfg(test)]
pub fn made_up(files: &[(&str, &str)]) -> Workspace {
    let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
    let mut workspace = Workspace { files: files.iter().map(file).collect(), packages: Vec::new() };
    for name in ["sim", "dvfs", "gpu", "proxy"] {
        let (name, folder) = (format!("everwarm-{name}"), format!("crates/{name}"));
        workspace.packages.push(Package { name, folder, dependencies: Vec::new() });
    }
    workspace
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: fn(&Workspace) -> Vec<Finding>, path: &str, text: &str, lines: &[usize]) {
        let found: Vec<usize> = rule(&made_up(&[(path, text)])).iter().map(|f| f.line).collect();
        assert_eq!(found, lines, "{text}");
    }

    #[test]
    fn a_file_without_head_or_end_is_found() {
        check(file_heads, "crates/gpu/src/a.rs", "//! A.\n", &[]);
        check(file_heads, "crates/gpu/src/a.rs", "// A.\nfn a() {}\n", &[1]);
        check(lengths, "xtask/src/a.rs", &"\n".repeat(LONGEST), &[]);
        check(lengths, "xtask/src/a.rs", &"\n".repeat(LONGEST + 1), &[LONGEST + 1]);
    }

    #[test]
    fn unexplained_unsafe_is_found() {
        let path = "crates/gpu/src/a.rs";
        let block = concat!("uns", "afe { call() }");
        check(unsafe_is_explained, path, &format!("// SAFETY: sound.\n{block}\n"), &[]);
        check(unsafe_is_explained, path, &format!("// It works.\n{block}\n"), &[2]);
        check(unsafe_is_explained, path, &format!("// {block}\nlet s = \"an {block}\";\n"), &[]);
    }

    #[test]
    fn an_ignored_test_elsewhere_or_without_reason_is_found() {
        let ignored = concat!("#[ign", "ore = \"needs a server\"]\n");
        check(ignored_tests, "crates/gpu/src/a.rs", ignored, &[1]);
        check(ignored_tests, "crates/real-servers/tests/a.rs", ignored, &[]);
        check(ignored_tests, "crates/real-servers/tests/a.rs", concat!("#[ign", "ore]\n"), &[1]);
    }

    #[test]
    fn comments_and_unit_tests_are_no_production_code() {
        let text = "a // b\n// c\n\"http://d\" // e\n#[cfg(test)]\nf\n";
        let lines: Vec<_> = production(text).collect();
        assert_eq!(lines, [(1, "a "), (2, ""), (3, "\"http://d\" ")]);
    }
}
