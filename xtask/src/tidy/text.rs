//! Rules about any text: no place of one machine, no registry's host, nothing left to do, no link
//! to nowhere.

use super::Finding;
use super::source::Workspace;

/// Beginnings of paths that exist on somebody's machine only. Written apart, or this file would
/// break its own rule.
const PLACES: [&str; 5] = [
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/op", "t/"),
];

/// Hosts of package registries.
const HOSTS: [&str; 7] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("pythonhosted", ".org"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("debian", ".org"),
    concat!("hf", ".co"),
];

/// Marks of work that was put off.
const MARKS: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

/// No path of one machine.
pub fn absolute_paths(workspace: &Workspace) -> Vec<Finding> {
    // Part of a longer path (`src/home/`) or of an address is no absolute path.
    let alone =
        |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "._-/}".contains(c));
    search(workspace, &PLACES, alone, |place| format!("a path of one machine: {place}…"))
}

/// No registry by its host: the clients know them.
pub fn registry_hosts(workspace: &Workspace) -> Vec<Finding> {
    search(workspace, &HOSTS, |_| true, |host| format!("a registry's host: {host}"))
}

/// What is committed is finished.
pub fn left_to_do(workspace: &Workspace) -> Vec<Finding> {
    let whole = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    search(workspace, &MARKS, whole, |mark| format!("left to do: {mark}"))
}

/// What a page links to, and the page under `docs/` that any other file names, is there.
pub fn links(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &workspace.files {
        for (index, line) in file.text.lines().enumerate() {
            let named: Vec<String> = match file.path.ends_with(".md") {
                true => linked(line).map(|to| beside(&file.path, to)).collect(),
                false => documents(line).collect(),
            };
            let gone = named.iter().filter(|to| !workspace.has(to));
            findings.extend(
                gone.map(|to| Finding::new(&file.path, index + 1, format!("there is no {to}"))),
            );
        }
    }
    findings
}

/// Files that a line of Markdown links to: `[text](FILE)`, without `#part` and without the web.
fn linked(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let files = targets.map(|(target, _)| target.split('#').next().unwrap_or_default());
    files.filter(|to| !to.is_empty() && !to.contains("://"))
}

/// Documents that a line calls by their path from the root.
fn documents(line: &str) -> impl Iterator<Item = String> + '_ {
    line.match_indices("docs/").filter_map(|(at, _)| {
        let whole = !line[..at].ends_with(|c: char| c.is_alphanumeric() || "/-".contains(c));
        let name: String = line[at..]
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || "/-_.".contains(*c))
            .collect();
        let end = name.rfind(".md").filter(|_| whole)?;
        Some(name[..end + 3].to_owned())
    })
}

/// `to`, seen from the folder of `page`, as a path from the root.
fn beside(page: &str, to: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Lines with one of `needles`, where `fits` says yes to what stands before it.
fn search(
    workspace: &Workspace,
    needles: &[&str],
    fits: impl Fn(&str) -> bool,
    what: impl Fn(&str) -> String,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &workspace.files {
        for (index, line) in file.text.lines().enumerate() {
            let found = |needle: &&&str| {
                line.match_indices(**needle).any(|(at, word)| {
                    let after = &line[at + word.len()..];
                    let ends = !word.ends_with(char::is_alphanumeric)
                        || !after.starts_with(char::is_alphanumeric);
                    ends && fits(&line[..at])
                })
            };
            if let Some(needle) = needles.iter().find(found) {
                findings.push(Finding::new(&file.path, index + 1, what(needle)));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::source::made_up;
    use super::*;

    fn check(rule: fn(&Workspace) -> Vec<Finding>, line: &str, findings: usize) {
        let found = rule(&made_up(&[(concat!("docs", "/a.md"), line)]));
        assert_eq!(found.len(), findings, "{line}: {found:?}");
    }

    #[test]
    fn links_to_nowhere_are_found() {
        let (page, source) = (concat!("docs", "/a.md"), "src/d.rs");
        let check = |path: &str, line: &str, findings: usize| {
            let other = (concat!("docs", "/b.md"), "# B\n");
            let found = links(&made_up(&[(path, line), ("src/c.rs", ""), other]));
            assert_eq!(found.len(), findings, "{line}: {found:?}");
        };
        check(page, "[b](b.md), [part](./b.md#part), [c](../src/c.rs), [folder](../src)", 0);
        check(page, "[web](https://example.com/x.md), [here](#part)", 0);
        check(page, concat!("[b](docs", "/b.md), [none](none.md)"), 2);
        check(source, concat!("see docs", "/b.md, other-docs/x.md, a/docs/x.md"), 0);
        check(source, concat!("see docs", "/none.md."), 1);
    }

    #[test]
    fn places_hosts_and_marks_are_found() {
        check(absolute_paths, concat!("cd /ho", "me/me"), 1);
        check(absolute_paths, concat!("see (/wo", "rk/a)"), 1);
        check(absolute_paths, concat!("src/ho", "me/a.rs, http://localhost/wo", "rk/"), 0);
        check(registry_hosts, concat!("from https://pypi", ".org/simple"), 1);
        check(registry_hosts, "from the registry", 0);
        check(left_to_do, concat!("// TO", "DO: this"), 1);
        check(left_to_do, concat!("TO", "DOS, a METHO", "DTO", "DO"), 0);
    }
}
