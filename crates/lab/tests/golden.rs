//! What two small scenarios submit, in which order: kept by text, so that a change of the
//! interpreter shows. Times are left out, because they are the simulated chip's.

use everwarm_lab::{RunData, Scenario, run};
use std::fmt::Write;

/// Every step of every actor with its command buffers, in the order in which things began.
fn transcript(run: &RunData) -> String {
    let mut text = String::new();
    for unit in &run.units {
        writeln!(text, "cell {:?} round {}", run.cells[unit.cell], unit.round).unwrap();
        let mut events: Vec<(u64, usize, String)> = Vec::new();
        for (n, step) in unit.steps.iter().enumerate() {
            let begin = format!("{} begins {}", step.actor, step.label);
            events.push((step.begin.as_nanos(), n, begin));
            for (i, d) in step.dispatches.iter().enumerate() {
                let commit = format!("{} commits {} {i}", step.actor, step.label);
                events.push((d.committed.as_nanos(), n, commit));
            }
            for (name, at) in &step.marks {
                events.push((at.as_nanos(), n, format!("{} marks {name}", step.actor)));
            }
        }
        // The sort is stable: at one instant, in the order of the steps.
        events.sort_by_key(|(at, n, _)| (*at, *n));
        for (_, _, event) in events {
            writeln!(text, "  {event}").unwrap();
        }
    }
    text
}

fn twice(text: &str) -> String {
    let scenario = Scenario::from_toml("golden.toml", text).unwrap();
    let once = || transcript(&run(&scenario, "sim:m2").unwrap());
    let first = once();
    assert_eq!(first, once(), "two runs are alike");
    first
}

#[test]
fn a_pre_warm_starts_its_lead_before_the_request() {
    let text = r#"
        rounds = 2
        sweep = { pre_warm = [false, true] }

        [[actor]]
        name = "runtime"
        steps = [
          { idle = "50 ms", signal = "hint", lead = "10 ms" },
          { run = { alu = "1 ms" }, times = 3, label = "request" },
        ]

        [[actor]]
        name = "warmer"
        background = true
        when = { pre_warm = true }
        steps = [{ await = "hint" }, { run = { matmul = 1024 }, label = "pre-warm" }]
    "#;
    insta::assert_snapshot!(twice(text));
}

#[test]
fn depth_and_repetition_decide_the_order_of_commits() {
    let text = r#"
        order = "cell-by-cell"
        rounds = 2
        sweep = { depth = [1, 2] }
        steps = [
          { repeat = 2, steps = [
            { run = { alu = "1 ms" }, times = 3, in_flight = "$depth", label = "some" },
            { idle = "1 ms" },
          ] },
          { run = { alu = "1 ms" }, deep = 2, drain = false, label = "left behind" },
          { run = "empty", label = "after" },
        ]
    "#;
    insta::assert_snapshot!(twice(text));
}
