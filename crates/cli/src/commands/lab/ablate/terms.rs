//! The table of terms: what breaks without each, as text, Markdown and JSON.

use super::super::{short, shown_unit};
use super::wrapped;
use everwarm_lab::{Ablated, Ablation, Ablations, Change, Claims, Expect, Table};
use serde_json::{Value, json};
use std::fmt::Write;

/// What is shown.
pub(super) struct Shown<'a> {
    pub claims: &'a Claims,
    pub ablations: &'a Ablations,
    pub table: &'a Table,
}

impl Shown<'_> {
    fn rows(&self) -> impl Iterator<Item = (&Ablation, &Ablated)> {
        self.ablations.ablations.iter().zip(&self.table.without)
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for (term, ablated) in self.rows() {
            let _ = writeln!(text, "without {}: {}", term.name, term.why);
            for (word, changes) in [("breaks", &ablated.breaks), ("begins", &ablated.begins)] {
                for change in changes {
                    let _ = writeln!(text, "  {word}  {:32} {}", change.after.id, self.off(change));
                }
            }
            if ablated.breaks.is_empty() {
                text += "  breaks nothing: the claims give no reason for this term\n";
            }
        }
        let idle = match self.idle().as_slice() {
            [] => String::new(),
            names => format!("Nothing breaks without: {}.\n", names.join(", ")),
        };
        format!("{text}\n{}\n{idle}", self.summary())
    }

    /// A table of counts by groups of claims, then each term with its claims.
    pub(super) fn markdown(&self) -> String {
        let groups = self.groups();
        let mut text = format!("| without | {} | all |\n", groups.join(" | "));
        text += &format!("| --- |{}\n", " ---: |".repeat(groups.len() + 1));
        for (term, ablated) in self.rows() {
            let count = |group: &&str| {
                let of = ablated.breaks.iter().filter(|one| group_of(&one.after.id) == *group);
                match of.count() {
                    0 => String::new(),
                    n => n.to_string(),
                }
            };
            let counts: Vec<_> = groups.iter().map(count).collect();
            let counts = counts.join(" | ");
            let _ = writeln!(text, "| {} | {counts} | {} |", term.name, ablated.breaks.len());
        }
        text.push('\n');
        for (term, ablated) in self.rows() {
            text += &wrapped(&self.item(term, ablated), 2);
        }
        format!("{text}\n{}", wrapped(&self.summary(), 0))
    }

    /// One term as an item of a list.
    fn item(&self, term: &Ablation, ablated: &Ablated) -> String {
        let list = |changes: &[Change]| {
            let one = |change: &Change| format!("`{}` {}", change.after.id, self.off(change));
            changes.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let breaks = match ablated.breaks.is_empty() {
            true => "Nothing breaks.".to_owned(),
            false => format!("Breaks {}.", list(&ablated.breaks)),
        };
        let begins = match ablated.begins.is_empty() {
            true => String::new(),
            false => format!(" Begins to hold: {}.", list(&ablated.begins)),
        };
        format!("* **{}** ({}). {breaks}{begins}", term.name, term.why)
    }

    /// "4 P (2)": what is measured, and what was expected.
    fn off(&self, change: &Change) -> String {
        let claim = &self.claims.claims[change.claim];
        let after = &change.after;
        let unit = shown_unit(&after.unit);
        match claim.worst(after) {
            // Such as a time until something that never comes.
            None => format!("no value ({})", claim.expect),
            // The values are right and the order is not.
            Some(worst) if worst.strain <= 1.0 && after.reason.is_some() => {
                after.reason.clone().unwrap_or_default()
            }
            Some(worst) => {
                let expected = match &claim.expect {
                    Expect::List { tol, .. } => format!("{} ± {tol}", short(worst.middle)),
                    one => one.to_string(),
                };
                let measured = format!("{} {unit}", short(worst.value));
                format!("{} ({expected})", measured.trim_end())
            }
        }
    }

    /// The first part of the claims' ids, in the file's order.
    fn groups(&self) -> Vec<&str> {
        let mut groups = Vec::new();
        for claim in &self.claims.claims {
            let group = group_of(&claim.id);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        groups
    }

    /// Terms without which nothing breaks.
    fn idle(&self) -> Vec<&str> {
        let idle = self.rows().filter(|(_, ablated)| ablated.breaks.is_empty());
        idle.map(|(term, _)| term.name.as_str()).collect()
    }

    fn summary(&self) -> String {
        let whole = &self.table.whole;
        let (held, total) = (whole.held(), whole.verdicts.len());
        format!("With all terms {held} of {total} claims hold on {}.", whole.device)
    }

    pub(super) fn json(&self) -> Value {
        let change = |change: &Change| {
            let claim = &self.claims.claims[change.claim];
            let worst = claim.worst(&change.after);
            json!({
                "id": change.after.id,
                "expect": claim.expect.to_string(),
                "before": self.table.whole.verdicts[change.claim].measured,
                "measured": change.after.measured,
                "unit": change.after.unit,
                // JSON has no infinity; an exact value that is missed has no strain.
                "strain": worst.map(|w| w.strain).filter(|strain| strain.is_finite()),
                "reason": change.after.reason,
            })
        };
        let row = |(term, ablated): (&Ablation, &Ablated)| {
            json!({
                "name": term.name,
                "why": term.why,
                "set": term.set.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
                "held": ablated.held,
                "breaks": ablated.breaks.iter().map(change).collect::<Vec<_>>(),
                "begins": ablated.begins.iter().map(change).collect::<Vec<_>>(),
            })
        };
        json!({
            "device": self.table.whole.device,
            "held": self.table.whole.held(),
            "total": self.table.whole.verdicts.len(),
            "without": self.rows().map(row).collect::<Vec<_>>(),
        })
    }
}

fn group_of(id: &str) -> &str {
    id.split('.').next().unwrap_or(id)
}
