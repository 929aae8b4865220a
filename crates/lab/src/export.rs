//! A run as records: what JSON Lines and Parquet are written from.

use crate::data::{Dispatch, RunData, StepRun, Unit};
use crate::scenario::Part;
use everwarm_gpu::Counters;
use everwarm_record as record;
use everwarm_units::{Celsius, Hertz, Instant, Joules, Span, Watts};
use everwarm_workload::Kernel;
use std::collections::BTreeMap;

/// The head of a run's record, as far as the run itself knows it.
pub fn manifest(run: &RunData, scenario_text: &str) -> record::Manifest {
    record::Manifest {
        schema: record::SCHEMA,
        everwarm: env!("CARGO_PKG_VERSION").to_owned(),
        device_id: run.device.id.clone(),
        device_name: run.device.name.clone(),
        device_facts: run.device.facts.iter().cloned().collect(),
        simulated: run.device.simulated,
        seed: run.seed,
        scenario: Some(record::Scenario::new(run.scenario.clone(), scenario_text)),
        started_unix_ns: None,
        command: None,
        self_test: None,
    }
}

/// All records of a run under its manifest.
pub fn records(run: &RunData, manifest: record::Manifest) -> record::Run {
    let mut records = record::Run::new(manifest);
    let mut export = Export::default();
    run.units.iter().for_each(|unit| export.unit(run, unit, &mut records));
    records
}

/// Makes records of a run while it goes on, unit by unit, with running numbers over all of it.
#[derive(Default)]
pub struct Export {
    lines: Lines,
}

impl Export {
    /// Adds the records of `unit`, the run's next one, to `records`.
    pub fn unit(&mut self, run: &RunData, unit: &Unit, records: &mut record::Run) {
        let place = Place { round: Some(unit.round), cell: cell_name(&run.cells[unit.cell]) };
        for step in &unit.steps {
            self.lines.step(records, &place, step);
        }
        records.telemetry.extend(unit.samples.iter().map(telemetry));
    }
}

/// `gap=5 ms, kernel=short`; `None` without variables.
pub fn cell_name(variables: &BTreeMap<String, String>) -> Option<String> {
    let pairs: Vec<_> = variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
    (!pairs.is_empty()).then(|| pairs.join(", "))
}

/// Which round of which cell.
struct Place {
    round: Option<u32>,
    cell: Option<String>,
}

/// Running numbers over the whole run.
#[derive(Default)]
struct Lines {
    actors: BTreeMap<String, Line>,
}

/// One actor's queue so far.
struct Line {
    queue: u32,
    dispatches: u64,
    requests: u64,
    last_end: Option<Instant>,
}

impl Lines {
    fn step(&mut self, records: &mut record::Run, place: &Place, step: &StepRun) {
        let queue = self.actors.len() as u32;
        let line = self.actors.entry(step.actor.clone()).or_insert(Line {
            queue,
            dispatches: 0,
            requests: 0,
            last_end: None,
        });
        let mark = |at: Instant, name: String| record::Mark {
            at_ns: at.as_nanos(),
            actor: step.actor.clone(),
            name,
            round: place.round,
            cell: place.cell.clone(),
        };
        records.marks.push(mark(step.begin, format!("begin {}", step.label)));
        for (name, at) in &step.marks {
            records.marks.push(mark(*at, (*name).to_owned()));
        }
        records.marks.push(mark(step.end, format!("end {}", step.label)));
        for dispatch in &step.dispatches {
            records.dispatches.push(line.dispatch(place, step, dispatch));
        }
        records.requests.extend(line.request(place, step));
    }
}

impl Line {
    fn dispatch(&mut self, place: &Place, step: &StepRun, d: &Dispatch) -> record::Dispatch {
        let number = self.dispatches;
        self.dispatches += 1;
        let gap = self.last_end.map(|end| d.gpu_start.since(end).as_nanos());
        self.last_end = Some(d.gpu_end);
        record::Dispatch {
            actor: step.actor.clone(),
            queue: self.queue,
            number,
            round: place.round,
            cell: place.cell.clone(),
            step: Some(step.label.clone()),
            kernel: kernel_name(&d.kernel),
            flops: d.kernel.flops(),
            bytes: d.kernel.bytes(),
            committed_ns: d.committed.as_nanos(),
            gpu_start_ns: d.gpu_start.as_nanos(),
            gpu_end_ns: d.gpu_end.as_nanos(),
            observed_ns: d.observed.as_nanos(),
            gap_ns: gap,
            pstate: d.pstate.map(|p| p.0),
            clock_hz: d.clock.map(Hertz::as_hz),
            late_ns: d.late.map(Span::as_nanos),
            labels: late_label(d.late),
        }
    }

    /// A prompt is a request, measured at the host.
    fn request(&mut self, place: &Place, step: &StepRun) -> Option<record::Request> {
        let (prompt, tokens) = match step.model? {
            Part::Prefill(prompt) => (prompt, 1),
            Part::Answer { prompt, tokens } => (prompt, tokens),
            Part::Decode { .. } => return None,
        };
        let number = self.requests;
        self.requests += 1;
        let late = step.dispatches.iter().filter_map(|d| d.late).max();
        Some(record::Request {
            actor: step.actor.clone(),
            number,
            round: place.round,
            cell: place.cell.clone(),
            measured_at: "host".to_owned(),
            prompt_tokens: Some(prompt),
            generated_tokens: Some(tokens),
            sent_ns: step.begin.as_nanos(),
            first_token_ns: step.marks.first().map(|(_, at)| at.as_nanos()),
            end_ns: Some(step.end.as_nanos()),
            prefill_gpu_start_ns: step.dispatches.first().map(|d| d.gpu_start.as_nanos()),
            late_ns: late.map(Span::as_nanos),
            labels: late_label(late),
        })
    }
}

/// What a real-time simulation did later than this can't be trusted: as much as the longest gap in a
/// queue that the study's device forgives.
const LATE: Span = Span::us(500);

fn late_label(late: Option<Span>) -> Vec<String> {
    late.filter(|late| *late > LATE).map(|_| "late".to_owned()).into_iter().collect()
}

fn kernel_name(kernel: &Kernel) -> String {
    match kernel {
        Kernel::Empty => "empty".into(),
        Kernel::Fma { iterations, threads } => format!("fma {iterations} x {threads}"),
        Kernel::Stream { bytes } => format!("stream {bytes} B"),
        Kernel::Matmul { n } => format!("matmul {n}"),
        Kernel::Modelled { flops, bytes, .. } => {
            format!("modelled {flops:.4e} flop, {bytes:.4e} B")
        }
    }
}

/// A reading of the counters as a record.
pub fn telemetry(c: &Counters) -> record::Telemetry {
    let nanos = |all: &Vec<Span>| all.iter().map(|span| span.as_nanos()).collect();
    record::Telemetry {
        at_ns: c.at.as_nanos(),
        residency_ns: c.residency.as_ref().map(nanos),
        gpu_energy_j: c.gpu_energy.map(Joules::as_j),
        cpu_energy_j: c.cpu_energy.map(Joules::as_j),
        pstate: c.pstate.map(|p| p.0),
        clock_hz: c.clock.map(Hertz::as_hz),
        memory_clock_hz: c.memory_clock.map(Hertz::as_hz),
        power_w: c.power.map(Watts::as_w),
        temperature_c: c.temperature.map(Celsius::as_c),
        limited_by: c.limited_by.clone(),
        busy: c.busy,
    }
}
