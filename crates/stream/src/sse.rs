//! Events of a `text/event-stream`, as the HTML standard parses them.
//!
//! Bytes come in any pieces, split inside a character, a line end or a byte order mark. An event
//! is given out at the blank line that ends it; one that the stream leaves unended is dropped, as
//! the standard says. It knows nothing of what the events mean.

use crate::lines::{Line, Lines};

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// One event: its `event:` field (empty if there was none) and its `data:` lines, joined by LF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// The event's name.
    pub name: &'a [u8],
    /// Its data.
    pub data: &'a [u8],
}

/// Parses an event stream.
#[derive(Clone, Debug)]
pub struct Sse {
    lines: Lines,
    fields: Fields,
}

#[derive(Clone, Debug)]
struct Fields {
    first_line: bool,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    limit: usize,
    given_up: bool,
}

impl Sse {
    /// A parser that gives up events of more than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Sse {
            lines: Lines::of_events(limit),
            fields: Fields {
                first_line: true,
                name: Vec::new(),
                data: Vec::new(),
                has_data: false,
                limit,
                given_up: false,
            },
        }
    }

    /// Takes `bytes` and calls `each` for every event they complete.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Event<'_>)) {
        let fields = &mut self.fields;
        self.lines.push(bytes, |line| fields.line(line, &mut each));
    }
}

impl Fields {
    fn line(&mut self, line: Line<'_>, each: &mut impl FnMut(Event<'_>)) {
        let Line::Whole(mut line) = line else {
            self.first_line = false;
            self.given_up = true;
            return;
        };
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(BOM).unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(each);
        }
        let (field, value) = match line.iter().position(|b| *b == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => self.data(value),
            b"event" => value.clone_into(&mut self.name),
            // A comment (no name before the colon), `id`, `retry`, or something unknown.
            _ => {}
        }
    }

    fn data(&mut self, value: &[u8]) {
        if self.data.len() + value.len() + 1 > self.limit {
            self.given_up = true;
        }
        if self.given_up {
            self.data = Vec::new();
            return;
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }

    fn dispatch(&mut self, each: &mut impl FnMut(Event<'_>)) {
        if !std::mem::take(&mut self.given_up) && self.has_data {
            each(Event { name: &self.name, data: &self.data });
        }
        self.has_data = false;
        self.data.clear();
        self.name.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(bytes: &[u8], step: usize, limit: usize) -> Vec<(String, String)> {
        let mut sse = Sse::new(limit);
        let mut all = Vec::new();
        for piece in bytes.chunks(step) {
            sse.push(piece, |e| {
                let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
                all.push((text(e.name), text(e.data)));
            });
        }
        all
    }

    fn check(bytes: &[u8], expected: &[(&str, &str)]) {
        for step in 1..=bytes.len() {
            let got = events(bytes, step, 64);
            let got: Vec<_> = got.iter().map(|(n, d)| (n.as_str(), d.as_str())).collect();
            assert_eq!(got, expected, "in pieces of {step}: {:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn the_standard_holds_in_any_pieces() {
        check(b"data: a\n\ndata: b\n\n", &[("", "a"), ("", "b")]);
        check(b"data: a\r\n\r\ndata:b\r\n\r\n", &[("", "a"), ("", "b")]);
        check(b"data: a\r\rdata:  b\r\r", &[("", "a"), ("", " b")]);
        check(b"\xEF\xBB\xBFdata: a\n\n", &[("", "a")]);
        check(b":\n\n: ping\n\nevent: x\nid: 7\ndata: a\ndata\ndata: b\n\n", &[("x", "a\n\nb")]);
        check(b"event: x\n\ndata: a\n\n", &[("", "a")]);
        check(b"data: a\n\ndata: unended", &[("", "a")]);
        check(b"data:\n\n", &[("", "")]);
        check("data: 水\u{1F600}\n\n".as_bytes(), &[("", "水\u{1F600}")]);
        check(b"data: \xff\n\n", &[("", "\u{fffd}")]);
    }

    #[test]
    fn a_large_event_is_given_up_and_the_next_one_is_not() {
        let line = [b"data: ".as_slice(), &[b'x'; 100], b"\n\ndata: b\n\n"].concat();
        check(&line, &[("", "b")]);
        let lines = b"data: 12345678901234567890\n".repeat(9);
        check(&[lines.as_slice(), b"\ndata: b\n\n"].concat(), &[("", "b")]);
    }
}
