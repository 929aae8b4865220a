//! A whole run in memory, from JSON Lines and back.

use crate::json_lines::{Error, Reader, Truncated, Writer};
use crate::{Dispatch, Manifest, Mark, Record, Request, SCHEMA, Telemetry};

/// A run in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What it was.
    pub manifest: Manifest,
    /// Its command buffers.
    pub dispatches: Vec<Dispatch>,
    /// Its counter readings.
    pub telemetry: Vec<Telemetry>,
    /// Its requests.
    pub requests: Vec<Request>,
    /// Its points of interest.
    pub marks: Vec<Mark>,
    /// Where it breaks off, if it does.
    pub truncated: Option<Truncated>,
    /// Records of kinds that this version does not know.
    pub unknown: u64,
}

impl Run {
    /// A run without records.
    pub fn new(manifest: Manifest) -> Self {
        Run {
            manifest,
            dispatches: Vec::new(),
            telemetry: Vec::new(),
            requests: Vec::new(),
            marks: Vec::new(),
            truncated: None,
            unknown: 0,
        }
    }

    /// Reads a whole run.
    ///
    /// # Errors
    /// The first line that is not a record; see [`Error`].
    pub fn from_json_lines(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new();
        reader.push(bytes);
        let mut run: Option<Run> = None;
        let mut take = |record: Record| match (record, &mut run) {
            (Record::Manifest(manifest), run) => *run = Some(Run::new(manifest)),
            (record, Some(run)) => run.push(record),
            (_, None) => unreachable!("the reader lets no record pass before the manifest"),
        };
        while let Some(record) = reader.next_record() {
            take(record?);
        }
        let unknown = reader.unknown();
        let (last, truncated) = reader.finish()?;
        last.into_iter().for_each(&mut take);
        let mut run = run.ok_or(Error::Empty)?;
        (run.truncated, run.unknown) = (truncated, unknown);
        Ok(run)
    }

    /// Adds the records of a later piece of the same run.
    pub fn extend(&mut self, piece: Run) {
        self.dispatches.extend(piece.dispatches);
        self.telemetry.extend(piece.telemetry);
        self.requests.extend(piece.requests);
        self.marks.extend(piece.marks);
    }

    /// Adds a record; a manifest replaces the run's own.
    pub fn push(&mut self, record: Record) {
        match record {
            Record::Manifest(manifest) => self.manifest = manifest,
            Record::Dispatch(dispatch) => self.dispatches.push(dispatch),
            Record::Telemetry(telemetry) => self.telemetry.push(telemetry),
            Record::Request(request) => self.requests.push(request),
            Record::Mark(mark) => self.marks.push(mark),
        }
    }

    /// The whole run as JSON Lines, kind by kind.
    pub fn to_json_lines(&self) -> Vec<u8> {
        let mut writer = Writer::new(&self.manifest);
        let dispatches = self.dispatches.iter().cloned().map(Record::Dispatch);
        let telemetry = self.telemetry.iter().cloned().map(Record::Telemetry);
        let requests = self.requests.iter().cloned().map(Record::Request);
        let marks = self.marks.iter().cloned().map(Record::Mark);
        for record in dispatches.chain(telemetry).chain(requests).chain(marks) {
            writer.write(&record);
        }
        writer.take()
    }

    /// True if a newer version wrote it: there may be more in it than was read.
    pub fn is_newer(&self) -> bool {
        self.manifest.schema > SCHEMA
    }
}
