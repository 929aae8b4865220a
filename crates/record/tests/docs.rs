//! The page on the format names every field there is.

use everwarm_record::{
    Dispatch, Manifest, Mark, Record, Request, SCHEMA, Scenario, SelfTest, Telemetry, traffic,
};

const PAGE: &str = include_str!("../../../docs/record.md");

/// The page has a heading for the kind of `record`, and each of its members in backticks below it.
fn check(record: Record) {
    let value = serde_json::to_value(record).unwrap();
    let kind = value["kind"].as_str().unwrap();
    named(&format!("`{kind}`"), &value);
}

/// The section under `heading` names every member of `value`.
fn named(heading: &str, value: &serde_json::Value) {
    let (_, section) = PAGE.split_once(&format!("\n## {heading}")).expect("a heading of its own");
    let section = section.split("\n## ").next().unwrap();
    for name in names(value).filter(|name| name != "kind") {
        assert!(section.contains(&format!("`{name}`")), "`{name}` of {heading}");
    }
}

/// Names of all members, those of objects inside included.
fn names(value: &serde_json::Value) -> Box<dyn Iterator<Item = String> + '_> {
    let members = value.as_object().into_iter().flatten();
    Box::new(members.flat_map(|(name, value)| std::iter::once(name.clone()).chain(names(value))))
}

#[test]
fn every_field_is_described() {
    let labels = vec!["late".to_owned()];
    check(Record::Manifest(Manifest {
        schema: SCHEMA,
        everwarm: String::new(),
        device_id: String::new(),
        device_name: String::new(),
        device_facts: [("driver".to_owned(), String::new())].into(),
        simulated: true,
        seed: 0,
        scenario: Some(Scenario::new("", "")),
        started_unix_ns: None,
        command: None,
        self_test: Some(SelfTest::default()),
    }));
    check(Record::Dispatch(Dispatch { labels: labels.clone(), ..Dispatch::default() }));
    check(Record::Telemetry(Telemetry::default()));
    check(Record::Request(Request { labels, ..Request::default() }));
    check(Record::Mark(Mark::default()));
    named("Traffic", &serde_json::to_value(traffic::Entry::default()).unwrap());
    assert!(PAGE.contains(&format!("version of this format: {SCHEMA} ")));
}
