//! What policies are held against: the best that history could have given, and the best there is.

use crate::device::{Device, Warmth};
use everwarm_governor::Ending;
use everwarm_units::{Instant, Span};
use serde::Serialize;

/// From a request's end to the next one's first command buffer, without warming.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gap {
    /// How the request ended.
    pub after: Ending,
    /// The time between.
    pub idle: Span,
    /// The next one's prompt.
    pub tokens: u32,
}

/// So much energy, and what it takes away of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Unit: J.
    pub energy_j: f64,
    /// Unit: 1.
    pub removed: f64,
}

/// Everything that is lost in these gaps without warming.
fn lost(gaps: &[Gap], device: &Device) -> f64 {
    gaps.iter().map(|gap| device.lost(gap.tokens, gap.idle).as_secs()).sum()
}

/// The gaps of a replay under the policy that never warms.
pub fn gaps(never: &crate::Outcome) -> &[Gap] {
    &never.gaps
}

/// The best rule of the kind "so long after an answer be warm, then rest, then be warm again",
/// separate for each way in which answers end, chosen after the fact for the whole trace.
///
/// Elapsed time is cut into bins; a bin's worth is what would be lost by the requests that come in it,
/// its price the time that all gaps spend in it. Bins are taken from the best ratio downwards, and
/// every step is evaluated exactly, with what a window that ended shortly before still helps and
/// what one that begins too late leaves. Beside those stand all rules "be warm up to T". The frontier
/// is the upper hull of both: what lies on a line between two rules a coin can choose.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    frontier: Vec<Point>,
}

/// Bins of elapsed time: four a doubling, from 10 ms to a day.
const BINS: usize = 4 * 23;

fn edge(bin: usize) -> Span {
    match bin {
        0 => Span::ZERO,
        _ => Span::from_ms(10.0 * 2_f64.powf((bin - 1) as f64 / 4.0)),
    }
}

const ENDINGS: [Ending; 3] = [Ending::Unknown, Ending::Turn, Ending::ToolCalls];

/// Which bins are warm, for each ending.
type Rule = [[bool; BINS]; 3];

impl History {
    /// Of these gaps.
    pub fn new(gaps: &[Gap], device: &Device) -> Self {
        let mut bins = Vec::new();
        for (class, ending) in ENDINGS.into_iter().enumerate() {
            let of: Vec<&Gap> = gaps.iter().filter(|gap| gap.after == ending).collect();
            for bin in 0..BINS {
                let (from, to) = (edge(bin), edge(bin + 1));
                let spent = |gap: &&Gap| gap.idle.min(to).saturating_sub(from).as_secs();
                let price: f64 = of.iter().map(spent).sum();
                let here = of.iter().filter(|gap| from <= gap.idle && gap.idle < to);
                let worth: f64 = here.map(|gap| device.lost(gap.tokens, gap.idle).as_secs()).sum();
                if worth > 0.0 && price > 0.0 {
                    bins.push((worth / price, class, bin));
                }
            }
        }
        bins.sort_by(|a, b| b.0.total_cmp(&a.0));
        let all = lost(gaps, device);
        let mut points = vec![Point { energy_j: 0.0, removed: 0.0 }];
        let mut rule: Rule = [[false; BINS]; 3];
        for (_, class, bin) in bins {
            rule[class][bin] = true;
            points.push(evaluate(&rule, gaps, device, all));
        }
        let mut rule: Rule = [[false; BINS]; 3];
        for bin in 0..BINS {
            rule.iter_mut().for_each(|class| class[bin] = true);
            points.push(evaluate(&rule, gaps, device, all));
        }
        History { frontier: hull(points) }
    }

    /// What can be removed with so much energy.
    pub fn frontier(&self) -> &[Point] {
        &self.frontier
    }
}

fn evaluate(rule: &Rule, gaps: &[Gap], device: &Device, all: f64) -> Point {
    let windows: Vec<Vec<(Span, Span)>> = rule.iter().map(windows).collect();
    let (mut held, mut left) = (0.0, 0.0);
    for gap in gaps {
        let class = ENDINGS.iter().position(|ending| *ending == gap.after).expect("all are there");
        let at = |span: Span| Instant::ZERO + span;
        let mut warmth = Warmth { until: Some(Instant::ZERO), ..Warmth::GONE };
        warmth.idle_before = Span::ZERO;
        for (from, to) in windows[class].iter().take_while(|(from, _)| *from < gap.idle) {
            let to = (*to).min(gap.idle);
            warmth.begin(at(*from), Some(at(to)));
            held += to.saturating_sub(*from).as_secs();
        }
        left += warmth.lost(device, gap.tokens, at(gap.idle)).as_secs();
    }
    Point {
        energy_j: device.hold_power.as_w() * held,
        removed: if all > 0.0 { 1.0 - left / all } else { 0.0 },
    }
}

/// Neighbouring bins make one window.
fn windows(class: &[bool; BINS]) -> Vec<(Span, Span)> {
    let mut windows: Vec<(Span, Span)> = Vec::new();
    for bin in (0..BINS).filter(|bin| class[*bin]) {
        let (from, to) = (edge(bin), edge(bin + 1));
        match windows.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => windows.push((from, to)),
        }
    }
    windows
}

/// What knowing every arrival gives: each loss is removed by a pre-warm just in time or by a hold
/// through the gap, whichever uses less, the best bargains first.
pub fn clairvoyant(gaps: &[Gap], device: &Device) -> Vec<Point> {
    let bargain = |gap: &Gap| {
        let saved = device.lost(gap.tokens, gap.idle).as_secs();
        let hold = device.hold_power * gap.idle;
        (saved, hold.as_j().min(device.prewarm_energy.as_j()))
    };
    let mut bargains: Vec<_> = gaps.iter().map(bargain).filter(|(saved, _)| *saved > 0.0).collect();
    bargains.sort_by(|a, b| (b.0 / b.1).total_cmp(&(a.0 / a.1)));
    let all = lost(gaps, device);
    let mut point = Point { energy_j: 0.0, removed: 0.0 };
    let mut points = vec![point];
    for (saved, energy) in bargains {
        point.energy_j += energy;
        point.removed += saved / all;
        points.push(point);
    }
    points
}

/// What is removed with so much energy: straight between the points, which need no order. A point
/// that removes less for more is passed over, and more energy than the last has helps no more.
pub fn at_energy(points: &[Point], energy_j: f64) -> f64 {
    let mut sorted = points.to_vec();
    sorted.sort_by(|a, b| a.energy_j.total_cmp(&b.energy_j));
    let mut before = Point { energy_j: 0.0, removed: 0.0 };
    for point in sorted {
        if point.removed < before.removed {
            continue;
        }
        if point.energy_j > energy_j {
            let share = (energy_j - before.energy_j) / (point.energy_j - before.energy_j);
            return before.removed + (point.removed - before.removed) * share;
        }
        before = point;
    }
    before.removed
}

/// The upper hull, from the least energy to the greatest share.
fn hull(mut points: Vec<Point>) -> Vec<Point> {
    points.sort_by(|a, b| a.energy_j.total_cmp(&b.energy_j).then(b.removed.total_cmp(&a.removed)));
    let mut hull: Vec<Point> = Vec::new();
    for point in points {
        if hull.last().is_some_and(|last| point.removed <= last.removed) {
            continue;
        }
        while let [.., a, b] = hull.as_slice() {
            let slope = |p: &Point, q: &Point| (q.removed - p.removed) / (q.energy_j - p.energy_j);
            if slope(a, b) > slope(b, &point) {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::device;

    fn gap(after: Ending, idle_ms: u64) -> Gap {
        Gap { after, idle: Span::ms(idle_ms), tokens: 100 }
    }

    #[test]
    fn where_all_gaps_are_alike_one_narrow_window_does_it() {
        let gaps = vec![gap(Ending::Turn, 60_000); 50];
        let history = History::new(&gaps, &device());
        let all = 0.5 * 60.0 * 50.0;
        assert!(at_energy(history.frontier(), 0.2 * all) > 0.99, "{:?}", history.frontier());
        assert!(at_energy(&clairvoyant(&gaps, &device()), 50.0 * 0.0301) > 0.99);
    }

    #[test]
    fn endings_are_told_apart() {
        let mut gaps = vec![gap(Ending::ToolCalls, 1000); 50];
        gaps.extend(vec![gap(Ending::Turn, 600_000); 50]);
        let frontier = History::new(&gaps, &device()).frontier;
        assert!((at_energy(&frontier, 0.5 * 50.0 * 1.0) - 0.5).abs() < 0.02, "{frontier:?}");
    }

    #[test]
    fn no_rule_beats_knowing_the_future_and_more_energy_never_hurts() {
        let gaps: Vec<Gap> =
            (0..400u64).map(|n| gap(ENDINGS[n as usize % 3], n * n * 7 % 90_001)).collect();
        let (history, future) = (History::new(&gaps, &device()), clairvoyant(&gaps, &device()));
        let mut last = (0.0, 0.0);
        for tenth in 1..=20 {
            let energy = f64::from(tenth) * 0.05 * 0.5 * 45.0 * 400.0;
            let both = (at_energy(history.frontier(), energy), at_energy(&future, energy));
            assert!(both.0 <= both.1 + 1e-9 && both.0 >= last.0 && both.1 >= last.1, "{both:?}");
            last = both;
        }
        assert!(last.0 > 0.99, "{last:?}");
    }

    #[test]
    fn between_points_lines_are_straight() {
        let points = [(4.0, 0.5), (2.0, 0.4), (3.0, 0.3)];
        let points = points.map(|(energy_j, removed)| Point { energy_j, removed });
        assert_eq!([1.0, 2.0, 3.0, 9.0].map(|at| at_energy(&points, at)), [0.2, 0.4, 0.45, 0.5]);
    }
}
