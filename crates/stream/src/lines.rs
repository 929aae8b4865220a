//! Lines out of bytes that come in any pieces.
//!
//! A line ends with LF, CR LF or CR, as in an event stream. One that is longer than the limit is
//! given up: it comes out as [`Line::TooLong`] when it ends. Contract: [`Lines::push`] calls back
//! once for every line that the bytes complete; what is left waits for the next call.

/// A complete line, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Its bytes.
    Whole(&'a [u8]),
    /// It had more bytes than the limit.
    TooLong,
}

/// Splits bytes into lines.
#[derive(Clone, Debug)]
pub struct Lines {
    partial: Vec<u8>,
    limit: usize,
    too_long: bool,
    /// The last byte was a CR: a LF that follows belongs to it.
    after_cr: bool,
    /// A lone CR ends a line (in an event stream, not in NDJSON).
    cr_ends: bool,
}

impl Lines {
    /// Lines of an event stream, at most `limit` bytes each.
    pub fn of_events(limit: usize) -> Self {
        Lines { partial: Vec::new(), limit, too_long: false, after_cr: false, cr_ends: true }
    }

    /// Lines that end with LF alone, at most `limit` bytes each.
    pub fn of_json(limit: usize) -> Self {
        Lines { cr_ends: false, ..Lines::of_events(limit) }
    }

    /// Takes `bytes` and calls `each` for every line they complete.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let cr_ends = self.cr_ends;
            let end = bytes.iter().position(|b| *b == b'\n' || (cr_ends && *b == b'\r'));
            let Some(end) = end else {
                self.keep(bytes);
                return;
            };
            self.after_cr = bytes[end] == b'\r';
            self.complete(&bytes[..end], &mut each);
            bytes = &bytes[end + 1..];
        }
    }

    /// Gives out what is left as a line; for streams whose last line has no end.
    pub fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.partial.is_empty() || self.too_long {
            self.complete(&[], &mut each);
        }
    }

    fn complete(&mut self, tail: &[u8], each: &mut impl FnMut(Line<'_>)) {
        if self.partial.is_empty() && !self.too_long && tail.len() <= self.limit {
            return each(Line::Whole(tail));
        }
        self.keep(tail);
        if std::mem::take(&mut self.too_long) {
            each(Line::TooLong);
        } else {
            each(Line::Whole(&self.partial));
        }
        self.partial.clear();
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.too_long || self.partial.len() + bytes.len() > self.limit {
            self.too_long = true;
            self.partial = Vec::new();
        } else {
            self.partial.extend_from_slice(bytes);
        }
    }
}
