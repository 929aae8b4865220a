//! A run whose depth the in-flight helper finds does the work that was asked for, and its verdict is
//! in the record.

use everwarm_lab::{RunData, Scenario, run};

fn run_on_m2(steps: &str) -> RunData {
    let scenario = Scenario::from_toml("test.toml", &format!("steps = [{steps}]")).unwrap();
    run(&scenario, "sim:m2").unwrap()
}

#[test]
fn the_work_is_the_same_in_larger_pieces() {
    let operations = |in_flight: &str| {
        let step = format!(
            "{{ run = {{ alu = {{ iterations = 690 }} }}, times = 1001, delay = \"1.5 ms\", in_flight = {in_flight} }}"
        );
        let run = run_on_m2(&step);
        let dispatches = &run.units[0].steps[0].dispatches;
        (dispatches.len(), dispatches.iter().map(|d| d.kernel.flops().unwrap()).sum::<f64>())
    };
    let (buffers, whole) = operations("1");
    let (fewer, chunked) = operations("{ chunk = 16 }");
    assert_eq!(buffers, 1001);
    assert!(fewer < 500, "{fewer}");
    assert_eq!(chunked, whole);
}

#[test]
fn a_host_that_is_too_slow_is_marked_and_one_that_is_not_is_not() {
    let marks = |delay: &str| {
        let step = format!(
            "{{ run = {{ alu = \"0.2 ms\" }}, times = 1000, delay = \"{delay}\", in_flight = \"auto\" }}"
        );
        let run = run_on_m2(&step);
        run.units[0].steps[0].marks.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    };
    assert_eq!(marks("0.1 ms"), [""; 0]);
    assert_eq!(marks("2 ms"), ["host too slow"]);
}
