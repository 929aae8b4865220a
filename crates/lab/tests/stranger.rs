//! A scenario and a claims file as a stranger would write them, from text to verdict.

use everwarm_lab::{Claims, Scenario, Verdict, check, records, run};
use std::path::Path;

/// Claims on a run that does not depend on how the simulated chip is tuned.
const CLAIMS: &str = r#"
[device]
name = "whatever it is"

[scenario.pair]
rounds = 3
steps = [
  { idle = "20 ms", jitter = "1 ms", label = "rest" },
  { run = { alu = "2 ms" }, times = 10, sleep = "1 ms", label = "slow host" },
  { run = { alu = "2 ms" }, deep = 10, label = "deep" },
]

[[claim]]
id = "counted"
scenario = "pair"
measure = { metric = "count", label = ["slow host", "deep"] }
expect = 10
unit = "1"

[[claim]]
id = "gaps.slow"
scenario = "pair"
measure = { metric = "gap", label = "slow host" }
expect = [1, 2]
unit = "ms"

[[claim]]
id = "gaps.compared"
scenario = "pair"
measure = { metric = "gap", ratio = [{ label = "deep" }, { label = "slow host" }] }
expect = 0.0
tol = 0.2
unit = "%"

[[claim]]
id = "wrong.unit"
scenario = "pair"
measure = { metric = "gap", label = "deep" }
expect = 1
unit = "W"

[[claim]]
id = "wrong.label"
scenario = "pair"
measure = { metric = "gap", label = "shallow" }
expect = 1
unit = "ms"

[[claim]]
id = "power.without_telemetry"
scenario = "pair"
measure = { metric = "power", rail = "gpu", label = "rest" }
expect = 1
unit = "W"

[[claim]]
id = "sweep.inline"
scenario = { sweep = { depth = [1, 2, 4] }, steps = [
  { run = { alu = "1 ms" }, times = 12, in_flight = "$depth" },
] }
measure = { metric = "gap", dispatch = [6, -1], cells = "count", where = { depth = { min = 2 } } }
expect = 2
unit = "1"

[[claim]]
id = "prose.only"
setup = "a figure that nobody knows how to measure"
metric = "beauty"
expect = 1
unit = "1"
"#;

fn verdicts(text: &str) -> Vec<Verdict> {
    let claims = Claims::from_toml("mine.toml", text, Path::new(".")).unwrap();
    check(&claims, "sim:m2", &|_, _, _| {}).unwrap().verdicts
}

#[test]
fn a_strangers_claims_get_their_verdicts() {
    let verdicts = verdicts(CLAIMS);
    let of = |id: &str| verdicts.iter().find(|v| v.id == id).unwrap();
    for (id, held) in [("counted", true), ("gaps.slow", true), ("sweep.inline", true)] {
        assert_eq!(of(id).held, held, "{:?}", of(id));
    }
    let ratio = of("gaps.compared");
    let percent = ratio.measured.as_ref().unwrap()[0];
    assert!(ratio.unit == "%" && (1.0..10.0).contains(&percent), "{ratio:?}");
    let reason = |id: &str| {
        let verdict = of(id);
        assert!(verdict.measured.is_none() && !verdict.held, "{verdict:?}");
        verdict.reason.clone().unwrap()
    };
    assert!(reason("wrong.unit").contains("ms and can't be given in W"));
    assert!(reason("wrong.label").contains("the labels are deep, rest, slow host"));
    assert!(reason("power.without_telemetry").contains("telemetry"));
    assert!(reason("prose.only").contains("not that of a built-in claim"));
}

#[test]
fn a_claims_file_of_known_ids_needs_no_scenarios() {
    // Another expectation for a figure whose scenario and measure the lab knows.
    let known = |expect: &str| {
        format!(
            "[[claim]]\nid = \"plateaus\"\nexpect_list = {expect}\ntol = 20\nunit = \"GFLOP/s\""
        )
    };
    let eight = verdicts(&known("[277, 382, 504, 604, 692, 771, 835, 872]"));
    assert!(eight[0].held, "{eight:?}");
    assert!(!verdicts(&known("[1, 2, 3]"))[0].held);
}

#[test]
fn the_built_in_claims_have_all_figures_and_can_all_be_asked() {
    let claims = Claims::built_in();
    assert_eq!(claims.claims.len(), 78);
    for claim in &claims.claims {
        let known = matches!(claim.origin, everwarm_lab::Origin::Known { .. });
        assert!(known, "{} can be measured", claim.id);
        assert!(claim.unit.is_some(), "{} has a unit", claim.id);
        for other in &claim.conflicts_with {
            assert!(claims.claims.iter().any(|c| c.id == *other), "{other} exists");
        }
    }
}

#[test]
fn two_runs_of_one_seed_are_the_same_bytes() {
    for built_in in everwarm_lab::SCENARIOS {
        let mut scenario = everwarm_lab::scenario(built_in.name).expect("it is in the table");
        // Enough to see each cell; the whole takes long without optimisation.
        scenario.rounds = 1;
        scenario.cells.truncate(4);
        if built_in.name == "no-drift" {
            continue; // 50,000 buffers of one step
        }
        let bytes = || {
            let run = run(&scenario, "sim:m2").unwrap();
            records(&run, everwarm_lab::manifest(&run, built_in.text)).to_json_lines()
        };
        assert!(bytes() == bytes(), "{} differs from itself", built_in.name);
    }
}

#[test]
fn the_seed_moves_jitter_and_nothing_else() {
    let text = r#"steps = [{ idle = "5 ms", jitter = "3 ms" }, { run = "empty", times = 2 }]"#;
    let starts = |seed| {
        let mut scenario = Scenario::from_toml("jitter.toml", text).unwrap();
        scenario.seed = seed;
        let run = run(&scenario, "sim:m2").unwrap();
        run.units[0].steps[1].begin
    };
    assert_eq!(starts(7), starts(7));
    assert_ne!(starts(7), starts(8));
    assert!((5.0..8.0).contains(&starts(7).as_ms()));
}

#[test]
fn a_claims_file_names_scenario_files_beside_it() {
    let folder = std::env::temp_dir().join(format!("everwarm-lab-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("own.toml"), "steps = [{ run = \"stream\", times = 3 }]").unwrap();
    let claim = |file: &str| {
        format!(
            "[[claim]]\nid = \"n\"\nexpect = 3\nscenario = \"{file}\"\nmeasure = {{ metric = \"count\" }}"
        )
    };
    let read = |file| Claims::from_toml("claims.toml", &claim(file), &folder);
    let claims = read("own.toml").unwrap();
    assert!(check(&claims, "sim:m2", &|_, _, _| {}).unwrap().verdicts[0].held);
    let missing = read("none.toml").unwrap_err().to_string();
    assert!(missing.contains("none.toml") && missing.contains("claim `n`"), "{missing}");
    let unknown = read("nothing").unwrap_err().to_string();
    assert!(unknown.contains("no scenario `nothing`") && unknown.contains("ttft"), "{unknown}");
    std::fs::remove_dir_all(&folder).unwrap();
}
