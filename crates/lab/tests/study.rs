//! The built-in claims on the simulated M2: a claim that breaks is found here, and so is one of the
//! study that was known not to hold and now does.

use everwarm_lab::{Claims, check};
use std::collections::BTreeMap;

/// Claims that do not hold on `sim:m2`. `docs/model.md` argues each.
const KNOWN_FAILURES: &[(&str, &str)] = &[
    ("prewarm.short_prompt_removed", "a 6 ms kernel takes 17 ms at P1, and P8 is later still"),
    ("prewarm.long_prompt_removed", "the same"),
];

#[test]
fn the_claims_hold_but_for_known_failures() {
    let report = check(&Claims::built_in(), "sim:m2", &|_, _, _| {}).unwrap();
    let known: BTreeMap<_, _> = KNOWN_FAILURES.iter().copied().collect();
    for verdict in &report.verdicts {
        let id = verdict.id.as_str();
        match known.get(id) {
            None => assert!(verdict.held, "{id} no longer holds: {verdict:?}"),
            Some(why) => assert!(!verdict.held, "{id} holds now; it was thought that {why}"),
        }
    }
    assert_eq!(report.verdicts.len(), 78);
}

#[test]
fn our_own_claims_hold() {
    for name in Claims::names().into_iter().filter(|name| *name != "m2") {
        let claims = Claims::named(name).unwrap();
        assert!(!claims.claims.is_empty());
        let report = check(&claims, "sim:m2", &|_, _, _| {}).unwrap();
        for verdict in report.verdicts {
            assert!(verdict.held, "{name}: {verdict:?}");
        }
    }
}
