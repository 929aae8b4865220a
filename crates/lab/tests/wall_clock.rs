//! The same scenario by the wall clock: a simulated device in real time, one thread and one handle
//! an actor.

use everwarm_lab::{Scenario, run};
use everwarm_sim_server::{Config, spawn};
use everwarm_workload::Runtime;

const SCENARIO: &str = r#"
rounds = 2
telemetry = "5 ms"

[[actor]]
name = "runtime"
steps = [
  { idle = "40 ms", signal = "hint", lead = "20 ms" },
  { run = { alu = "1 ms" }, times = 5, label = "request" },
]

[[actor]]
name = "warmer"
background = true
steps = [{ await = "hint" }, { run = { hold = "1 ms" }, label = "pre-warm" }]
"#;

#[test]
fn actors_on_threads_keep_order_and_one_time_base() {
    let server = spawn(Config::new("sim:m2", Runtime::built_in("mlx").unwrap())).unwrap();
    let scenario = Scenario::from_toml("wall.toml", SCENARIO).unwrap();
    let run = run(&scenario, &server.device()).unwrap();
    assert!(!run.device.virtual_time);
    assert_eq!(run.units.len(), 2);
    for unit in &run.units {
        let step = |label: &str| unit.steps.iter().find(|s| s.label == label).unwrap();
        let (idle, warm, request) = (step("idle"), step("pre-warm"), step("request"));
        assert_eq!(request.dispatches.len(), 5);
        assert_eq!(warm.dispatches.len(), 1, "one hint, one pre-warm");
        // Between threads only what must hold on a busy machine: order, not distance.
        let pre_warm = warm.dispatches[0];
        assert!(idle.begin < pre_warm.committed, "the hint comes within the idle time");
        assert!(unit.begin <= pre_warm.committed && request.end <= unit.end);
        for d in request.dispatches.iter().chain(&warm.dispatches) {
            assert!(d.committed <= d.gpu_start && d.gpu_start < d.gpu_end, "{d:?}");
            assert!(d.gpu_end <= d.observed && unit.begin <= d.committed, "{d:?}");
            assert!(d.late.is_some(), "a real-time simulation says how late it was");
        }
        assert!(idle.end.since(idle.begin).as_ms() >= 40.0);
        assert!(unit.samples.len() >= 2, "{} readings", unit.samples.len());
        assert!(unit.samples.windows(2).all(|pair| pair[0].at < pair[1].at));
    }
}

#[test]
fn an_error_of_one_actor_ends_the_others() {
    let server = spawn(Config::new("sim:m2", Runtime::built_in("mlx").unwrap())).unwrap();
    let text = r#"
        [[actor]]
        name = "a"
        steps = [{ idle = "10 ms" }, { pin = 99 }]
        [[actor]]
        name = "b"
        steps = [{ idle = "1 h" }]
    "#;
    let scenario = Scenario::from_toml("pin.toml", text).unwrap();
    let error = run(&scenario, &server.device()).unwrap_err();
    assert!(error.to_string().contains("P99"), "{error}");
}
