//! Curves over what is expected of them, as an SVG document.
//!
//! Panels stand below each other, each with its axes, linear or by powers of ten, and a legend.
//! Expectations are boxes: a range in a direction has its length there, a point is a small box.
//! A box that belongs to one curve has that curve's colour at its edge. It knows nothing of what is
//! plotted, opens no file, and gives equal bytes for equal input. The picture brings its own
//! background in either theme.

use crate::markup::escape;
use std::fmt::Write;

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Its first line.
    pub title: String,
    /// A line of explanation below it.
    pub note: String,
    /// From top to bottom.
    pub panels: Vec<PlotPanel>,
}

/// Curves between two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotPanel {
    /// To the right.
    pub x: PlotAxis,
    /// Upwards.
    pub y: PlotAxis,
    /// At most four have different colours.
    pub curves: Vec<PlotCurve>,
    /// What is expected.
    pub boxes: Vec<PlotBox>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotAxis {
    /// With its unit.
    pub label: String,
    /// By powers of ten; then both ends are above 0.
    pub log: bool,
    /// Lower and upper end.
    pub ends: (f64, f64),
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotCurve {
    /// In the legend.
    pub label: String,
    /// In the axes' units; what lies outside is left out.
    pub points: Vec<(f64, f64)>,
}

/// An expectation.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotBox {
    /// From, to.
    pub x: (f64, f64),
    /// From, to.
    pub y: (f64, f64),
    /// The curve whose it is, from 0.
    pub curve: Option<usize>,
    /// Shown when pointed at.
    pub title: String,
}

const WIDTH: f64 = 760.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 70.0;
/// From one panel's top to the next: legend, plot, axis.
const PANEL: f64 = 300.0;
const LEGEND: f64 = 26.0;
const PLOT: f64 = 216.0;
/// The least size of a box, and how much a range grows on the side without length. Unit: px.
const BOX_MIN: f64 = 9.0;
/// Curves of fewer points show them.
const DOTS_MAX: usize = 40;

/// The picture as an SVG document.
pub fn plot(plot: &Plot) -> String {
    let height = TOP + PANEL * plot.panels.len() as f64 + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{}\">\n<style>\n{}{}{}</style>\n\
         <rect class=\"back\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"14\"/>\n\
         <text class=\"title\" x=\"24\" y=\"34\">{}</text>\n\
         <text class=\"muted\" x=\"24\" y=\"55\">{}</text>\n",
        escape(&plot.title),
        include_str!("../assets/colours.css"),
        include_str!("../assets/chart.css"),
        include_str!("../assets/plot.css"),
        WIDTH - 1.0,
        height - 1.0,
        escape(&plot.title),
        escape(&plot.note),
    );
    for (n, panel) in plot.panels.iter().enumerate() {
        panel.draw(&mut svg, TOP + PANEL * n as f64);
    }
    svg + "</svg>\n"
}

impl PlotPanel {
    fn draw(&self, svg: &mut String, top: f64) {
        let plot = top + LEGEND;
        self.legend(svg, top + 16.0);
        self.grid(svg, plot);
        for one in &self.boxes {
            self.expectation(svg, one, plot);
        }
        for (n, curve) in self.curves.iter().enumerate() {
            self.curve(svg, curve, n % 4, plot);
        }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.share(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64, plot: f64) -> f64 {
        plot + PLOT * (1.0 - self.y.share(value))
    }

    fn legend(&self, svg: &mut String, y: f64) {
        let mut x = LEFT;
        for (n, curve) in self.curves.iter().enumerate() {
            let _ = write!(
                svg,
                "<path class=\"curve k{}\" d=\"M{x:.0} {:.0}h22\"/><text class=\"small\" x=\"{:.0}\" y=\"{y}\">{}</text>",
                n % 4,
                y - 4.0,
                x + 28.0,
                escape(&curve.label)
            );
            // No font is at hand that could be measured.
            x += 28.0 + 6.6 * curve.label.chars().count() as f64 + 20.0;
        }
        svg.push('\n');
    }

    fn grid(&self, svg: &mut String, plot: f64) {
        let bottom = plot + PLOT;
        for tick in self.x.ticks() {
            let x = self.x(tick);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{plot}\" y2=\"{bottom}\"/>\
                 <text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                number(tick)
            );
        }
        for tick in self.y.ticks() {
            let y = self.y(tick, plot);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                number(tick)
            );
        }
        let middle = plot + PLOT / 2.0;
        let _ = writeln!(
            svg,
            "<rect class=\"frame\" x=\"{LEFT}\" y=\"{plot}\" width=\"{}\" height=\"{PLOT}\"/>\
             <text class=\"small\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text class=\"small\" transform=\"translate(24 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            WIDTH - LEFT - RIGHT,
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            bottom + 34.0,
            escape(&self.x.label),
            escape(&self.y.label)
        );
    }

    fn expectation(&self, svg: &mut String, one: &PlotBox, plot: f64) {
        let (left, width) = length(self.x(one.x.0), self.x(one.x.1));
        let (top, height) = length(self.y(one.y.1, plot), self.y(one.y.0, plot));
        let edge = one.curve.map(|curve| format!(" k{}", curve % 4)).unwrap_or_default();
        let _ = writeln!(
            svg,
            "<rect class=\"mark{edge}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{}</title></rect>",
            escape(&one.title)
        );
    }

    fn curve(&self, svg: &mut String, curve: &PlotCurve, colour: usize, plot: f64) {
        let inside = curve.points.iter().filter(|(x, y)| self.x.has(*x) && self.y.has(*y));
        let places: Vec<_> = inside.map(|(x, y)| (self.x(*x), self.y(*y, plot))).collect();
        let mut path = String::new();
        for (n, (x, y)) in thinned(&places).iter().enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if n == 0 { 'M' } else { 'L' });
        }
        let _ = write!(svg, "<path class=\"curve k{colour}\" d=\"{path}\"/>");
        if places.len() <= DOTS_MAX {
            for (x, y) in &places {
                let _ = write!(
                    svg,
                    "<circle class=\"point f{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\"/>"
                );
            }
        }
        svg.push('\n');
    }
}

/// Where a box begins and how long it is, at least so that it can be seen.
fn length(from: f64, to: f64) -> (f64, f64) {
    let grow = ((BOX_MIN - (to - from)) / 2.0).max(0.0);
    (from - grow, to - from + 2.0 * grow)
}

/// Without points that can't be told from the ones beside them: of those in one column of pixels
/// the first, the lowest, the highest and the last remain.
fn thinned(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for column in places.chunk_by(|a, b| (a.0 * 2.0).floor() == (b.0 * 2.0).floor()) {
        let extreme = |sign: f64| {
            (0..column.len()).max_by(|a, b| (sign * column[*a].1).total_cmp(&(sign * column[*b].1)))
        };
        let mut some =
            vec![0, extreme(1.0).unwrap_or(0), extreme(-1.0).unwrap_or(0), column.len() - 1];
        some.sort_unstable();
        some.dedup();
        kept.extend(some.into_iter().map(|n| column[n]));
    }
    kept
}

impl PlotAxis {
    /// Where a value lies between the ends: 0 at the lower, 1 at the upper one; not beyond them.
    fn share(&self, value: f64) -> f64 {
        let on = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).log10() } else { v };
        let (from, to) = (on(self.ends.0), on(self.ends.1));
        ((on(value) - from) / (to - from)).clamp(0.0, 1.0)
    }

    fn has(&self, value: f64) -> bool {
        (self.ends.0..=self.ends.1).contains(&value)
    }

    fn ticks(&self) -> Vec<f64> {
        let (from, to) = self.ends;
        if !self.log {
            let step = crate::chart::nice((to - from) / 5.0);
            let (first, last) = ((from / step).ceil() as i64, (to / step).floor() as i64);
            return (first..=last).map(|n| n as f64 * step).collect();
        }
        let powers = (from.log10().floor() as i32)..=(to.log10().ceil() as i32);
        let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|lead| lead * 10f64.powi(power)));
        all.filter(|tick| self.has(*tick)).collect()
    }
}

/// A tick's number, without what binary arithmetic adds.
fn number(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    format!("{}", if rounded == 0.0 { 0.0 } else { rounded })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(log: bool, ends: (f64, f64)) -> PlotAxis {
        PlotAxis { label: String::new(), log, ends }
    }

    #[test]
    fn axes_place_values_and_ticks() {
        let log = axis(true, (1.0, 1000.0));
        assert!((log.share(10.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!((log.share(0.0), log.share(1e9)), (0.0, 1.0));
        assert_eq!(axis(true, (1.0, 20.0)).ticks(), [1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(axis(false, (-10.0, 50.0)).ticks(), [-10.0, 0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
    }

    #[test]
    fn a_column_of_pixels_keeps_its_extremes() {
        let places: Vec<(f64, f64)> = (0..1000).map(|n| (5.0, f64::from(n % 7))).collect();
        let kept = thinned(&places);
        assert!(kept.len() <= 4);
        assert!(kept.iter().any(|p| p.1 == 0.0) && kept.iter().any(|p| p.1 == 6.0));
    }

    #[test]
    fn what_lies_outside_and_what_means_something_in_markup_stays_out() {
        let curve = PlotCurve { label: "a < b".into(), points: vec![(1.0, 1.0), (99.0, 1.0)] };
        let (x, y) = (axis(false, (0.0, 10.0)), axis(false, (0.0, 10.0)));
        let panel = PlotPanel { x, y, curves: vec![curve], boxes: Vec::new() };
        let svg = plot(&Plot { title: "t & u".into(), note: String::new(), panels: vec![panel] });
        assert!(svg.contains("a &lt; b") && svg.contains("t &amp; u"));
        assert_eq!(svg.matches("<circle").count(), 1);
    }
}
