//! Simulated devices of which it is known what they have: each cause alone, all of them, none.
//!
//! A device is a built-in chip with other values; what it has is what those values say, not what the
//! doctor found there.

use everwarm_doctor::{Diagnosis, Finding, Options, Patient, PlainHost, Verdict, examine};

/// Keys of a chip file and their values.
type Changes = &'static [(&'static str, &'static str)];

/// No power is ever taken, so that nothing has to be given back.
const STARTS_AT_ONCE: Changes = &[
    ("wake.start.0.latency", "0.15 ms"),
    ("wake.start.1.latency", "0.15 ms"),
    ("wake.start.2.latency", "0.15 ms"),
    ("wake.start.3.latency", "0.15 ms"),
    ("wake.memory_ready", "0 ms"),
];
const NEVER_DEEP: Changes = &[("wake.deep_idle_stall", "0 ms")];
const KEEPS_MEMORY: Changes = &[("wake.unwired_after", "3600 s")];
/// The lowest clock that the controller uses is the top one.
const KEEPS_CLOCK: Changes = &[("controller.base_pstate", "8")];
/// Any utilisation at all is enough for the top clock, as long as there is some.
const RAISED_BY_ANYTHING: Changes = &[
    ("controller.target_utilization_pct", "1"),
    ("controller.boost_periods", "1.88"),
    ("controller.lasting_boost_periods", "4.7"),
];

fn diagnosis(changes: &[Changes], options: Options) -> Diagnosis {
    let all = changes.iter().copied().flatten();
    let set: Vec<_> = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let chip = everwarm_lab::changed_chip("sim:m2", &set).expect("the values can be");
    let mut patient = Patient {
        id: "sim:made-up".to_owned(),
        open: Box::new(move || Ok(everwarm_gpu::backend::simulate(chip.clone()))),
        host: Box::new(PlainHost::default()),
    };
    examine(&mut patient, options, &mut |_| {}).expect("a simulated device does as it is told")
}

/// The causes that were seen, and a panic if one could not be told: nothing here is noisy.
fn seen(diagnosis: &Diagnosis) -> Vec<&'static str> {
    let known = |f: &Finding| !matches!(f, Finding::CantTell { .. });
    assert!(diagnosis.causes.iter().all(|row| known(&row.finding)), "{:?}", diagnosis.causes);
    let seen = diagnosis.causes.iter().filter(|row| matches!(row.finding, Finding::Seen { .. }));
    seen.map(|row| row.cause).collect()
}

fn check(changes: &[Changes], expected: &[&str]) {
    for options in [Options::FULL, Options::QUICK] {
        let found = diagnosis(changes, options);
        let looked = |cause: &&&str| {
            let row = found.causes.iter().find(|row| row.cause == **cause).expect("a cause's id");
            !matches!(row.finding, Finding::LeftOut { .. })
        };
        let expected: Vec<&str> = expected.iter().filter(looked).copied().collect();
        assert_eq!(seen(&found), expected, "{options:?}: {:?}", found.causes);
    }
}

#[test]
fn where_there_is_nothing_nothing_is_found() {
    let none = &[KEEPS_CLOCK, STARTS_AT_ONCE, NEVER_DEEP, KEEPS_MEMORY];
    check(none, &[]);
    for options in [Options::FULL, Options::QUICK] {
        let found = diagnosis(none, options);
        assert_eq!(found.verdict, Verdict::NothingToGain);
        assert!(found.trials.is_none(), "there is nothing to try anything against");
    }
}

#[test]
fn each_cause_is_found_alone() {
    check(&[KEEPS_CLOCK, NEVER_DEEP, KEEPS_MEMORY], &["power-gating", "deep-idle"]);
    check(&[KEEPS_CLOCK, STARTS_AT_ONCE, KEEPS_MEMORY], &["deep-idle"]);
    check(&[KEEPS_CLOCK, STARTS_AT_ONCE, NEVER_DEEP], &["memory-unwired"]);
    check(&[RAISED_BY_ANYTHING, STARTS_AT_ONCE, NEVER_DEEP, KEEPS_MEMORY], &["clock-decay"]);
}

#[test]
fn an_m2_has_them_all_and_a_hold_takes_them_away() {
    let found = diagnosis(&[], Options::FULL);
    let device =
        &["clock-decay", "sync-tax", "gap-cliff", "power-gating", "deep-idle", "memory-unwired"];
    assert_eq!(seen(&found), device);
    assert_eq!(found.verdict, Verdict::SomethingToGain);
    let trials = found.trials.expect("there was something to try against");
    let hold = trials.tried.iter().find(|one| one.what == "hold").expect("a hold was tried");
    assert!(hold.removed > 0.9, "{hold:?}");
    // Study 4: 0.59 W less 0.08 W, and about 0.08 W of the CPU.
    assert!(hold.gpu_w.is_some_and(|w| (0.4..0.6).contains(&w)), "{hold:?}");
    assert!(hold.cpu_w.is_some_and(|w| (0.05..0.11).contains(&w)), "{hold:?}");
}

#[test]
fn equal_devices_give_equal_diagnoses() {
    assert_eq!(diagnosis(&[], Options::QUICK), diagnosis(&[], Options::QUICK));
}
