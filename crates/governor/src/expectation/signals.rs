//! Signs that a request may follow: connections, preflights, lists of models, hints.
//!
//! How soon a request follows a sign of each kind is learned like any gap, from a first guess. A hint
//! that names a time is a forecast: its confidence is its chance, times the share of such forecasts
//! of its source that came true. Signs do not add to what is expected anyway, which knows nothing of
//! them: for each bin the greater of both counts.

use super::gaps::{self, BINS, Gaps, Hazard, edges};
use crate::{Event, HintSource};
use everwarm_units::{Instant, Span};
use std::sync::LazyLock;

/// Signs after which one counts 1/e. Source: guess: a new client is learned within a session.
const MEMORY: f32 = 60.0;
/// A sign says nothing any more after this. Source: guess.
const LASTS: Span = Span::s(60);
/// Forecasts kept; the one that ends first makes room.
const FORECASTS_MAX: usize = 16;

/// What is believed of a kind before any was seen: half follow within the time where the exponent is
/// 1, and more of them where it is greater. Source: guesses, but that a connection's request follows
/// within a round trip.
struct Guess {
    time: f64,
    exponent: f64,
}

const KINDS: usize = 6;
const GUESSES: [Guess; KINDS] = [
    Guess { time: 0.005, exponent: 0.3 }, // a connection: many are kept for later
    Guess { time: 0.005, exponent: 1.0 }, // a preflight
    Guess { time: 5.0, exponent: 0.5 },   // a list of models
    Guess { time: 3.0, exponent: 1.0 },   // a key stroke
    Guess { time: 1.0, exponent: 1.0 },   // a schedule's "soon"
    Guess { time: 3.0, exponent: 1.0 },   // any other hint
];

static FIRST: LazyLock<[Hazard; KINDS]> = LazyLock::new(|| {
    GUESSES.map(|Guess { time, exponent }| {
        std::array::from_fn(|n| exponent * ((time + edges()[n + 1]) / (time + edges()[n])).ln())
    })
});

fn source(source: HintSource) -> usize {
    match source {
        HintSource::KeyStroke => 3,
        HintSource::Schedule => 4,
        HintSource::Other => 5,
    }
}

/// A hint for a time.
#[derive(Clone, Copy)]
struct Forecast {
    kind: usize,
    from: Instant,
    until: Instant,
    confidence: f64,
}

struct Signal {
    gaps: Gaps,
    /// The last one, and how much it is to be believed.
    last: Option<(Instant, f64)>,
    /// Forecasts that came true, and all.
    came_true: (f64, f64),
}

pub(super) struct Signals {
    kinds: [Signal; KINDS],
    forecasts: Vec<Forecast>,
}

impl Signals {
    pub fn new() -> Self {
        let signal = |_| Signal { gaps: Gaps::new(MEMORY), last: None, came_true: (1.0, 1.2) };
        Signals { kinds: std::array::from_fn(signal), forecasts: Vec::new() }
    }

    /// A sign, while no request runs.
    pub fn on_event(&mut self, now: Instant, event: &Event) {
        match *event {
            Event::ConnectionAccepted => self.sign(0, now, 1.0),
            Event::Preflight => self.sign(1, now, 1.0),
            Event::ModelsListed => self.sign(2, now, 1.0),
            Event::Hint { source: from, expected: None, confidence, .. } => {
                self.sign(source(from), now, confidence);
            }
            Event::Hint { source: from, expected: Some(expected), confidence, .. } => {
                self.forecast(source(from), now, expected, confidence);
            }
            _ => {}
        }
    }

    fn sign(&mut self, kind: usize, now: Instant, confidence: f64) {
        let signal = &mut self.kinds[kind];
        if let Some((before, _)) = signal.last.replace((now, confidence.clamp(0.0, 1.0))) {
            signal.gaps.cut(now.since(before).min(LASTS));
        }
    }

    fn forecast(&mut self, kind: usize, now: Instant, expected: Span, confidence: f64) {
        self.settle(now, None);
        if self.forecasts.len() == FORECASTS_MAX {
            let first = (0..FORECASTS_MAX).min_by_key(|n| self.forecasts[*n].until);
            self.forecasts.swap_remove(first.expect("there are some"));
        }
        // The further ahead, the less exact; and what comes is rather late than early.
        let early = Span::ms(20) + expected / 10;
        let late = Span::ms(200) + expected / 4;
        let (from, until) = (now + expected.saturating_sub(early), now + expected + late);
        self.forecasts.push(Forecast { kind, from, until, confidence: confidence.clamp(0.0, 1.0) });
    }

    /// A request has come.
    pub fn arrived(&mut self, now: Instant) {
        for signal in &mut self.kinds {
            if let Some((at, _)) = signal.last.take() {
                let gap = now.since(at);
                if gap <= LASTS { signal.gaps.came(gap) } else { signal.gaps.cut(LASTS) }
            }
        }
        self.settle(now, Some(now));
    }

    /// What announced itself was no request that works.
    pub fn probe(&mut self) {
        if let Some((..)) = self.kinds[0].last.take() {
            self.kinds[0].gaps.cut(LASTS);
        }
    }

    /// Forecasts whose time is over are judged, and those that `arrival` made true.
    fn settle(&mut self, now: Instant, arrival: Option<Instant>) {
        let kinds = &mut self.kinds;
        self.forecasts.retain(|forecast| {
            let true_now = arrival.is_some_and(|at| forecast.from <= at && at < forecast.until);
            let over = true_now || forecast.until <= now;
            if over {
                let (right, all) = &mut kinds[forecast.kind].came_true;
                let kept = (-1.0 / f64::from(MEMORY)).exp();
                *right = *right * kept + if true_now { 1.0 } else { 0.0 };
                *all = *all * kept + 1.0;
            }
            !over
        });
    }

    /// Raises the hazard to what the signs say.
    pub fn raise(&mut self, now: Instant, onto: &mut [f64]) {
        self.settle(now, None);
        for (kind, signal) in self.kinds.iter_mut().enumerate() {
            let Some((at, confidence)) = signal.last else { continue };
            let passed = now.since(at);
            if passed > LASTS {
                signal.last = None;
                signal.gaps.cut(LASTS);
                continue;
            }
            let mut here = [0.0; BINS];
            let bins = onto.len();
            gaps::add(signal.gaps.smoothed(&FIRST[kind]), passed, &mut here[..bins]);
            for (bin, (sum, said)) in onto.iter_mut().zip(here).enumerate() {
                if edges()[bin] > (LASTS.saturating_sub(passed)).as_secs() {
                    break;
                }
                *sum = sum.max(said * confidence);
            }
        }
        for forecast in &self.forecasts {
            let (right, all) = self.kinds[forecast.kind].came_true;
            let chance = (forecast.confidence * right / all).min(0.99);
            let (from, until) =
                (forecast.from.since(now).as_secs(), forecast.until.since(now).as_secs());
            let rate = -(1.0 - chance).ln() / (until - from).max(1e-3);
            for (bin, sum) in onto.iter_mut().enumerate() {
                let overlap = until.min(edges()[bin + 1]) - from.max(edges()[bin]);
                if overlap > 0.0 {
                    *sum = sum.max(rate * overlap);
                }
            }
        }
    }
}
