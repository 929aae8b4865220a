//! A chip file as a tree that remembers where each of its values stands.
//!
//! Trees can be laid over each other and written out as one text; an error that the reader of that
//! text reports is led back to the file, line and column that a person wrote. Knows nothing of
//! chips.

use crate::Error;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Files by number.
pub(crate) type Sources = Vec<Source>;

/// One file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// As a person would name it; empty for a text that has no name.
    pub name: String,
    pub text: String,
}

impl Source {
    /// Line and column of a byte, both from 1.
    pub(crate) fn line_column(&self, offset: usize) -> (usize, usize) {
        let before = self.text.get(..offset.min(self.text.len())).unwrap_or("");
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }

    /// The error `message` about the byte at `offset`.
    pub(crate) fn error(&self, offset: usize, message: &str) -> Error {
        let (line, column) = self.line_column(offset);
        Error::Invalid(match self.name.as_str() {
            "" => format!("line {line}, column {column}: {message}"),
            name => format!("{name}:{line}:{column}: {message}"),
        })
    }

    /// The comment at the end of the line at `offset`, behind a value that ends there.
    pub(crate) fn comment(&self, end: usize) -> &str {
        let rest = self.text.get(end..).unwrap_or("").lines().next().unwrap_or("");
        // A value may be followed by others on its line, so the comment is the last part of it.
        let mut quoted = None;
        for (at, c) in rest.char_indices() {
            match (quoted, c) {
                (None, '#') => return rest[at + 1..].trim(),
                (None, '"' | '\'') => quoted = Some(c),
                (Some(open), _) if open == c => quoted = None,
                _ => {}
            }
        }
        ""
    }
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// Number of the file.
    pub source: usize,
    /// First byte.
    pub offset: usize,
    /// Behind the last byte.
    pub end: usize,
}

/// How a value that stands in no file came about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Made {
    /// The rule, in words.
    pub by: String,
    /// A scaled value; otherwise computed.
    pub scaled: bool,
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Table(Vec<(Key, Node)>, Place),
    List(Vec<Node>, Place),
    /// The text of a value as it stands in a file; or a made one, with the place it follows from.
    Leaf(String, Place, Option<Made>),
}

/// A key of a table.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub name: String,
    pub place: Place,
}

impl Node {
    /// The tree of file number `source`.
    ///
    /// # Errors
    /// If it is not TOML.
    pub(crate) fn parse(sources: &Sources, source: usize) -> Result<Node, Error> {
        let file = &sources[source];
        let root = DeTable::parse(&file.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let message = match (error.message().trim_end(), file.text.get(span.clone())) {
                ("duplicate key", Some(key)) => format!("duplicate key `{key}`"),
                (message, _) => message.to_owned(),
            };
            file.error(span.start, &message)
        })?;
        Ok(table(root.get_ref(), Place { source, offset: 0, end: 0 }, &file.text))
    }

    pub(crate) fn place(&self) -> Place {
        match self {
            Node::Table(_, place) | Node::List(_, place) | Node::Leaf(_, place, _) => *place,
        }
    }

    /// The value under `path`, keys and indices from here on; or, if there is none, `None`.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Node> {
        let Some((step, rest)) = path.split_first() else { return Some(self) };
        match self {
            Node::Table(entries, _) => {
                entries.iter().find(|(key, _)| key.name == *step)?.1.at(rest)
            }
            Node::List(all, _) => all.get(step.parse::<usize>().ok()?)?.at(rest),
            Node::Leaf(..) => None,
        }
    }

    pub(crate) fn at_mut(&mut self, path: &[&str]) -> Option<&mut Node> {
        let Some((step, rest)) = path.split_first() else { return Some(self) };
        match self {
            Node::Table(entries, _) => {
                entries.iter_mut().find(|(key, _)| key.name == *step)?.1.at_mut(rest)
            }
            Node::List(all, _) => all.get_mut(step.parse::<usize>().ok()?)?.at_mut(rest),
            Node::Leaf(..) => None,
        }
    }

    /// The place of the value at `path`, or of the deepest part of it that there is.
    pub(crate) fn deepest(&self, path: &[&str]) -> Place {
        let found = (0..=path.len()).rev().find_map(|n| self.at(&path[..n]));
        found.unwrap_or(self).place()
    }

    /// Takes an entry out of a table.
    pub(crate) fn take(&mut self, name: &str) -> Option<(Key, Node)> {
        let Node::Table(entries, _) = self else { return None };
        let index = entries.iter().position(|(key, _)| key.name == name)?;
        Some(entries.remove(index))
    }

    /// This tree with what `over` says instead: tables entry by entry, all else as a whole.
    pub(crate) fn overlaid(self, over: Node) -> Node {
        match (self, over) {
            (Node::Table(mut entries, _), Node::Table(over, place)) => {
                for (key, node) in over {
                    match entries.iter().position(|(known, _)| known.name == key.name) {
                        Some(index) => {
                            let (_, before) = entries.remove(index);
                            entries.insert(index, (key, before.overlaid(node)));
                        }
                        None => entries.push((key, node)),
                    }
                }
                Node::Table(entries, place)
            }
            (_, over) => over,
        }
    }

    /// The text of a leaf that is a string, without its quotes.
    pub(crate) fn as_text(&self) -> Option<String> {
        let Node::Leaf(raw, ..) = self else { return None };
        DeValue::parse(raw).ok()?.get_ref().as_str().map(str::to_owned)
    }
}

fn table(entries: &DeTable<'_>, place: Place, text: &str) -> Node {
    let at = |span: Range<usize>| Place { source: place.source, offset: span.start, end: span.end };
    let mut all: Vec<(Key, Node)> = entries
        .iter()
        .map(|(key, value)| {
            let name = key.get_ref().to_string();
            (Key { name, place: at(key.span()) }, node(value, place.source, text))
        })
        .collect();
    // The parser sorts keys by name, a person by sense.
    all.sort_by_key(|(key, _)| key.place.offset);
    Node::Table(all, place)
}

fn node(value: &Spanned<DeValue<'_>>, source: usize, text: &str) -> Node {
    let span = value.span();
    let place = Place { source, offset: span.start, end: span.end };
    match value.get_ref() {
        DeValue::Table(entries) => table(entries, place, text),
        DeValue::Array(all) => {
            Node::List(all.iter().map(|one| node(one, source, text)).collect(), place)
        }
        _ => Node::Leaf(text.get(span).unwrap_or("").to_owned(), place, None),
    }
}

/// A tree as one text, and which part of it came from where.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub text: String,
    segments: Vec<(Range<usize>, Place)>,
}

impl Written {
    /// Writes out a whole file.
    pub(crate) fn file(root: &Node) -> Written {
        let mut out = Written::default();
        out.part("\n", Place { end: 0, offset: 0, ..root.place() });
        let Node::Table(entries, _) = root else { return out };
        for (key, node) in entries.iter().filter(|(_, node)| !matches!(node, Node::Table(..))) {
            out.entry(key, node);
        }
        for (key, node) in entries {
            let Node::Table(inner, place) = node else { continue };
            out.part(&format!("[{}]", quoted(&key.name)), *place);
            out.text.push('\n');
            inner.iter().for_each(|(key, node)| out.entry(key, node));
        }
        out
    }

    /// Where in which file the byte at `offset` of the text was written.
    pub(crate) fn origin(&self, offset: usize) -> Option<Place> {
        let after = self.segments.partition_point(|(range, _)| range.start <= offset);
        let (range, place) = self.segments.get(after.checked_sub(1)?)?;
        let within = (offset - range.start).min(place.end.saturating_sub(place.offset));
        Some(Place { offset: place.offset + within, ..*place })
    }

    fn part(&mut self, text: &str, place: Place) {
        let start = self.text.len();
        self.text.push_str(text);
        self.segments.push((start..self.text.len(), place));
    }

    fn entry(&mut self, key: &Key, node: &Node) {
        self.part(&quoted(&key.name), key.place);
        self.text.push_str(" = ");
        self.value(node);
        self.text.push('\n');
    }

    fn value(&mut self, node: &Node) {
        match node {
            Node::Leaf(raw, place, None) => self.part(raw, *place),
            // A made value is as long as it is; all of it follows from one place.
            Node::Leaf(raw, place, Some(_)) => {
                self.part(raw, Place { end: place.offset, ..*place })
            }
            Node::List(all, place) => {
                self.part("[", *place);
                for one in all {
                    self.value(one);
                    self.text.push_str(", ");
                }
                self.text.push(']');
            }
            Node::Table(entries, place) => {
                self.part("{", Place { end: place.offset, ..*place });
                for (n, (key, node)) in entries.iter().enumerate() {
                    self.text.push_str(if n > 0 { ", " } else { " " });
                    self.part(&quoted(&key.name), key.place);
                    self.text.push_str(" = ");
                    self.value(node);
                }
                self.text.push_str(" }");
            }
        }
    }
}

/// A key as it may stand in a file.
fn quoted(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    match !name.is_empty() && name.chars().all(bare) {
        true => name.to_owned(),
        false => toml::Value::String(name.to_owned()).to_string(),
    }
}
