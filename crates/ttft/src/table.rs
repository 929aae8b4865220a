//! Rows as text.

use crate::results::{Estimate, Row};
use std::fmt::Write;

/// The rows as a table for a terminal, one block a prompt length.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut length = None;
    let leads = rows.iter().any(|row| row.lead_ms.median.is_some());
    let energy = rows.iter().any(|row| row.gpu_j.is_some());
    for row in rows {
        if length.replace(row.prompt_tokens_asked) != Some(row.prompt_tokens_asked) {
            head(&mut text, row, leads, energy);
        }
        line(&mut text, row, leads, energy);
    }
    text
}

fn head(text: &mut String, row: &Row, leads: bool, energy: bool) {
    if !text.is_empty() {
        text.push('\n');
    }
    let asked = u64::from(row.prompt_tokens_asked);
    let length = match row.prompt_tokens == asked {
        true => format!("{asked} tokens"),
        false => format!("{} tokens ({asked})", row.prompt_tokens),
    };
    let _ =
        write!(text, "{length:<18}{:>9}  {:<17}{:>9}  {:<14}", "TTFT", "95 %", "removed", "95 %");
    if leads {
        let _ = write!(text, "{:>9}", "lead");
    }
    if energy {
        let _ = write!(text, "{:>9}{:>9}", "GPU", "CPU");
    }
    let trimmed = text.trim_end().len();
    text.truncate(trimmed);
    text.push('\n');
}

fn line(text: &mut String, row: &Row, leads: bool, energy: bool) {
    let start = text.len();
    let _ = write!(text, "{:<18}", row.condition);
    if !row.valid {
        let _ = writeln!(text, "not valid: {}", row.why.as_deref().unwrap_or("no samples"));
        return;
    }
    let unit = |value: Option<f64>, digits: usize, unit: &str| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$} {unit}"))
    };
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let removed = row.penalty_removed.map_or("-".to_owned(), percent);
    let interval = row.penalty_removed_interval;
    let interval = interval.map(|[lo, hi]| format!("{:.0} .. {:.0} %", lo * 100.0, hi * 100.0));
    let _ = write!(
        text,
        "{:>9}  {:<17}{removed:>9}  {:<14}",
        unit(row.ttft_ms.median, 1, "ms"),
        range(&row.ttft_ms),
        interval.unwrap_or_default()
    );
    if leads {
        let _ = write!(text, "{:>9}", unit(row.lead_ms.median, 1, "ms"));
    }
    if energy {
        let _ = write!(text, "{:>9}{:>9}", unit(row.gpu_j, 2, "J"), unit(row.cpu_j, 2, "J"));
    }
    let trimmed = start + text[start..].trim_end().len();
    text.truncate(trimmed);
    text.push('\n');
}

fn range(estimate: &Estimate) -> String {
    match (estimate.lo, estimate.hi) {
        (Some(lo), Some(hi)) => format!("{lo:.1} .. {hi:.1}"),
        _ => String::new(),
    }
}
