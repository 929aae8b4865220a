//! Recorded runs and traffic logs: what programs wrote, and somebody may have cut, joined or edited.

use crate::pieces;
use everwarm_record::{Dispatch, Manifest, Mark, Reader, Record, Request, Run, SCHEMA, Scenario};
use everwarm_record::{SelfTest, Telemetry, gzip as packed, parquet as tabled, traffic as log};

/// A run is read alike in any pieces, and what was read is written and read again as it was.
pub fn record(data: &[u8]) {
    let [cut, bytes @ ..] = data else { return };
    let whole = Run::from_json_lines(bytes);
    if let Ok(run) = &whole {
        again(run);
        assert_eq!(run, &in_pieces(bytes, *cut).expect("a whole run is one in pieces, too"));
    } else {
        assert_eq!(whole, in_pieces(bytes, *cut));
    }
}

fn in_pieces(bytes: &[u8], cut: u8) -> Result<Run, everwarm_record::Error> {
    let mut reader = Reader::new();
    let mut run: Option<Run> = None;
    let mut take = |record: Record| match (record, &mut run) {
        (Record::Manifest(manifest), run) => *run = Some(Run::new(manifest)),
        (record, run) => run.as_mut().expect("the manifest is first").push(record),
    };
    for piece in pieces::of(bytes, cut) {
        reader.push(piece);
        while let Some(record) = reader.next_record() {
            take(record?);
        }
    }
    let unknown = reader.unknown();
    let (last, truncated) = reader.finish()?;
    last.into_iter().for_each(&mut take);
    let run = run.ok_or(everwarm_record::Error::Empty)?;
    Ok(Run { truncated, unknown, ..run })
}

/// What was read, but not that it was cut or had more in it.
fn again(run: &Run) {
    let known = Run { truncated: None, unknown: 0, ..run.clone() };
    let lines = known.to_json_lines();
    assert_eq!(Run::from_json_lines(&lines).as_ref(), Ok(&known));
    assert_eq!(known.to_json_lines(), lines);
}

/// Compressed bytes: whatever comes out is read as a run would be.
pub fn gzip(data: &[u8]) {
    if let Ok((bytes, fault)) = packed::unpack(data) {
        let _ = Run::from_json_lines(&bytes);
        let (same, none) = packed::unpack(&packed::pack(&bytes)).expect("it was just packed");
        assert!(same == bytes && none.is_none());
        assert!(fault.is_some() || packed::is_packed(data));
    }
}

/// Whatever run is read from lines can be written as tables, and is read again as it was.
///
/// The bytes of a table are not fuzzed: who reads damaged ones is the Parquet library.
pub fn parquet(data: &[u8]) {
    let Ok(run) = Run::from_json_lines(data) else { return };
    let tables = tabled::to_tables(&run).expect("every run can be written");
    let read = tabled::from_tables(&tables).expect("what was written is read");
    assert_eq!(read, flattened(run));
}

/// What tables lose, by their documentation: lists are texts joined by commas, an empty one is none.
fn flattened(mut run: Run) -> Run {
    let flat = |list: &mut Vec<String>| {
        let joined = list.join(",");
        *list = joined.split(',').filter(|t| !t.is_empty()).map(str::to_owned).collect();
    };
    run.dispatches.iter_mut().for_each(|dispatch| flat(&mut dispatch.labels));
    run.requests.iter_mut().for_each(|request| flat(&mut request.labels));
    for telemetry in &mut run.telemetry {
        telemetry.limited_by.iter_mut().for_each(flat);
        telemetry.residency_ns.take_if(|spans| spans.is_empty());
    }
    (run.truncated, run.unknown) = (None, 0);
    run
}

/// A traffic log: what was read is written and read again as it was, a cut is told.
pub fn traffic(data: &[u8]) {
    let Ok((entries, _)) = log::read(data) else { return };
    let lines: Vec<u8> = entries.iter().flat_map(log::Entry::to_line).collect();
    assert_eq!(log::read(&lines), Ok((entries, None)));
}

/// A run with every kind of record.
fn run() -> Run {
    let mut run = Run::new(Manifest {
        schema: SCHEMA,
        everwarm: "0.1.0".to_owned(),
        device_id: "sim:m2".to_owned(),
        device_name: "Apple M2".to_owned(),
        device_facts: [("driver".to_owned(), "1.0".to_owned())].into(),
        simulated: true,
        seed: 7,
        scenario: Some(Scenario::new("ramp", "kernel = 1\n")),
        started_unix_ns: Some(1),
        command: None,
        self_test: Some(SelfTest { timer_step_ns: Some(20), ..SelfTest::default() }),
    });
    run.dispatches.push(Dispatch {
        gap_ns: Some(3),
        flops: Some(5.24e8),
        labels: vec!["late".to_owned()],
        ..Dispatch::default()
    });
    let residency_ns = Some(vec![1, 2, 3]);
    run.telemetry.push(Telemetry { residency_ns, busy: Some(0.5), ..Telemetry::default() });
    run.requests.push(Request { end_ns: Some(8), ..Request::default() });
    run.marks.push(Mark { at_ns: 1, name: "begin".to_owned(), ..Mark::default() });
    run
}

pub fn records() -> Vec<Vec<u8>> {
    vec![[&[0], run().to_json_lines().as_slice()].concat()]
}

pub fn gzips() -> Vec<Vec<u8>> {
    let packed = packed::pack(&run().to_json_lines());
    vec![packed.clone(), packed.repeat(2), packed[..packed.len() - 9].to_vec()]
}

pub fn tables() -> Vec<Vec<u8>> {
    vec![run().to_json_lines()]
}

pub fn traffics() -> Vec<Vec<u8>> {
    let entry = log::Entry {
        at_s: 1.5,
        session: Some("c0ffee".to_owned()),
        prompt_tokens: Some(7),
        ttft_s: Some(0.25),
        end_s: Some(2.0),
        ending: log::Ending::ToolCalls,
        ..log::Entry::default()
    };
    vec![entry.to_line(), [entry.to_line(), b"\n".to_vec(), entry.to_line()].concat()]
}
