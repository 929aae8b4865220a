//! How far a simulated chip is from recorded runs.

use super::curve::{Curve, curve, distance, middle};
use super::simulate::Key;
use everwarm_fit::Step;
use everwarm_stats::{mean, median, quantile};
use std::collections::BTreeMap;

/// What a chip has to show: the times of buffers over the time of each step, by scenario.
#[derive(Clone)]
pub(super) struct Goal {
    scenarios: BTreeMap<String, BTreeMap<Key, Shown>>,
}

/// One step.
#[derive(Clone)]
struct Shown {
    curve: Curve,
    /// How far its rounds are from each other.
    noise: f64,
    rounds: usize,
}

/// Differences below this are not looked at closer, however well rounds agree. Unit: log ratio.
const FINE: f64 = 0.005;

fn key(step: &Step) -> Key {
    (step.scenario.clone(), step.cell.clone(), step.label.clone())
}

/// The curve of each round of each step.
pub(super) fn rounds(steps: &[Step]) -> BTreeMap<Key, Vec<Curve>> {
    let mut all: BTreeMap<Key, Vec<Curve>> = BTreeMap::new();
    for step in steps {
        let Some(first) = step.buffers.first() else { continue };
        let origin = first.committed;
        let times: Vec<_> =
            step.buffers.iter().map(|b| (b.start - origin, b.end - origin)).collect();
        all.entry(key(step)).or_default().push(curve(&times));
    }
    all
}

impl Goal {
    /// Of the rounds of steps, the middle of each and how far rounds are from each other.
    pub fn new(rounds: &BTreeMap<Key, Vec<Curve>>) -> Goal {
        let mut scenarios: BTreeMap<String, BTreeMap<Key, Shown>> = BTreeMap::new();
        for (key, curves) in rounds {
            let apart: Vec<f64> =
                curves.windows(2).filter_map(|pair| distance(&pair[0], &pair[1])).collect();
            let noise = mean(&apart).unwrap_or(0.0) + FINE;
            let own = scenarios.entry(key.0.clone()).or_default();
            let shown = Shown { curve: middle(curves), noise, rounds: curves.len() };
            own.insert(key.clone(), shown);
        }
        Goal { scenarios }
    }

    /// Mean distance of the steps of one scenario, each in units of that between its own rounds: a
    /// chip that behaves alike is at about 1. Infinite if nothing was simulated.
    pub fn loss(&self, scenario: &str, simulated: &[(Key, Curve)]) -> f64 {
        let Some(goals) = self.scenarios.get(scenario) else { return 0.0 };
        let one = |(key, curve): &(Key, Curve)| {
            let goal = goals.get(key)?;
            Some(distance(&goal.curve, curve)? / goal.noise)
        };
        let all: Vec<f64> = simulated.iter().filter_map(one).collect();
        mean(&all).unwrap_or(f64::INFINITY)
    }
}

impl Goal {
    /// The loss of a chip that behaves like the recorded one: two rounds are as far from each other
    /// as two deviations, the middle of some from what has none as one over the root of their number.
    pub fn expected(&self) -> f64 {
        let own = |goals: &BTreeMap<Key, Shown>| {
            let one = |shown: &Shown| (0.5 / shown.rounds as f64).sqrt();
            mean(&goals.values().map(one).collect::<Vec<_>>())
        };
        mean(&self.scenarios.values().filter_map(own).collect::<Vec<_>>()).unwrap_or(0.0)
    }
}

/// Places of a step at which buffers are compared.
const PLACES: usize = 24;

/// Times of buffers at some places of each step, medians over rounds. Unit: ms.
fn profiles(all: &[Step]) -> BTreeMap<Key, Vec<f64>> {
    let mut groups: BTreeMap<Key, Vec<&Step>> = BTreeMap::new();
    for step in all {
        groups.entry(key(step)).or_default().push(step);
    }
    let profile = |steps: Vec<&Step>| {
        // The longest step counts the places: a shorter round ends early.
        let len = steps.iter().map(|s| s.buffers.len()).max().unwrap_or(0);
        let at = |place: usize| {
            let took = steps.iter().filter_map(|s| s.buffers.get(place)).map(|b| b.took());
            median(&took.collect::<Vec<_>>()).unwrap_or(0.0)
        };
        places(len).map(at).collect()
    };
    groups.into_iter().map(|(key, steps)| (key, profile(steps))).collect()
}

/// Places that are dense at the beginning. They do not depend on the length of a step, so that the
/// same ones are compared in steps of different lengths.
fn places(len: usize) -> impl Iterator<Item = usize> {
    let place = |n: usize| (n as f64 * 1.28_f64.powf(n as f64 * 0.6)).round() as usize;
    (0..PLACES).map(place).take_while(move |place| *place < len)
}

/// Relative errors of buffers' times: the median, and that of nine in ten.
pub(super) fn errors(held: &[Step], simulated: &[Step]) -> (f64, f64) {
    let own = profiles(simulated);
    let mut all = Vec::new();
    for (key, goal) in profiles(held) {
        let Some(found) = own.get(&key) else { continue };
        all.extend(goal.iter().zip(found).map(|(goal, found)| (found / goal - 1.0).abs()));
    }
    (median(&all).unwrap_or(f64::NAN), quantile(&all, 0.9).unwrap_or(f64::NAN))
}
