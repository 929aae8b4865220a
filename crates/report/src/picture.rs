//! The results as one picture: an SVG that can stand in a README.
//!
//! It brings its own background in either theme, so that it is readable wherever it is put. It
//! shows at most the first two panels of the first server.

use crate::chart;
use crate::markup::escape;
use crate::model::{Cell, Results};
use crate::story::story;
use std::fmt::Write;

const MARGIN: f64 = 32.0;
const GAP: f64 = 44.0;
const TOP: f64 = 132.0;

/// The results as an SVG document.
pub fn picture(results: &Results) -> String {
    let cells = results.cells();
    let runtime = cells.first().and_then(|cell| cell.runtime);
    let shown: Vec<&Cell<'_>> = cells.iter().filter(|c| c.runtime == runtime).take(2).collect();
    let panels = shown.len().max(1) as f64;
    let width = 2.0 * MARGIN + panels * chart::WIDTH + (panels - 1.0) * GAP;
    let rows = shown.iter().map(|cell| cell.rows.len()).max().unwrap_or(0);
    let height = TOP + chart::height(rows) + 40.0;
    let story = story(results);
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{}\">\n<style>\n{}{}\
         svg .head {{ font-size: 22px; font-weight: 700; }}\nsvg .back {{ fill: var(--card); stroke: var(--edge); }}\n\
         </style>\n<rect class=\"back\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"14\"/>\n",
        escape(&story.headline),
        include_str!("../assets/colours.css"),
        include_str!("../assets/chart.css"),
        width - 1.0,
        height - 1.0,
    );
    let (first, second) = match story.headline.split_once(". ") {
        Some((first, second)) => (format!("{first}."), second),
        None => (story.headline.clone(), ""),
    };
    for (class, y, text) in
        [("head", 46.0, first.as_str()), ("head", 74.0, second), ("muted", 100.0, &story.detail)]
    {
        let text = escape(text);
        let _ = writeln!(svg, "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\">{text}</text>");
    }
    for (i, cell) in shown.iter().enumerate() {
        let x = MARGIN + i as f64 * (chart::WIDTH + GAP);
        let panel = chart::panel(results, cell);
        let _ = writeln!(svg, "<g transform=\"translate({x} {TOP})\">{panel}</g>");
    }
    key(&mut svg, height - 26.0);
    svg.push_str("</svg>\n");
    svg
}

fn key(svg: &mut String, y: f64) {
    let (x, base) = (MARGIN, y - 10.0);
    let _ = writeln!(
        svg,
        "<rect class=\"work\" x=\"{x}\" y=\"{base}\" width=\"22\" height=\"11\" rx=\"2\"/>\
         <text class=\"small\" x=\"{}\" y=\"{y}\">what a busy GPU needs</text>\
         <rect class=\"lost\" x=\"{}\" y=\"{base}\" width=\"22\" height=\"11\" rx=\"2\"/>\
         <text class=\"small\" x=\"{}\" y=\"{y}\">lost to a cold one</text>\
         <circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"2.5\"/>\
         <text class=\"small\" x=\"{}\" y=\"{y}\">one request; whiskers: 95 % interval of the median</text>",
        x + 30.0,
        x + 190.0,
        x + 220.0,
        x + 350.0,
        y - 4.5,
        x + 360.0
    );
}
