//! The page.

use crate::chart;
use crate::markup::{escape, ms, percent};
use crate::model::{Cell, Estimate, Late, Results, Row, about, runtime_name};
use crate::story::story;
use std::fmt::Write;

/// What stands in the head of each page, so that a page of ours can be told from another file.
pub const GENERATOR: &str = r#"<meta name="generator" content="everwarm"#;

/// The results as one HTML page.
pub fn page(results: &Results) -> String {
    let story = story(results);
    let mut html = String::with_capacity(32 << 10);
    let version = results.everwarm.as_deref().unwrap_or_default();
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n{GENERATOR} {}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{}{}{}</style>\n</head>\n<body>\n<main>\n",
        escape(version),
        escape(&story.headline),
        include_str!("../assets/colours.css"),
        include_str!("../assets/chart.css"),
        include_str!("../assets/page.css"),
    );
    html.push_str(
        "<p class=\"brand\"><i></i>everwarm <span>the first token is never cold</span></p>\n",
    );
    let _ = writeln!(html, "<h1>{}</h1>", escape(&story.headline));
    let _ = writeln!(html, "<p class=\"detail\">{}</p>", escape(&story.detail));
    badges(&mut html, results);
    panels(&mut html, results);
    tables(&mut html, results);
    method(&mut html, results);
    commands(&mut html, results);
    let _ = writeln!(
        html,
        "<footer>Made by everwarm {}. This page is one file and loads nothing.</footer>\n</main>\n\
         </body>\n</html>",
        escape(version)
    );
    html
}

fn badges(html: &mut String, results: &Results) {
    let mut badge = |class: &str, text: &str| {
        let _ = writeln!(html, "<span class=\"badge{class}\">{}</span>", escape(text));
    };
    if results.simulated() {
        badge("", "measured on a simulated GPU, by the wall clock");
    }
    let invalid = results.rows.iter().filter(|row| !row.valid).count();
    match invalid {
        0 => badge("", "all rows valid"),
        n => badge(" bad", &format!("{n} of {} rows not valid", results.rows.len())),
    }
    if let Some(late) = worst(results) {
        badge("", &format!("simulation late by {} ms at most in 99 % of events", ms(late.p99_ms)));
    }
}

fn worst(results: &Results) -> Option<Late> {
    let lates = results.runs.iter().filter_map(|run| run.late);
    lates.max_by(|a, b| a.p99_ms.total_cmp(&b.p99_ms))
}

fn panels(html: &mut String, results: &Results) {
    html.push_str("<div class=\"panels\">\n");
    for cell in results.cells() {
        let height = chart::height(cell.rows.len());
        let _ = writeln!(
            html,
            "<figure><svg viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"{}\">{}</svg></figure>",
            chart::WIDTH,
            escape(&chart::description(&cell)),
            chart::panel(results, &cell)
        );
    }
    html.push_str(
        "</div>\n<ul class=\"key\"><li class=\"work\"><b></b>what a busy GPU needs</li>\
         <li class=\"lost\"><b></b>lost to a cold one</li><li class=\"floor\"><b></b>the busy median</li>\
         <li class=\"dot\"><b></b>one request (void ones hollow)</li>\
         <li>whiskers: 95 % interval of the median</li></ul>\n",
    );
}

fn tables(html: &mut String, results: &Results) {
    html.push_str(
        "<h2>The numbers</h2>\n<div class=\"scroll\"><table>\n<thead><tr><th>condition</th>\
         <th>TTFT, ms</th><th>95 %</th><th>penalty removed</th><th>95 %</th><th>lead, ms</th>\
         <th>GPU, J</th><th>CPU, J</th><th>requests</th></tr></thead>\n<tbody>\n",
    );
    for cell in results.cells() {
        let server = cell.runtime.map(runtime_name).unwrap_or_default();
        let of = if server.is_empty() { "" } else { " \u{b7} " };
        let _ = writeln!(
            html,
            "<tr><th colspan=\"9\">{} tokens{of}{}</th></tr>",
            cell.prompt_tokens,
            escape(&server)
        );
        cell.rows.iter().for_each(|row| line(html, row));
    }
    html.push_str("</tbody></table></div>\n");
    html.push_str(
        "<p class=\"note\">Penalty removed = (idle \u{2212} c) / (idle \u{2212} busy), of medians. \
         Intervals are bootstraps. Lead: from the pre-warm\u{2019}s submission to the start of the \
         prefill on the GPU. Energy: one idle second and the request, GPU rail and CPU spent on \
         submission.</p>\n",
    );
}

fn line(html: &mut String, row: &Row) {
    let name = escape(&row.condition);
    if !row.valid {
        let why = escape(row.why.as_deref().unwrap_or("no samples"));
        let _ = writeln!(
            html,
            "<tr><td>{name}</td><td class=\"why\" colspan=\"8\">not valid: {why}</td></tr>"
        );
        return;
    }
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("\u{2013}".to_owned(), |value| format!("{value:.digits$}"))
    };
    let between = |estimate: &Estimate| match (estimate.lo, estimate.hi) {
        (Some(lo), Some(hi)) => format!("<small>{} \u{2026} {}</small>", ms(lo), ms(hi)),
        _ => String::new(),
    };
    let shares = row.penalty_removed_interval;
    let shares =
        shares.map(|[lo, hi]| format!("<small>{} \u{2026} {}</small>", percent(lo), percent(hi)));
    let _ = writeln!(
        html,
        "<tr><td>{name}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td>{}</td><td>{}</td></tr>",
        row.ttft_ms.median.map_or("\u{2013}".to_owned(), ms),
        between(&row.ttft_ms),
        row.penalty_removed.map_or("\u{2013}".to_owned(), percent),
        shares.unwrap_or_default(),
        number(row.lead_ms.median, 1),
        number(row.gpu_j, 2),
        number(row.cpu_j, 2),
        row.samples
    );
}

fn method(html: &mut String, results: &Results) {
    html.push_str("<h2>What was measured</h2>\n<dl>\n");
    let cells = results.cells();
    let first: Option<&Cell<'_>> = cells.first();
    for row in first.into_iter().flat_map(|cell| &cell.rows) {
        let _ =
            writeln!(html, "<dt>{}</dt><dd>{}</dd>", escape(&row.condition), about(&row.condition));
    }
    html.push_str("</dl>\n");
    html.push_str(
        "<p class=\"note\">Time to first token runs from the moment the client connects to the read \
         of the socket that brings the first non-empty content. Conditions follow each other \
         round-robin, prompt lengths in a random order, and no two prompts begin alike. ",
    );
    if let Some(late) = worst(results) {
        let max = results.runs.iter().filter_map(|r| r.late).fold(0.0, |m: f64, l| m.max(l.max_ms));
        let _ = write!(
            html,
            "The simulated GPU keeps the wall clock\u{2019}s time: 99 % of its events were late by \
             {} ms or less, the latest by {} ms. A request during which it was late by more than {} \
             ms, or that waited elsewhere for a free processor, is void and was repeated.",
            ms(late.p99_ms),
            ms(max),
            ms(late.limit_ms)
        );
    }
    html.push_str("</p>\n");
}

fn commands(html: &mut String, results: &Results) {
    let Some(command) = &results.command else { return };
    let _ = writeln!(html, "<h2>Repeat it</h2>\n<pre><code>{}</code></pre>", escape(command));
    html.push_str(
        "<p class=\"note\">In front of a server of your own, on a machine with a GPU of its own:</p>\n\
         <pre><code>everwarm proxy --upstream http://127.0.0.1:8080\n\
         everwarm ttft --url http://127.0.0.1:8081 --admin http://127.0.0.1:8082</code></pre>\n",
    );
}
