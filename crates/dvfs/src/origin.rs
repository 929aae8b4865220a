//! A chip with the origin of each of its values.
//!
//! A value's own file says in a comment behind it where it is from (documented, study, fitted,
//! guess, scaled); on top of that stands how it came to this chip: given by its own file, taken
//! over from another, scaled from another, or computed.

use crate::Chip;
use crate::tree::{Node, Place, Sources};
use std::fmt;

/// A chip, and where each value comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Traced {
    /// The chip.
    pub chip: Chip,
    /// Its values in the order of the files.
    pub values: Vec<Value>,
}

/// One value; of a list of tables, one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Keys and indices from the root, such as `controller.base_pstate` or `pstates.0`.
    pub path: Vec<String>,
    /// The value as it may stand in a chip file.
    pub text: String,
    /// Where it is from. Shape: one, or several for an entry whose parts differ.
    pub origins: Vec<Origin>,
}

/// Where a value is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// How it came to this chip.
    pub how: How,
    /// The file it stands in, or that made it change.
    pub file: String,
    /// Line in that file, from 1.
    pub line: usize,
    /// The file's comment on it, or the rule that made it.
    pub note: String,
}

/// How a value came to a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Its own file gives it.
    Given,
    /// The file of a chip that it is like gives it.
    Inherited,
    /// Scaled from a chip that it is like.
    Scaled,
    /// Computed from other values.
    Computed,
}

impl How {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            How::Given => "given",
            How::Inherited => "inherited",
            How::Scaled => "scaled",
            How::Computed => "computed",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.file.strip_suffix(" (built in)").unwrap_or(&self.file);
        match (self.how, self.note.as_str()) {
            (How::Given, "") => write!(f, "given without a source"),
            (How::Given, note) => write!(f, "{note}"),
            (How::Inherited, "") => write!(f, "inherited from {from}"),
            (How::Inherited, note) => write!(f, "inherited from {from}: {note}"),
            (How::Scaled, note) => write!(f, "scaled: {note}"),
            (How::Computed, note) => write!(f, "computed: {note}"),
        }
    }
}

impl Traced {
    pub(crate) fn new(chip: Chip, tree: &Node, sources: &Sources) -> Traced {
        let mut values = Vec::new();
        collect(tree, &mut Vec::new(), tree.place().source, sources, &mut values);
        Traced { chip, values }
    }

    /// The chip as one file that is like no other, each value with its origin.
    pub fn to_toml(&self) -> String {
        let mut out = format!("# {}: every value, with where it comes from.\n", self.chip.name);
        let (root, sections): (Vec<_>, Vec<_>) =
            self.values.iter().partition(|v| v.path.len() == 1 || is_index(&v.path[1]));
        let mut lines = Lines { out: &mut out, list: None };
        root.iter().for_each(|value| lines.add(&value.path, value));
        lines.close();
        let mut current = "";
        for value in sections {
            if value.path[0] != current {
                lines.close();
                current = &value.path[0];
                lines.out.push_str(&format!("\n[{current}]\n"));
            }
            lines.add(&value.path[1..], value);
        }
        lines.close();
        out
    }
}

/// Values as lines of a file, those of a list in brackets.
struct Lines<'a> {
    out: &'a mut String,
    list: Option<String>,
}

impl Lines<'_> {
    fn add(&mut self, path: &[String], value: &Value) {
        let origin = value.origin();
        match path {
            [key] => {
                self.close();
                self.out.push_str(&format!("{key} = {} # {origin}\n", value.text));
            }
            [list, _, ..] => {
                if self.list.as_ref() != Some(list) {
                    self.close();
                    self.out.push_str(&format!("{list} = [\n"));
                    self.list = Some(list.clone());
                }
                self.out.push_str(&format!("  {}, # {origin}\n", value.text));
            }
            [] => {}
        }
    }

    fn close(&mut self) {
        if self.list.take().is_some() {
            self.out.push_str("]\n");
        }
    }
}

impl Value {
    /// All its origins in words.
    pub fn origin(&self) -> String {
        let mut words: Vec<_> = self.origins.iter().map(Origin::to_string).collect();
        words.dedup();
        words.join("; ")
    }
}

fn is_index(step: &str) -> bool {
    step.parse::<usize>().is_ok()
}

/// The values of a tree: sections and lists are gone into, the entries of lists are not.
fn collect(
    node: &Node,
    path: &mut Vec<String>,
    own: usize,
    sources: &Sources,
    out: &mut Vec<Value>,
) {
    let is_entry = path.last().is_some_and(|step| is_index(step));
    let inner: Vec<(String, &Node)> = match node {
        Node::Table(entries, _) if !is_entry && path.len() < 2 => {
            entries.iter().map(|(key, node)| (key.name.clone(), node)).collect()
        }
        Node::List(all, _) if !all.is_empty() && path.len() < 3 && !is_entry => {
            all.iter().enumerate().map(|(n, node)| (n.to_string(), node)).collect()
        }
        leaf => {
            let mut origins = Vec::new();
            origins_of(leaf, own, sources, &mut origins);
            out.push(Value { path: path.clone(), text: shown(leaf), origins });
            return;
        }
    };
    for (step, node) in inner {
        path.push(step);
        collect(node, path, own, sources, out);
        path.pop();
    }
}

fn origins_of(node: &Node, own: usize, sources: &Sources, out: &mut Vec<Origin>) {
    match node {
        Node::Table(entries, _) => {
            entries.iter().for_each(|(_, node)| origins_of(node, own, sources, out));
        }
        Node::List(all, _) => all.iter().for_each(|node| origins_of(node, own, sources, out)),
        Node::Leaf(_, place, made) => {
            let source = &sources[place.source];
            let (how, note) = match made {
                Some(made) if made.scaled => (How::Scaled, made.by.clone()),
                Some(made) => (How::Computed, made.by.clone()),
                None => (given(*place, own), source.comment(place.end).to_owned()),
            };
            let (line, _) = source.line_column(place.offset);
            let origin = Origin { how, file: source.name.clone(), line, note };
            if !out.contains(&origin) {
                out.push(origin);
            }
        }
    }
}

fn given(place: Place, own: usize) -> How {
    if place.source == own { How::Given } else { How::Inherited }
}

/// A value on one line.
fn shown(node: &Node) -> String {
    match node {
        Node::Leaf(raw, ..) => raw.clone(),
        Node::List(all, _) => {
            format!("[{}]", all.iter().map(shown).collect::<Vec<_>>().join(", "))
        }
        Node::Table(entries, _) => {
            let entry =
                |(key, node): &(crate::tree::Key, Node)| format!("{} = {}", key.name, shown(node));
            format!("{{ {} }}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    }
}
