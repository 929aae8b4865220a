//! What traffic a server had: one line a request, as the proxy logs it and replay reads it.
//!
//! Not a run: there is no manifest, because a log is appended to for weeks, by one process after
//! another, and is cut and rotated by others. Lines stand in the order in which requests ended.
//!
//! Contract: `null`, or a field left out, is unknown and never 0; names carry their unit; what a
//! reader does not know it passes over. A line holds no word of a prompt, an answer or a user.

use crate::json_lines::{Error, Truncated, typed};
use serde::{Deserialize, Serialize};

/// One request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When its head was there. Unit: s, since any instant that all lines share (the proxy's log:
    /// the Unix epoch).
    pub at_s: f64,
    /// Whose it was, as a word that says nothing else; equal ones belong together.
    #[serde(default)]
    pub session: Option<String>,
    /// Tokens of the prompt, as the server counted them.
    #[serde(default)]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, as the server counted them.
    #[serde(default)]
    pub generated_tokens: Option<u64>,
    /// When the first content was there, after [`Entry::at_s`].
    #[serde(default)]
    pub ttft_s: Option<f64>,
    /// When the answer had ended, properly or not, after [`Entry::at_s`].
    #[serde(default)]
    pub end_s: Option<f64>,
    /// What the answer left its client to do.
    #[serde(default)]
    pub ending: Ending,
    /// What the warmer was doing when the head came: `holding`, `resting`, `unavailable`, `off`.
    #[serde(default)]
    pub warm: Option<String>,
}

/// What an answer leaves its client to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It read the answer to its end: somebody reads and may ask again.
    Turn,
    /// The answer calls tools: the client runs them and comes back with what they said.
    ToolCalls,
    /// Can't be told.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Entry {
    /// The line, with its end.
    pub fn to_line(&self) -> Vec<u8> {
        // A plain struct: serialising it to memory can't fail.
        let mut line = serde_json::to_vec(self).expect("an entry is plain data");
        line.push(b'\n');
        line
    }
}

/// All requests of a log, in the order of its lines, and where it breaks off if it does.
///
/// # Errors
/// The first line that is not an [`Entry`]. A last line without its end that is no JSON is not an
/// error but [`Truncated`]: it is being written, or its writer was killed.
pub fn read(bytes: &[u8]) -> Result<(Vec<Entry>, Option<Truncated>), Error> {
    let mut entries = Vec::new();
    for (number, text) in (1..).zip(bytes.split_inclusive(|b| *b == b'\n')) {
        let whole = text.ends_with(b"\n");
        let text = text.trim_ascii();
        if text.is_empty() {
            continue;
        }
        if !whole && serde_json::from_slice::<serde::de::IgnoredAny>(text).is_err() {
            return Ok((entries, Some(Truncated { line: number, bytes: text.len() })));
        }
        entries.push(typed(number, "request", text)?);
    }
    Ok((entries, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            at_s: 1.5,
            session: Some("c0ffee".to_owned()),
            prompt_tokens: Some(7),
            generated_tokens: None,
            ttft_s: Some(0.25),
            end_s: Some(2.0),
            ending: Ending::ToolCalls,
            warm: Some("resting".to_owned()),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let least = Entry { at_s: 3.0, ..Entry::default() };
        let bytes = [entry().to_line(), b"\n".to_vec(), least.to_line()].concat();
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains(r#""generated_tokens":null"#), "unknown is null: {text}");
        assert!(text.contains(r#""ending":"tool_calls""#), "{text}");
        assert_eq!(read(&bytes).unwrap(), (vec![entry(), least], None));
    }

    #[test]
    fn a_line_needs_its_time_alone_and_may_say_more_than_is_known() {
        let check = |line: &str, expected: Entry| {
            assert_eq!(read(line.as_bytes()).unwrap().0, [expected], "{line}");
        };
        check(r#"{"at_s":3}"#, Entry { at_s: 3.0, ..Entry::default() });
        check(r#"{"at_s":3,"moon":[1],"ending":"sung"}"#, Entry { at_s: 3.0, ..Entry::default() });
    }

    #[test]
    fn a_cut_at_the_end_is_told_and_any_other_fault_is_named() {
        let line = entry().to_line();
        for cut in 1..line.len() - 1 {
            let bytes = [&line[..], &line[..cut]].concat();
            let truncated = Some(Truncated { line: 2, bytes: cut });
            assert_eq!(read(&bytes).unwrap(), (vec![entry()], truncated), "cut at {cut}");
        }
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(read(bytes).unwrap_err().to_string(), expected);
        };
        check(
            b"{\"at_s\":1}\n{\"at_s\":\"x\"}\n",
            "line 2: request, field `at_s`: invalid type: string \"x\", expected f64 (column 11)",
        );
        check(b"{oops\n{\"at_s\":1}\n", "line 1: request: key must be a string (column 2)");
        check(b"{\"end_s\":1}", "line 1: request: missing field `at_s` (column 11)");
    }
}
