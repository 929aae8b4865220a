//! Files that people write, all of them TOML: scenarios, claims, figures, ablations, chips, runtimes,
//! models.
//!
//! A text that is no UTF-8 never reaches these readers: reading the file refuses it. Of a text that is
//! good, a comment at its end changes nothing; of one that is not, the error names a place in it.

use everwarm_dvfs::{Chip, Traced};
use everwarm_lab::{Ablations, BadInput, Claims, ClaimsError, Figures, SCENARIOS, Scenario};
use everwarm_workload::{Model, Runtime};
use std::fmt::Debug;
use std::path::Path;

/// What errors call the text.
const FILE: &str = "own.toml";

/// A folder without files: what a text names beside itself is not there.
const FOLDER: &str = "no-such-folder";

/// Reads `data` with and without a comment at its end; both must come to the same.
fn same<T: Debug, E: Debug>(
    data: &[u8],
    read: impl Fn(&str) -> Result<T, E>,
    told: impl Fn(&str, &E),
) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match read(text) {
        Ok(value) => {
            let commented = read(&format!("{text}\n# The end.\n"));
            let commented = commented.expect("a comment makes no good text bad");
            // By what is shown: a value that is not a number is not equal to itself.
            assert_eq!(format!("{value:?}"), format!("{commented:?}"));
        }
        Err(error) => told(text, &error),
    }
}

/// The place that an error names is in the text.
fn placed(text: &str, error: &BadInput) {
    let lines = text.matches('\n').count() + 1;
    assert!((1..=lines).contains(&error.line) && error.column >= 1, "{error}");
    assert!(!error.message.is_empty() && error.to_string().contains(FILE), "{error}");
}

fn shown(_: &str, error: &impl ToString) {
    assert!(!error.to_string().is_empty());
}

pub fn scenario(data: &[u8]) {
    same(data, |text| Scenario::from_toml(FILE, text), placed);
}

pub fn claims(data: &[u8]) {
    let read = |text: &str| Claims::from_toml(FILE, text, Path::new(FOLDER));
    same(data, read, |text, error| match error {
        ClaimsError::Input(error) => placed(text, error),
        ClaimsError::File { .. } => assert!(error.to_string().contains(FOLDER), "{error}"),
    });
}

pub fn figures(data: &[u8]) {
    same(data, |text| Figures::from_toml(FILE, text), placed);
}

pub fn ablations(data: &[u8]) {
    // What is read keeps the text itself: only its parts are comparable.
    let read = |text: &str| Ablations::from_toml(FILE, text);
    same(data, |text| read(text).map(|a| (a.ablations, a.constants)), placed);
}

pub fn chip(data: &[u8]) {
    let parents = |_: &str, wanted: &str| match wanted {
        "parent.toml" => {
            let text = Chip::built_in_text("m1").expect("it is built in");
            Ok((wanted.to_owned(), text.to_owned()))
        }
        _ => Err(format!("there is no `{wanted}`")),
    };
    // Where values stand is part of what is read; a comment at the end moves none.
    same(data, |text| Traced::from_toml(FILE, text, &parents), shown);
}

pub fn runtime(data: &[u8]) {
    same(data, Runtime::from_toml, shown);
}

pub fn model(data: &[u8]) {
    same(data, Model::from_toml, shown);
}

fn bytes(texts: impl IntoIterator<Item = &'static str>) -> Vec<Vec<u8>> {
    texts.into_iter().map(|text| text.as_bytes().to_vec()).collect()
}

pub fn scenarios() -> Vec<Vec<u8>> {
    bytes(SCENARIOS.iter().map(|scenario| scenario.text))
}

/// The `count` first tables that begin with `head`, each as a text of its own.
fn tables(text: &str, head: &str, count: usize) -> Vec<Vec<u8>> {
    let parts = text.split(head).skip(1).take(count);
    parts.map(|part| format!("{head}{part}").into_bytes()).collect()
}

pub fn claims_seeds() -> Vec<Vec<u8>> {
    tables(include_str!("../../lab/claims/m2.toml"), "[[claim]]", 40)
}

pub fn figures_seeds() -> Vec<Vec<u8>> {
    tables(include_str!("../../lab/figures/m2.toml"), "[[figure]]", 20)
}

pub fn ablations_seeds() -> Vec<Vec<u8>> {
    let text = include_str!("../../lab/ablations/m2.toml");
    [tables(text, "[[ablation]]", 30), tables(text, "[[constant]]", 1)].concat()
}

pub fn chips() -> Vec<Vec<u8>> {
    let like = "like = \"parent.toml\"\nid = \"a\"\nname = \"A\"\ncores = 16\n";
    let all = Chip::names().into_iter().map(|name| Chip::built_in_text(name).expect("a name"));
    bytes(all.chain([like]))
}

pub fn runtimes() -> Vec<Vec<u8>> {
    let own = Model::BUILT_IN.iter().map(|(name, text)| {
        let (_, runtime) = Runtime::BUILT_IN[0];
        let runtime = runtime.replace(&format!("model = \"{name}\"\n"), "");
        format!("{runtime}\n[model]\n{text}").into_bytes()
    });
    bytes(Runtime::BUILT_IN.iter().map(|(_, text)| *text)).into_iter().chain(own).collect()
}

pub fn models() -> Vec<Vec<u8>> {
    bytes(Model::BUILT_IN.iter().map(|(_, text)| *text))
}
