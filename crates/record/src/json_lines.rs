//! A run as JSON Lines: one record a line, the manifest first.
//!
//! Both directions stream: a [`Writer`] fills a byte buffer that the caller drains whenever it
//! likes, a [`Reader`] is pushed bytes in pieces of any size. A run that was cut off (a full disk,
//! a killed process) is read up to the cut, and the cut is reported.

use crate::{Manifest, Record};
use serde::Deserialize;

/// Why a line is not a record. The message names the line (counted from 1) and the field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A line is no JSON, or a field is missing or of the wrong type.
    #[error("line {line}: {kind}{field}: {why}")]
    Line {
        /// The line, counted from 1.
        line: u64,
        /// The kind of record that was being read, or "record".
        kind: String,
        /// `, field `x`` or nothing.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// The run does not begin with a manifest.
    #[error("line {line}: a run begins with its manifest; this is a {found}")]
    NoManifest {
        /// The line, counted from 1.
        line: u64,
        /// What stands there.
        found: String,
    },
    /// There is more than one manifest.
    #[error("line {line}: a second manifest; a run has one, on its first line")]
    SecondManifest {
        /// The line, counted from 1.
        line: u64,
    },
    /// There is nothing at all.
    #[error("the run is empty; expected a manifest on line 1")]
    Empty,
}

/// Turns records into lines.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A writer whose first line is `manifest`.
    pub fn new(manifest: &Manifest) -> Self {
        let mut writer = Writer::default();
        writer.write(&Record::Manifest(manifest.clone()));
        writer
    }

    /// Appends one record as a line.
    pub fn write(&mut self, record: &Record) {
        // Plain structs with text keys: serialising them to memory can't fail.
        serde_json::to_writer(&mut self.bytes, record).expect("a record is plain data");
        self.bytes.push(b'\n');
    }

    /// The bytes since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// Where a run breaks off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// The line, counted from 1, that has no end.
    pub line: u64,
    /// Bytes of it that are there.
    pub bytes: usize,
}

/// Turns bytes into records.
///
/// Contract: [`Reader::push`] bytes, drain [`Reader::next_record`] until it returns `None`, repeat;
/// at the end of the input call [`Reader::finish`]. After an error the reader goes on with the next
/// line.
#[derive(Debug, Default)]
pub struct Reader {
    pending: Vec<u8>,
    start: usize,
    line: u64,
    manifest_seen: bool,
    unknown: u64,
}

impl Reader {
    /// A reader before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives it more bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.pending.drain(..self.start);
        self.start = 0;
        self.pending.extend_from_slice(bytes);
    }

    /// The next whole record; `None` when more bytes are needed.
    ///
    /// Empty lines and records of unknown kinds are passed over.
    ///
    /// # Errors
    /// See [`Error`]; each is about one line.
    pub fn next_record(&mut self) -> Option<Result<Record, Error>> {
        loop {
            let end = self.pending[self.start..].iter().position(|b| *b == b'\n')?;
            let line = self.start..self.start + end;
            self.start = line.end + 1;
            self.line += 1;
            let text = self.pending[line].trim_ascii();
            if text.is_empty() {
                continue;
            }
            let parsed = parse(self.line, text);
            match self.in_order(parsed) {
                Ok(Some(record)) => return Some(Ok(record)),
                Ok(None) => self.unknown += 1,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Records of kinds that this version does not know, so far.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }

    /// Ends the input: a last line without its line break is read if it is whole, else reported.
    ///
    /// # Errors
    /// As for [`Reader::next_record`], for a whole last line; [`Error::Empty`] without a manifest.
    pub fn finish(mut self) -> Result<(Option<Record>, Option<Truncated>), Error> {
        let rest = self.pending[self.start..].trim_ascii().to_vec();
        self.line += 1;
        let line = self.line;
        if rest.is_empty() {
            return if self.manifest_seen { Ok((None, None)) } else { Err(Error::Empty) };
        }
        if serde_json::from_slice::<serde::de::IgnoredAny>(&rest).is_err() {
            return match self.manifest_seen {
                true => Ok((None, Some(Truncated { line, bytes: rest.len() }))),
                // Without a manifest nothing was read: more likely no run than a cut one.
                false => Err(parse(line, &rest).err().unwrap_or(Error::Empty)),
            };
        }
        let parsed = parse(line, &rest);
        self.in_order(parsed).map(|record| (record, None))
    }

    fn in_order(
        &mut self,
        parsed: Result<Result<Record, String>, Error>,
    ) -> Result<Option<Record>, Error> {
        let line = self.line;
        match parsed? {
            Ok(Record::Manifest(_)) if self.manifest_seen => Err(Error::SecondManifest { line }),
            Ok(Record::Manifest(manifest)) => {
                self.manifest_seen = true;
                Ok(Some(Record::Manifest(manifest)))
            }
            Ok(record) if self.manifest_seen => Ok(Some(record)),
            Err(_) if self.manifest_seen => Ok(None),
            Ok(record) => Err(Error::NoManifest { line, found: kind_of(&record).to_owned() }),
            Err(kind) => Err(Error::NoManifest { line, found: format!("`{kind}`") }),
        }
    }
}

fn kind_of(record: &Record) -> &'static str {
    match record {
        Record::Manifest(_) => "manifest",
        Record::Dispatch(_) => "dispatch",
        Record::Telemetry(_) => "telemetry",
        Record::Request(_) => "request",
        Record::Mark(_) => "mark",
    }
}

/// One line as a record, or as the name of a kind that is not known.
fn parse(line: u64, text: &[u8]) -> Result<Result<Record, String>, Error> {
    // By hand rather than by serde's tagged enums: those lose the path to the field at fault.
    #[derive(Deserialize)]
    struct Tag {
        kind: String,
    }
    let kind = typed::<Tag>(line, "record", text)?.kind;
    Ok(Ok(match kind.as_str() {
        "manifest" => Record::Manifest(typed(line, &kind, text)?),
        "dispatch" => Record::Dispatch(typed(line, &kind, text)?),
        "telemetry" => Record::Telemetry(typed(line, &kind, text)?),
        "request" => Record::Request(typed(line, &kind, text)?),
        "mark" => Record::Mark(typed(line, &kind, text)?),
        _ => return Ok(Err(kind)),
    }))
}

/// A line as a `T`; `kind` is what it is called in an error.
pub(crate) fn typed<'de, T: Deserialize<'de>>(
    line: u64,
    kind: &str,
    text: &'de [u8],
) -> Result<T, Error> {
    let fault = |path: String, why: serde_json::Error| Error::Line {
        line,
        kind: kind.to_owned(),
        field: match path.as_str() {
            "" | "." | "?" => String::new(),
            path => format!(", field `{path}`"),
        },
        why: with_column(&why),
    };
    let mut json = serde_json::Deserializer::from_slice(text);
    let read = serde_path_to_error::deserialize(&mut json);
    let value = read.map_err(|error| fault(error.path().to_string(), error.into_inner()))?;
    json.end().map_err(|why| fault(String::new(), why))?;
    Ok(value)
}

/// The message of a JSON error, whose own "line 1" would contradict the line of the run.
fn with_column(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((why, _)) => format!("{why} (column {})", error.column()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::full;
    use crate::{Dispatch, Mark, Request, Run, SCHEMA, Scenario, SelfTest, Telemetry};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn manifest() -> Manifest {
        Manifest {
            schema: SCHEMA,
            everwarm: "0.1.0".to_owned(),
            device_id: "sim:m2".to_owned(),
            device_name: "Apple M2".to_owned(),
            device_facts: BTreeMap::new(),
            simulated: true,
            seed: 7,
            scenario: Some(Scenario::new("ramp", "kernel = 1\n")),
            started_unix_ns: None,
            command: None,
            self_test: Some(SelfTest { timer_step_ns: Some(20), ..SelfTest::default() }),
        }
    }

    fn run() -> Run {
        let mut run = Run::new(manifest());
        for number in 0..3 {
            let gpu_start_ns = 100 + number * 10;
            let gap_ns = (number > 0).then_some(4);
            run.dispatches.push(Dispatch { number, gpu_start_ns, gap_ns, ..Dispatch::default() });
        }
        let residency_ns = Some(vec![1, 2]);
        run.telemetry.push(Telemetry { at_ns: 3, residency_ns, ..Telemetry::default() });
        run.requests.push(Request {
            sent_ns: 9,
            labels: vec!["late".into()],
            ..Request::default()
        });
        run.marks.push(Mark { at_ns: 1, name: "start".to_owned(), ..Mark::default() });
        run
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = run().to_json_lines();
        assert_eq!(Run::from_json_lines(&bytes).unwrap(), run());
        assert_eq!(Run::from_json_lines(&full().to_json_lines()).unwrap(), full());
        assert_eq!(bytes, run().to_json_lines());
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with(r#"{"kind":"manifest","schema":1,"everwarm":"0.1.0""#), "{text}");
        assert!(text.contains(r#""gap_ns":null"#), "unknown is null: {text}");
        assert!(manifest().scenario.unwrap().is_intact());
    }

    #[test]
    fn errors_name_line_and_field() {
        let check = |line: &str, expected: &str| {
            let mut bytes = Writer::new(&manifest()).take();
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
            assert_eq!(Run::from_json_lines(&bytes).unwrap_err().to_string(), expected);
        };
        check(
            r#"{"kind":"mark","at_ns":-1,"actor":"a","name":"n"}"#,
            "line 2: mark, field `at_ns`: invalid value: integer `-1`, expected u64 (column 25)",
        );
        check(
            r#"{"kind":"telemetry","at_ns":1,"residency_ns":[1,"x"]}"#,
            "line 2: telemetry, field `residency_ns[1]`: invalid type: string \"x\", expected u64 \
             (column 51)",
        );
        check(
            r#"{"kind":"mark","at_ns":1,"actor":"a"}"#,
            "line 2: mark: missing field `name` (column 37)",
        );
        check("{oops}", "line 2: record: key must be a string (column 2)");
        check(
            r#"{"kind":"mark","at_ns":1,"actor":"a","name":"n"} x"#,
            "line 2: record: trailing characters (column 50)",
        );
        let again = String::from_utf8(Writer::new(&manifest()).take()).unwrap();
        check(again.trim(), "line 2: a second manifest; a run has one, on its first line");
    }

    #[test]
    fn a_run_begins_with_its_manifest() {
        let check = |bytes: &[u8], expected: &str| {
            assert_eq!(Run::from_json_lines(bytes).unwrap_err().to_string(), expected);
        };
        check(b"", "the run is empty; expected a manifest on line 1");
        check(b"\n\n", "the run is empty; expected a manifest on line 1");
        check(
            b"{\"kind\":\"mark\",\"at_ns\":1,\"actor\":\"a\",\"name\":\"n\"}\n",
            "line 1: a run begins with its manifest; this is a mark",
        );
        check(b"hello", "line 1: record: expected value (column 1)");
    }

    #[test]
    fn newer_versions_are_read_as_far_as_known() {
        let text = String::from_utf8(run().to_json_lines()).unwrap();
        let newer = text
            .replace(r#""schema":1"#, r#""schema":9,"moon":"full""#)
            .replace(r#""actor":"""#, r#""colour":[1,{}],"actor":"""#)
            + "{\"kind\":\"weather\",\"wind\":3}\n";
        let read = Run::from_json_lines(newer.as_bytes()).unwrap();
        assert!(read.is_newer());
        assert_eq!((read.dispatches, read.unknown), (run().dispatches, 1));
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_records(size in 1usize..200) {
            let bytes = run().to_json_lines();
            let mut reader = Reader::new();
            let mut read = Run::new(manifest());
            for piece in bytes.chunks(size) {
                reader.push(piece);
                while let Some(record) = reader.next_record() {
                    read.push(record.unwrap());
                }
            }
            prop_assert_eq!(reader.finish().unwrap(), (None, None));
            prop_assert_eq!(read, run());
        }

        #[test]
        fn a_cut_run_is_read_up_to_the_cut(cut in 0.0..1.0f64) {
            let bytes = run().to_json_lines();
            let first = bytes.iter().position(|b| *b == b'\n').unwrap() + 1;
            let cut = first + ((bytes.len() - first) as f64 * cut) as usize;
            let read = Run::from_json_lines(&bytes[..cut]).unwrap();
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count() - 1;
            let count = read.dispatches.len() + read.telemetry.len() + read.requests.len() + read.marks.len();
            // A last line that lacks nothing but its line break counts as whole.
            prop_assert!(count == whole || (count == whole + 1 && read.truncated.is_none()));
            let ragged = bytes[..cut].last() != Some(&b'\n');
            prop_assert_eq!(read.truncated.is_some(), ragged && count == whole);
        }
    }
}
