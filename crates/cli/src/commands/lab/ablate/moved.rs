//! The table of moved numbers: which the claims pin, as text, Markdown and JSON.

use super::super::short;
use super::wrapped;
use everwarm_lab::{Kind, Margin, Moved, Parameter, Sensitivity};
use serde_json::{Value, json};
use std::fmt::Write;

/// How many of the narrowest margins a person is shown.
const NARROWEST: usize = 20;

pub(super) fn text(found: &Sensitivity) -> String {
    let mut text = String::new();
    for parameter in found.parameters.iter().filter(|one| breaks(one)) {
        let Parameter { key, value, kind, moved } = parameter;
        let _ = writeln!(text, "{:8} {key} = {value}", kind.word());
        for one in moved {
            let _ = writeln!(text, "           at {}: {}", one.value, consequence(one, ""));
        }
    }
    for (kind, what) in [(Kind::Free, "break nothing"), (Kind::Inert, "change nothing")] {
        let keys = of_kind(found, kind);
        if !keys.is_empty() {
            let _ = writeln!(text, "{:8} ({what}) {}", kind.word(), keys.join(", "));
        }
    }
    text += "\nmargin of a claim: 1 in the middle of what is right, 0 at its edge\n    now   least  by\n";
    for margin in narrowest(found) {
        let Margin { id, now, least, by } = margin;
        let _ = writeln!(text, "  {:>5}  {:>6}  {id} ({by})", short(*now), short(*least));
    }
    format!("{text}\n{}\n", summary(found))
}

pub(super) fn markdown(found: &Sensitivity) -> String {
    let mut text = format!("{}\n", wrapped(&summary(found), 0));
    for parameter in found.parameters.iter().filter(|one| breaks(one)) {
        let Parameter { key, value, kind, moved: [low, high] } = parameter;
        let item = format!(
            "* `{key}` = {value}, {}. At {}: {}. At {}: {}.",
            kind.word(),
            low.value,
            consequence(low, "`"),
            high.value,
            consequence(high, "`")
        );
        text += &wrapped(&item, 2);
    }
    for (kind, what) in
        [(Kind::Free, "Free (figures move, nothing breaks)"), (Kind::Inert, "No figure moves with")]
    {
        let keys: Vec<_> = of_kind(found, kind).iter().map(|key| format!("`{key}`")).collect();
        if !keys.is_empty() {
            text += &format!("\n{}", wrapped(&format!("{what}: {}.", keys.join(", ")), 0));
        }
    }
    text += "\nThe claims that are nearest to an edge, and the number that brings each nearest or over it:\n";
    text += "\n| claim | margin | least | by |\n| --- | ---: | ---: | --- |\n";
    for Margin { id, now, least, by } in narrowest(found) {
        let by = if by.is_empty() { "-".to_owned() } else { format!("`{by}`") };
        let _ = writeln!(text, "| `{id}` | {} | {} | {by} |", short(*now), short(*least));
    }
    text
}

fn breaks(parameter: &Parameter) -> bool {
    matches!(parameter.kind, Kind::Pinned | Kind::Bounded)
}

fn consequence(moved: &Moved, quote: &str) -> String {
    match (&moved.impossible, moved.breaks.is_empty()) {
        (Some(why), _) => format!("not possible ({why})"),
        (None, true) => "nothing breaks".to_owned(),
        (None, false) => {
            let ids = moved.breaks.iter().map(|id| format!("{quote}{id}{quote}"));
            format!("breaks {}", ids.collect::<Vec<_>>().join(", "))
        }
    }
}

fn of_kind(found: &Sensitivity, kind: Kind) -> Vec<&str> {
    let of = found.parameters.iter().filter(|one| one.kind == kind);
    of.map(|one| one.key.as_str()).collect()
}

/// The claims that lie nearest to an end, or come nearest when a number moves.
fn narrowest(found: &Sensitivity) -> Vec<&Margin> {
    let mut all: Vec<_> = found.margins.iter().collect();
    all.sort_by(|a, b| a.now.total_cmp(&b.now));
    all.truncate(NARROWEST);
    all
}

fn summary(found: &Sensitivity) -> String {
    let count = |kind| of_kind(found, kind).len();
    format!(
        "Of {} numbers moved by {} % on {}, the claims pin {} on both sides and {} on one; {} are free, \
         and {} move no figure.",
        found.parameters.len(),
        short(found.share * 100.0),
        found.device,
        count(Kind::Pinned),
        count(Kind::Bounded),
        count(Kind::Free),
        count(Kind::Inert)
    )
}

pub(super) fn json(found: &Sensitivity) -> Value {
    let moved = |one: &Moved| json!({ "value": one.value, "breaks": one.breaks, "impossible": one.impossible });
    let parameter = |one: &Parameter| {
        json!({
            "key": one.key,
            "value": one.value,
            "kind": one.kind.word(),
            "low": moved(&one.moved[0]),
            "high": moved(&one.moved[1]),
        })
    };
    let margin = |one: &Margin| {
        // JSON has no infinity.
        let least = one.least.is_finite().then_some(one.least);
        json!({ "id": one.id, "now": one.now, "least": least, "by": one.by })
    };
    json!({
        "device": found.device,
        "share": found.share,
        "parameters": found.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "claims": found.margins.iter().map(margin).collect::<Vec<_>>(),
    })
}
