//! What the numbers say, in two sentences.

use crate::markup::ms;
use crate::model::{Cell, Results, runtime_name};

/// The headline and what stands below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// One sentence with the numbers.
    pub headline: String,
    /// Where, how, and how sure.
    pub detail: String,
}

/// Tells the results by their shortest prompt, where the penalty weighs most.
pub fn story(results: &Results) -> Story {
    let cells = results.cells();
    let shortest = cells.iter().min_by_key(|cell| cell.prompt_tokens);
    let headline = match shortest {
        Some(cell) => headline(cell),
        None => "There are no results.".to_owned(),
    };
    Story { headline, detail: detail(results) }
}

fn headline(cell: &Cell<'_>) -> String {
    let (Some(idle), Some(busy)) = (cell.median("idle"), cell.median("busy")) else {
        let invalid = cell.rows.iter().any(|row| !row.valid);
        return match invalid {
            true => {
                "No number: this machine was too busy to measure, or the server did not answer."
            }
            false => "Time to first token, by what came before the request.",
        }
        .to_owned();
    };
    let penalty = idle - busy;
    // A penalty that the bench itself calls none gives no share to any condition.
    if penalty <= 0.0 || cell.valid("busy").and_then(|row| row.penalty_removed).is_none() {
        return format!(
            "No cold first token here: {} ms after a second of idle, {} ms right after work.",
            ms(idle),
            ms(busy)
        );
    }
    let cost = format!("A cold first token costs {} ms", ms(penalty));
    let share = |name| cell.valid(name).and_then(|row| row.penalty_removed).map(taken);
    match (share("hold"), share("pre-warm-hint")) {
        (Some(hold), Some(hint)) if hold == hint => {
            format!("{cost}. A hold takes {hold} away, and so does a hint 100 ms ahead.")
        }
        (Some(hold), Some(hint)) => {
            format!("{cost}. A hold takes {hold} away, a hint 100 ms ahead {hint}.")
        }
        (Some(hold), None) => format!("{cost}. A hold takes {hold} away."),
        (None, Some(hint)) => format!("{cost}. A hint 100 ms ahead takes {hint} away."),
        (None, None) => format!("{cost}: {} ms instead of {} ms.", ms(idle), ms(busy)),
    }
}

/// A share in words.
fn taken(share: f64) -> String {
    match (share * 100.0).round() {
        percents if percents >= 100.0 => "all of it".to_owned(),
        percents if percents <= 0.0 => "none of it".to_owned(),
        percents => format!("{percents:.0} % of it"),
    }
}

fn detail(results: &Results) -> String {
    let mut parts = Vec::new();
    let mut devices: Vec<&str> =
        results.runs.iter().filter_map(|run| run.device_name.as_deref()).collect();
    devices.dedup();
    let simulated = if results.simulated() { "Simulated: " } else { "" };
    if !devices.is_empty() {
        parts.push(format!("{simulated}{}", devices.join(", ")));
    }
    let mut servers: Vec<String> =
        results.runs.iter().filter_map(|run| run.runtime.as_deref()).map(runtime_name).collect();
    servers.dedup();
    if !servers.is_empty() {
        parts.push(servers.join(" and "));
    }
    let requests: usize = results.runs.iter().map(|run| run.samples.len()).sum();
    if requests > 0 {
        parts.push(format!("{requests} requests, interleaved, timed at the HTTP client"));
    }
    parts.join(" \u{b7} ")
}
