//! One panel: the conditions at one prompt length, as bars.
//!
//! A bar begins at 0 and has two parts: as long as a busy GPU takes, and what is lost beyond
//! it. On it stand the interval of the median and each request as a dot, void ones hollow. The
//! panel is SVG of a fixed width that a phone can show at full size; colours come from the CSS
//! around it, and nothing is told by colour alone.

use crate::markup::{escape, ms, percent};
use crate::model::{Cell, Results, Row, Sample, about, runtime_name};
use std::fmt::Write;

/// Width of a panel. Unit: px.
pub(crate) const WIDTH: f64 = 440.0;

const HEAD: f64 = 50.0;
const ROW: f64 = 56.0;
const FOOT: f64 = 30.0;
const BAR_TOP: f64 = 22.0;
const BAR: f64 = 16.0;
/// Width of the longest bar; the numbers stand to the right of it.
const PLOT: f64 = 350.0;

/// Height of a panel of so many rows. Unit: px.
pub(crate) fn height(rows: usize) -> f64 {
    HEAD + ROW * rows as f64 + FOOT
}

/// A panel's content, without the `svg` element around it.
pub(crate) fn panel(results: &Results, cell: &Cell<'_>) -> String {
    let samples = samples(results, cell);
    let scale = Scale::new(cell, &samples);
    let bottom = HEAD + ROW * cell.rows.len() as f64;
    let mut svg = String::new();
    title(&mut svg, cell);
    axis(&mut svg, &scale, bottom);
    for (i, row) in cell.rows.iter().enumerate() {
        let top = HEAD + ROW * i as f64;
        label(&mut svg, cell, row, top);
        if row.valid
            && let Some(median) = row.ttft_ms.median
        {
            bar(&mut svg, &scale, cell.median("busy"), median, top + BAR_TOP);
        }
        let own = samples.iter().filter(|s| s.condition == row.condition);
        dots(&mut svg, &scale, own, top + BAR_TOP);
        if row.valid {
            whisker(&mut svg, &scale, row, top + BAR_TOP);
        }
    }
    if let Some(busy) = cell.median("busy") {
        floor(&mut svg, scale.x(busy), cell.rows.len());
    }
    svg
}

/// What a panel shows, in words, for those who can't see it.
pub(crate) fn description(cell: &Cell<'_>) -> String {
    let line = |row: &&Row| match row.ttft_ms.median.filter(|_| row.valid) {
        Some(median) => format!("{} {} ms", row.condition, ms(median)),
        None => format!("{} not valid", row.condition),
    };
    let rows: Vec<String> = cell.rows.iter().map(line).collect();
    format!("Time to first token of a {}-token prompt: {}.", cell.prompt_tokens, rows.join(", "))
}

/// The busy median, marked on every bar but not through the words between them.
fn floor(svg: &mut String, x: f64, rows: usize) {
    let tops = (0..rows).map(|i| HEAD + ROW * i as f64 + BAR_TOP);
    let marks: String = tops.map(|y| format!("M{x:.1} {:.0}V{:.0}", y - 3.0, y + 28.0)).collect();
    let _ = write!(svg, r#"<path class="floor" d="{marks}"/>"#);
}

struct Scale {
    max: f64,
    step: f64,
}

impl Scale {
    fn new(cell: &Cell<'_>, samples: &[&Sample]) -> Self {
        let rows = cell.rows.iter().flat_map(|row| [row.ttft_ms.median, row.ttft_ms.hi]);
        let dots = samples.iter().filter(|s| s.labels.is_empty()).map(|s| s.ttft_ms);
        let longest = rows.chain(dots).flatten().fold(1.0, f64::max);
        let step = nice(longest / 4.0);
        Scale { max: longest * 1.03, step }
    }

    fn x(&self, ms: f64) -> f64 {
        (ms / self.max * PLOT).clamp(0.0, PLOT)
    }
}

/// The nearest step of 1, 2 or 5 times a power of ten.
pub(crate) fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let lead = step / power;
    power
        * if lead < 1.5 {
            1.0
        } else if lead < 3.5 {
            2.0
        } else if lead < 7.5 {
            5.0
        } else {
            10.0
        }
}

fn title(svg: &mut String, cell: &Cell<'_>) {
    let server = cell.runtime.map(runtime_name).unwrap_or_default();
    let _ = write!(
        svg,
        r#"<text class="title" x="0" y="18">{}-token prompt</text><text class="muted" x="{WIDTH}" y="18" text-anchor="end">{}</text><text class="small" x="0" y="36">time to first token</text>"#,
        cell.prompt_tokens,
        escape(&server)
    );
}

fn axis(svg: &mut String, scale: &Scale, bottom: f64) {
    let ticks = (scale.max / scale.step).floor() as u32;
    for tick in 0..=ticks {
        let value = f64::from(tick) * scale.step;
        let x = scale.x(value);
        let anchor = match tick {
            0 => "start",
            _ => "middle",
        };
        let unit = if tick == ticks { " ms" } else { "" };
        let _ = write!(
            svg,
            r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{HEAD}" y2="{bottom}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="{anchor}">{value}{unit}</text>"#,
            bottom + 18.0
        );
    }
}

fn label(svg: &mut String, cell: &Cell<'_>, row: &Row, top: f64) {
    let y = top + 15.0;
    let _ = write!(
        svg,
        r#"<text x="0" y="{y}"><tspan class="name">{}</tspan><tspan class="small" dx="8">{}</tspan></text>"#,
        escape(&row.condition),
        about(&row.condition)
    );
    let value = match row.ttft_ms.median.filter(|_| row.valid) {
        Some(median) => format!("{} ms", ms(median)),
        None => "not valid".to_owned(),
    };
    let beside = top + BAR_TOP + BAR - 3.5;
    let _ = write!(
        svg,
        r#"<text class="value" x="{WIDTH}" y="{beside}" text-anchor="end">{value}</text><text class="verdict" x="{WIDTH}" y="{y}" text-anchor="end">{}</text>"#,
        verdict(cell, row)
    );
}

/// What a row comes to.
fn verdict(cell: &Cell<'_>, row: &Row) -> String {
    let beyond = row.ttft_ms.median.zip(cell.median("busy")).map(|(own, busy)| own - busy);
    match (row.condition.as_str(), beyond, row.penalty_removed) {
        _ if !row.valid => String::new(),
        ("idle", Some(beyond), _) if beyond > 0.0 => format!("+{} ms", ms(beyond)),
        ("busy" | "busy-hold" | "idle", ..) => String::new(),
        (_, _, Some(share)) => format!("{} removed", percent(share)),
        _ => String::new(),
    }
}

fn bar(svg: &mut String, scale: &Scale, busy: Option<f64>, median: f64, top: f64) {
    let floor = busy.unwrap_or(median).min(median);
    let (split, end) = (scale.x(floor), scale.x(median));
    let _ = write!(
        svg,
        r#"<rect class="work" x="0" y="{top}" width="{split:.1}" height="{BAR}" rx="2"/>"#
    );
    if end - split >= 0.5 {
        let _ = write!(
            svg,
            r#"<rect class="lost" x="{split:.1}" y="{top}" width="{:.1}" height="{BAR}" rx="2"/>"#,
            end - split
        );
    }
}

fn dots<'a>(
    svg: &mut String,
    scale: &Scale,
    samples: impl Iterator<Item = &'a &'a Sample>,
    top: f64,
) {
    for (i, sample) in samples.enumerate() {
        let Some(ttft) = sample.ttft_ms.filter(|ttft| *ttft <= scale.max) else { continue };
        // Below the bar and at two heights, so that near ones can be told apart.
        let y = top + BAR + 5.0 + 4.0 * (i % 2) as f64;
        let void = if sample.labels.is_empty() { "" } else { " void" };
        let why = if sample.labels.is_empty() {
            String::new()
        } else {
            format!(", void: {}", sample.labels.join(", "))
        };
        let _ = write!(
            svg,
            r#"<circle class="dot{void}" cx="{:.1}" cy="{y:.1}" r="2"><title>{} ms{}</title></circle>"#,
            scale.x(ttft),
            ms(ttft),
            escape(&why)
        );
    }
}

fn whisker(svg: &mut String, scale: &Scale, row: &Row, top: f64) {
    let (Some(lo), Some(hi)) = (row.ttft_ms.lo, row.ttft_ms.hi) else { return };
    let (lo, hi, y) = (scale.x(lo), scale.x(hi), top + BAR / 2.0);
    let (above, below) = (y - 5.0, y + 5.0);
    let _ = write!(
        svg,
        r#"<path class="interval" d="M{lo:.1} {above:.1}V{below:.1}M{lo:.1} {y:.1}H{hi:.1}M{hi:.1} {above:.1}V{below:.1}"/>"#
    );
}

fn samples<'a>(results: &'a Results, cell: &Cell<'_>) -> Vec<&'a Sample> {
    let asked = cell.rows[0].asked();
    let run = results.run(cell.runtime);
    run.into_iter().flat_map(|run| &run.samples).filter(|s| s.tokens == asked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_nice() {
        let check = |step: f64, expected: f64| assert!((nice(step) - expected).abs() < 1e-9);
        check(37.0, 50.0);
        check(12.0, 10.0);
        check(230.0, 200.0);
        check(0.8, 1.0);
    }
}
