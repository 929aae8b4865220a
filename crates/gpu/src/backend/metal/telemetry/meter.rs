//! From samples to what a reader wants: residencies since the start, energy, the clock meanwhile.
//!
//! Counters are totals of the driver's: two samples make a window. A window counts only if its
//! counters went forward, its states are the ones of the sample before, and their times sum to the
//! time that has passed; else it is a *break* (the Mac slept, the driver began anew, a counter
//! wrapped), its time is lost and nothing of it is added. What is reported sums to wall time within
//! [`slack`], or is `None` with the reason.
//!
//! Time is an argument. It does not know when a driver updates its counters: a window shorter than
//! the slack proves little by itself, the sum over all of them does.

use super::channel::{Energy, Sample, States, span};
use super::states::{Kind, kind};
use super::table::Clocks;
use everwarm_units::{Hertz, Instant, Joules, PState, Span};

/// How far states may be from summing to `wall`.
///
/// Source: a third-party probe found 99.8 to 100.1 %; the milliseconds for taking a sample are a
/// guess (?).
pub fn slack(wall: Span) -> Span {
    wall / 50 + Span::ms(5)
}

/// What is known since the first sample. What isn't is `None`, with its reason in `missing`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// When it was read, on the reader's time base.
    pub at: Instant,
    /// Time in each p-state. Shape: index 0 is off, then by ascending clock where the clocks are
    /// known, else by the firmware's numbers.
    pub residency: Option<Vec<Span>>,
    /// Energy of the GPU rail.
    pub gpu_energy: Option<Joules>,
    /// The one p-state of the whole time since the reading before; `None` if there were several.
    pub pstate: Option<PState>,
    /// Mean clock since the reading before, of the time with a clock.
    pub clock: Option<Hertz>,
    /// Windows that could not be counted.
    pub breaks: u32,
    /// What is `None`, and why. Shape: (field, sentence).
    pub missing: Vec<(&'static str, String)>,
}

/// Adds samples up.
#[derive(Clone, Debug)]
pub struct Meter {
    clocks: Option<Clocks>,
    first: Option<Instant>,
    last: Option<(Instant, Sample)>,
    totals: Vec<(String, Span)>,
    window: Vec<(String, Span)>,
    energy: Joules,
    states_lost: Lost,
    energy_lost: Lost,
}

/// Time that was not counted, in how many windows, and why at the latest.
#[derive(Clone, Debug, Default)]
struct Lost {
    time: Span,
    windows: u32,
    why: String,
}

impl Lost {
    fn add(&mut self, time: Span, why: String) {
        self.time += time;
        self.windows += 1;
        self.why = why;
    }
}

impl Meter {
    /// A meter that has seen nothing; `clocks` are those of the p-states, if they are known.
    pub fn new(clocks: Option<Clocks>) -> Meter {
        Meter {
            clocks,
            first: None,
            last: None,
            totals: Vec::new(),
            window: Vec::new(),
            energy: Joules::ZERO,
            states_lost: Lost::default(),
            energy_lost: Lost::default(),
        }
    }

    /// Takes the sample of `at`, not before the one of the last call.
    pub fn add(&mut self, at: Instant, sample: Sample) {
        self.window.clear();
        if let Some((before, old)) = self.last.take() {
            self.count(at.since(before), &old, &sample);
        } else {
            self.first = Some(at);
            if let Ok(states) = &sample.states {
                self.totals = states.ticks.iter().map(|(n, _)| (n.clone(), Span::ZERO)).collect();
            }
        }
        self.last = Some((at, sample));
    }

    fn count(&mut self, wall: Span, old: &Sample, new: &Sample) {
        let window = both(&old.states, &new.states).and_then(|(old, new)| states(old, new, wall));
        match window {
            Ok(window) => {
                for (name, span) in &window {
                    match self.totals.iter_mut().find(|(known, _)| known == name) {
                        Some((_, total)) => *total += *span,
                        None => self.totals.push((name.clone(), *span)),
                    }
                }
                self.window = window;
            }
            Err(why) => self.states_lost.add(wall, why),
        }
        match both(&old.energy, &new.energy).and_then(|(old, new)| energy(old, new)) {
            Ok(energy) => self.energy += energy,
            Err(why) => self.energy_lost.add(wall, why),
        }
    }

    /// What is known by the last sample.
    pub fn reading(&self) -> Reading {
        let (Some(first), Some((at, sample))) = (self.first, &self.last) else {
            let nothing = |field| (field, "no sample has been taken".to_owned());
            let missing = ["residency", "gpu_energy", "pstate", "clock"].map(nothing).to_vec();
            return Reading { missing, ..Reading::default() };
        };
        let wall = at.since(first);
        let mut missing = Vec::new();
        let mut keep = |field, why: String| missing.push((field, why));
        let residency = or(self.residency(wall, sample), "residency", &mut keep);
        let energy = &sample.energy;
        let gpu_energy = or(self.gpu_energy(wall, energy), "gpu_energy", &mut keep);
        let pstate = or(self.pstate(), "pstate", &mut keep);
        let clock = or(self.clock(), "clock", &mut keep);
        let breaks = self.states_lost.windows.max(self.energy_lost.windows);
        Reading { at: *at, residency, gpu_energy, pstate, clock, breaks, missing }
    }

    fn residency(&self, wall: Span, sample: &Sample) -> Result<Vec<Span>, String> {
        sample.states.as_ref().map_err(Clone::clone)?;
        let lost = &self.states_lost;
        let strangers = self.totals.iter().filter(|(name, _)| kind(name) == Kind::Unknown);
        let unnamed: Span = strangers.clone().map(|(_, span)| *span).sum();
        if lost.time > slack(wall) {
            let (time, windows) = (lost.time, lost.windows);
            return Err(format!("{time} in {windows} windows are not counted: {}", lost.why));
        }
        if unnamed > slack(wall) {
            let names = strangers.map(|(name, span)| format!("`{name}` ({span})"));
            let names = names.collect::<Vec<_>>().join(", ");
            return Err(format!("there are states of unknown meaning: {names}"));
        }
        let sum: Span = self.totals.iter().map(|(_, span)| *span).sum();
        if apart(sum, wall) > slack(wall) {
            return Err(format!("the states sum to {sum}, and {wall} have passed"));
        }
        self.by_pstate(&self.totals)
    }

    /// Times by p-state: off first. Names may come in any order; several off states are one.
    fn by_pstate(&self, times: &[(String, Span)]) -> Result<Vec<Span>, String> {
        let numbers = times.iter().filter_map(|(name, _)| match kind(name) {
            Kind::P(number) => Some(number),
            _ => None,
        });
        let states = usize::from(numbers.max().ok_or("no state is a p-state")?);
        let mut out = vec![Span::ZERO; states + 1];
        for (name, span) in times {
            match kind(name) {
                Kind::Off => out[0] += *span,
                Kind::P(number) => out[self.place(number, states)] += *span,
                Kind::Unknown => {}
            }
        }
        Ok(out)
    }

    /// Where the firmware's p-state `number` of so many stands in our order.
    fn place(&self, number: u8, states: usize) -> usize {
        let clocks = self.clocks.as_ref().filter(|clocks| clocks.len() == states);
        clocks.and_then(|clocks| clocks.place(number)).unwrap_or(usize::from(number))
    }

    fn gpu_energy(&self, wall: Span, now: &Result<Energy, String>) -> Result<Joules, String> {
        now.as_ref().map_err(Clone::clone)?;
        let lost = &self.energy_lost;
        match lost.time > slack(wall) {
            true => Err(format!("{} are not counted: {}", lost.time, lost.why)),
            false => Ok(self.energy),
        }
    }

    fn pstate(&self) -> Result<PState, String> {
        let times = self.by_pstate(&self.window).map_err(|_| NO_WINDOW.to_owned())?;
        let all: Span = self.window.iter().map(|(_, span)| *span).sum();
        let whole = |span: &Span| !all.is_zero() && span.share_of(all) > 0.99;
        let place = times.iter().position(whole).ok_or("there were several")?;
        u8::try_from(place).map(PState).map_err(|_| format!("p-state {place} has no number"))
    }

    fn clock(&self) -> Result<Hertz, String> {
        let times = self.by_pstate(&self.window).map_err(|_| NO_WINDOW.to_owned())?;
        let clocks = self.clocks.as_ref().ok_or("the clocks of the p-states are not known")?;
        if clocks.len() + 1 != times.len() {
            let (known, states) = (clocks.len(), times.len() - 1);
            return Err(format!("{known} clocks are known, and there are {states} p-states"));
        }
        let powered: Span = times[1..].iter().copied().sum();
        if powered.is_zero() {
            return Err("the GPU was off".to_owned());
        }
        let cycles =
            clocks.ascending().zip(&times[1..]).map(|((_, c), span)| c.as_hz() * span.as_secs());
        Ok(Hertz::hz(cycles.sum::<f64>() / powered.as_secs()))
    }
}

const NO_WINDOW: &str = "there is no window between two good samples";

fn or<T>(
    got: Result<T, String>,
    field: &'static str,
    keep: &mut impl FnMut(&'static str, String),
) -> Option<T> {
    got.map_err(|why| keep(field, why)).ok()
}

fn apart(a: Span, b: Span) -> Span {
    a.saturating_sub(b) + b.saturating_sub(a)
}

fn both<'a, T>(
    old: &'a Result<T, String>,
    new: &'a Result<T, String>,
) -> Result<(&'a T, &'a T), String> {
    let new = new.as_ref().map_err(Clone::clone)?;
    Ok((old.as_ref().map_err(Clone::clone)?, new))
}

/// The time in each state between two samples that are `wall` apart.
fn states(old: &States, new: &States, wall: Span) -> Result<Vec<(String, Span)>, String> {
    if old.tick_ns != new.tick_ns || old.ticks.len() != new.ticks.len() {
        return Err("the list of states or its unit changed".to_owned());
    }
    let same_order = old.ticks.iter().zip(&new.ticks).all(|((a, _), (b, _))| a == b);
    let window = new.ticks.iter().enumerate().map(|(n, (name, now))| {
        let before = if same_order { Some(old.ticks[n].1) } else { only(&old.ticks, name) };
        let before = before.ok_or_else(|| format!("state `{name}` was not there before"))?;
        let ticks = now.checked_sub(before).filter(|ticks| *ticks >= 0);
        let time = ticks.and_then(|ticks| span(ticks, new.tick_ns));
        let time = time.ok_or_else(|| format!("the counter of `{name}` went back"))?;
        Ok((name.clone(), time))
    });
    let window = window.collect::<Result<Vec<_>, String>>()?;
    let sum: Span = window.iter().map(|(_, span)| *span).sum();
    match apart(sum, wall) > slack(wall) {
        true => Err(format!("the states of a window of {wall} sum to {sum}")),
        false => Ok(window),
    }
}

/// The value of a name that stands there once.
fn only(ticks: &[(String, i64)], name: &str) -> Option<i64> {
    let mut found = ticks.iter().filter(|(known, _)| known == name);
    let first = found.next()?;
    found.next().is_none().then_some(first.1)
}

fn energy(old: &Energy, new: &Energy) -> Result<Joules, String> {
    if (&old.name, old.unit) != (&new.name, new.unit) {
        return Err("the energy counter or its unit changed".to_owned());
    }
    let count = new.count.checked_sub(old.count).filter(|count| *count >= 0);
    let count = count.ok_or_else(|| format!("the counter `{}` went back", new.name))?;
    Ok(new.unit * count as f64)
}
