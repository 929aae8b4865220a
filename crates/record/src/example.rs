//! A run with every kind of record, with and without what may be left out: for this crate's tests.

use crate::{Dispatch, Manifest, Mark, Request, Run, SCHEMA, Scenario, Telemetry};

pub(crate) fn full() -> Run {
    let mut run = Run::new(Manifest {
        schema: SCHEMA,
        everwarm: "0.1.0".to_owned(),
        device_id: "sim:m2".to_owned(),
        device_name: "Apple M2".to_owned(),
        device_facts: [("driver".to_owned(), "1.0".to_owned())].into(),
        simulated: true,
        seed: u64::MAX,
        scenario: Some(Scenario::new("ramp", "kernel = 1\n")),
        started_unix_ns: Some(1),
        command: None,
        self_test: None,
    });
    run.dispatches.push(Dispatch {
        actor: "loop".to_owned(),
        round: Some(2),
        cell: Some("idle".to_owned()),
        step: Some("probe".to_owned()),
        kernel: "fma 2000 x 65536".to_owned(),
        flops: Some(5.24e8),
        bytes: Some(1.0),
        committed_ns: u64::MAX,
        gap_ns: Some(0),
        pstate: Some(8),
        clock_hz: Some(1398e6),
        late_ns: Some(3),
        labels: vec!["late".to_owned(), "throttled".to_owned()],
        ..Dispatch::default()
    });
    run.dispatches.push(Dispatch::default());
    run.telemetry.push(Telemetry {
        at_ns: 5,
        residency_ns: Some(vec![1, 2, 3]),
        gpu_energy_j: Some(0.25),
        cpu_energy_j: Some(0.5),
        pstate: Some(1),
        clock_hz: Some(444e6),
        memory_clock_hz: Some(3.2e9),
        power_w: Some(79.5),
        temperature_c: Some(41.0),
        limited_by: Some(vec!["power cap".to_owned(), "heat".to_owned()]),
        busy: Some(0.5),
    });
    run.telemetry.push(Telemetry { limited_by: Some(Vec::new()), ..Telemetry::default() });
    run.telemetry.push(Telemetry::default());
    run.requests.push(Request {
        round: Some(1),
        cell: Some("busy".to_owned()),
        measured_at: "client".to_owned(),
        prompt_tokens: Some(16),
        generated_tokens: Some(1),
        first_token_ns: Some(7),
        end_ns: Some(8),
        prefill_gpu_start_ns: Some(6),
        late_ns: Some(1),
        labels: vec!["late".to_owned()],
        ..Request::default()
    });
    run.marks.push(Mark {
        name: "start".to_owned(),
        round: Some(1),
        cell: Some("x".to_owned()),
        ..Mark::default()
    });
    run
}
