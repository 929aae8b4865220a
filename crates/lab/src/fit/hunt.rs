//! The search for what can't be read off.
//!
//! First by sketches of the scenarios (a few cells, the beginnings of long steps), which cost a
//! fraction; then, with the shape that was learned there, by all of them.
//!
//! The loss has a small term for the distance from where the search began: what the runs do not
//! show would drift otherwise. What is told of a value's uncertainty comes from the last evolution by
//! sketches: its shape says how far a value can go if all others follow, its points how much that
//! costs.

use super::curve::Curve;
use super::loss::Goal;
use super::simulate::{Key, Model, curves};
use crate::scenario::Scenario;
use everwarm_fit::Evolution;
use everwarm_stats::median;

/// A point of the search and what it is worth.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    /// In the parameters' own units.
    pub values: Vec<f64>,
    pub loss: f64,
}

/// What is searched, and by what.
pub(super) struct Hunt<'a> {
    pub model: &'a Model<'a>,
    goal: &'a Goal,
    /// What can be simulated.
    parts: &'a [Part],
    threads: usize,
    /// Simulations of everything that are left; one of a part counts as that part.
    budget: f64,
    /// Coordinates of where it began.
    home: Vec<f64>,
}

/// A scenario, or a sketch of it.
pub(super) struct Part {
    /// Made by `simulate::once`.
    pub scenario: Scenario,
    /// Its share of all simulated buffers.
    pub cost: f64,
    /// A few of its cells, and their beginnings only.
    pub sketch: bool,
}

/// The end of a search.
pub(super) struct Found {
    pub best: Tried,
    /// Where it began.
    pub first: Tried,
    /// How far each coordinate may be off. Unit: spreads of the parameters.
    pub widths: Vec<f64>,
}

/// Share of the budget for the sketches.
const SKETCHES: f64 = 0.75;
/// Deviation with which an evolution begins. Unit: spreads of the parameters.
const SIGMA: f64 = 0.6;
/// Deviation along its longest axis with which the last one goes on by everything.
const LAST: f64 = 0.15;
/// Candidates of a generation.
const SIZE: usize = 16;
/// An evolution whose spread is below this has settled.
const SETTLED: f64 = 0.01;
/// What a distance of one spread from the beginning costs, as squares are added.
const HOME: f64 = 0.005;
/// A point whose loss is higher than the best one's by less than this share may be the truth, and so
/// may one that is higher by what the best one itself is too high.
pub(super) const TOLERANCE: f64 = 0.1;

/// An evolution that has ended, and the points of it.
struct Evolved {
    evolution: Evolution,
    points: Vec<(Vec<f64>, f64)>,
}

impl<'a> Hunt<'a> {
    /// A search within a budget of simulations of everything, of which `threads` run at once.
    pub fn new(
        model: &'a Model<'a>,
        goal: &'a Goal,
        parts: &'a [Part],
        threads: usize,
        budget: usize,
    ) -> Hunt<'a> {
        Hunt { model, goal, parts, threads, budget: budget as f64, home: Vec::new() }
    }

    /// The best values from `start` on; `progress` hears how much of the budget is used.
    pub fn run(&mut self, start: &[f64], progress: &mut dyn FnMut(f64)) -> Found {
        let total = self.budget;
        let (sketches, all) = (self.which(true), self.which(false));
        let mut report = |left: f64| progress(total - left);
        self.home = self.coordinates(start);
        let first = self.judge(&[start.to_vec()], &all).remove(0);
        let mut best = self.judge(&[start.to_vec()], &sketches).remove(0);
        let mut widths = vec![f64::INFINITY; start.len()];
        let until = total * (1.0 - SKETCHES);
        let expected = self.goal.expected();
        let mut evolved = None;
        // Valleys have hollows. The first two begin where nothing is known, each of its own; the later
        // ones at the best so far, with more candidates.
        for seed in 0.. {
            let (from, size) = match seed {
                0 | 1 => (start, SIZE),
                _ => (best.values.as_slice(), 2 * SIZE),
            };
            let mut new = Evolved::new(self.coordinates(from), size, seed);
            let before = best.loss;
            self.evolve(&mut new, &mut best, &sketches, until, &mut report);
            // Only the one that found the best has learned the valley it lies in.
            if best.loss < before || evolved.is_none() {
                let at = self.coordinates(&best.values);
                let rise = TOLERANCE * best.loss + (best.loss - expected).max(0.0);
                widths = new.widths(&at, best.loss, rise).unwrap_or(widths);
                evolved = Some(new);
            }
            if self.budget <= until {
                break;
            }
        }
        let mut best = self.judge(&[best.values], &all).remove(0);
        if let Some(mut evolved) = evolved {
            evolved.evolution.resume(self.coordinates(&best.values), LAST);
            self.evolve(&mut evolved, &mut best, &all, 0.0, &mut report);
        }
        let best = if best.loss < first.loss { best } else { first.clone() };
        Found { best, first, widths }
    }

    /// The sketches, or the scenarios themselves.
    fn which(&self, sketch: bool) -> Vec<usize> {
        (0..self.parts.len()).filter(|n| self.parts[*n].sketch == sketch).collect()
    }

    /// What a point is worth by everything.
    pub fn worth(&mut self, values: &[f64]) -> f64 {
        let all = self.which(false);
        self.judge(&[values.to_vec()], &all).remove(0).loss
    }

    /// Carries an evolution on, which betters `best`, until it has settled or the budget is down to
    /// `least`.
    fn evolve(
        &mut self,
        evolved: &mut Evolved,
        best: &mut Tried,
        which: &[usize],
        least: f64,
        report: &mut dyn FnMut(f64),
    ) {
        while self.budget > least && evolved.evolution.spread() > SETTLED {
            let points = evolved.evolution.ask();
            let values: Vec<Vec<f64>> = points.iter().map(|p| self.values(p)).collect();
            let tried = self.judge(&values, which);
            let cost = |(point, tried): (&Vec<f64>, &Tried)| {
                // Outside of the bounds nothing changes any more; the way back must pay.
                let beyond = squared(point, &self.coordinates(&tried.values));
                tried.loss * (1.0 + beyond) + HOME * squared(point, &self.home)
            };
            let losses: Vec<f64> = points.iter().zip(&tried).map(cost).collect();
            evolved.evolution.tell(&losses);
            evolved.points.extend(points.into_iter().zip(tried.iter().map(|t| t.loss)));
            for one in tried {
                if one.loss < best.loss {
                    *best = one;
                }
            }
            report(self.budget);
        }
    }

    fn coordinates(&self, values: &[f64]) -> Vec<f64> {
        self.model.searched.iter().zip(values).map(|(one, value)| one.coordinate(*value)).collect()
    }

    fn values(&self, point: &[f64]) -> Vec<f64> {
        self.model.searched.iter().zip(point).map(|(one, x)| one.at(*x)).collect()
    }

    /// What points are worth by some of the scenarios, on several threads.
    fn judge(&mut self, points: &[Vec<f64>], which: &[usize]) -> Vec<Tried> {
        let cost: f64 = which.iter().map(|n| self.parts[*n].cost).sum();
        self.budget -= cost * points.len() as f64;
        let each = points.len().div_ceil(self.threads.max(1)).max(1);
        let this = &*self;
        let of = |part: &[Vec<f64>]| -> Vec<f64> {
            part.iter().map(|values| this.loss(values, which)).collect()
        };
        let losses: Vec<f64> = std::thread::scope(|scope| {
            let parts: Vec<_> =
                points.chunks(each).map(|part| scope.spawn(move || of(part))).collect();
            parts.into_iter().flat_map(|part| part.join().expect("a simulation panicked")).collect()
        });
        let tried = points.iter().zip(losses);
        tried.map(|(values, loss)| Tried { values: values.clone(), loss }).collect()
    }

    fn loss(&self, values: &[f64], which: &[usize]) -> f64 {
        let Ok(chip) = self.model.chip(values) else { return f64::INFINITY };
        let one = |n: &usize| {
            let scenario = &self.parts[*n].scenario;
            let found: Vec<(Key, Curve)> = curves(scenario, &chip);
            self.goal.loss(&scenario.name, &found)
        };
        which.iter().map(one).sum::<f64>() / which.len().max(1) as f64
    }
}

impl Evolved {
    fn new(mean: Vec<f64>, size: usize, seed: u64) -> Evolved {
        Evolved { evolution: Evolution::new(mean, SIGMA, size, seed), points: Vec::new() }
    }

    /// How far each coordinate may go from `best` before the loss has risen by so much, if the others
    /// go with it; `None` where too few points tell.
    fn widths(&self, best: &[f64], least: f64, rise: f64) -> Option<Vec<f64>> {
        let near = |(point, loss): &(Vec<f64>, f64)| {
            let risen = (loss - least) / rise;
            let distance = self.evolution.distance(point, best);
            ((0.3..3.0).contains(&risen) && distance > 0.0).then_some(risen / distance)
        };
        let steepness: Vec<f64> = self.points.iter().filter_map(near).collect();
        let steepness = median(&steepness).filter(|_| steepness.len() >= 2 * SIZE)?;
        let covariance = self.evolution.covariance();
        Some((0..best.len()).map(|n| (covariance[n][n].max(0.0) / steepness).sqrt()).collect())
    }
}

fn squared(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum()
}
