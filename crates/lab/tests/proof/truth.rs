//! What a chip does, from its own parameters and its true p-states, without the code of the fit.
//!
//! A host loop of its own drives the noise-free machine and looks at the p-state, on grids that the
//! probes don't use. Times are those that the probes' findings are defined by; unit: ms.

use everwarm_dvfs::Chip;
use everwarm_gpu::{Backend, backend};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;
use std::collections::BTreeMap;

/// Names of findings and what they should be.
pub type Truth = BTreeMap<String, f64>;

/// Ratio of two neighbours of the grids of idle times and gaps.
const GRID: f64 = 1.02;
/// How often the p-state is looked at.
const LOOK: Span = Span::us(20);

/// All that the proof compares.
pub fn truth(chip: &Chip) -> Truth {
    let mut truth = Truth::new();
    truth.insert("idle-off".into(), chip.controller.idle_off_delay.as_ms());
    truth.extend(decay(chip).map(|ms| ("decay".to_owned(), ms)));
    truth.extend(ramps(chip));
    for (n, ms) in [0.58, 2.3, 5.8].into_iter().enumerate() {
        truth.extend(cliff(chip, ms).map(|gap| (format!("cliff of kernel {}", n + 1), gap)));
    }
    truth
}

/// The noise-free machine, and a host that drives it.
struct Bench {
    backend: Box<dyn Backend>,
    queue: everwarm_gpu::Queue,
    /// The p-state whenever it was looked at while `watching`, and when.
    seen: Vec<(Instant, u8)>,
    watching: bool,
    last_end: Instant,
}

impl Bench {
    fn new(chip: &Chip) -> Bench {
        let mut backend = backend::simulate(chip.clone());
        let queue = backend.queue().unwrap();
        let (seen, watching, last_end) = (Vec::new(), false, Instant::ZERO);
        Bench { backend, queue, seen, watching, last_end }
    }

    fn kernel(&self, ms: f64) -> Kernel {
        self.backend.device().fma(Span::from_ms(ms), Kernel::FMA_THREADS)
    }

    fn pstate(&mut self) -> u8 {
        self.backend.counters().unwrap().pstate.unwrap().0
    }

    /// The next completion; the p-state is looked at on the way.
    fn wait(&mut self) -> everwarm_gpu::Completion {
        loop {
            let until = if self.watching { self.backend.now() + LOOK } else { Instant::FAR_FUTURE };
            let found = self.backend.wait(until).unwrap();
            if self.watching {
                let pstate = self.pstate();
                self.seen.push((self.backend.now(), pstate));
            }
            if let Some(done) = found {
                self.last_end = done.gpu_end;
                return done;
            }
        }
    }

    /// Keeps `depth` in flight for a time, and lets them end; returns the first start.
    fn load(&mut self, ms: f64, depth: usize, span: Span) -> Instant {
        let kernel = self.kernel(ms);
        let until = self.backend.now() + span;
        let (mut flying, mut first) = (0, None);
        while self.backend.now() < until || flying > 0 {
            while flying < depth && self.backend.now() < until {
                self.backend.commit(self.queue, &kernel).unwrap();
                flying += 1;
            }
            first.get_or_insert(self.wait().gpu_start);
            flying -= 1;
        }
        first.unwrap()
    }

    fn idle(&mut self, span: Span) {
        let until = self.last_end + span;
        self.backend.sleep_until(until);
    }
}

/// The idle time after a second of full load past which half of the way to the base clock is lost.
fn decay(chip: &Chip) -> Option<f64> {
    let half = half(chip);
    let mut bench = Bench::new(chip);
    let mut idle = 10.0 * GRID.sqrt();
    let mut series = Vec::new();
    while idle < 1460.0 {
        bench.load(0.58, 6, Span::s(1));
        bench.idle(Span::from_ms(idle));
        let kernel = bench.kernel(0.58);
        bench.backend.commit(bench.queue, &kernel).unwrap();
        let woken = bench.backend.counters().unwrap().pstate.unwrap();
        bench.wait();
        series.push((idle, chip.clock(woken).as_hz() < half));
        idle *= GRID;
    }
    split(&series)
}

fn half(chip: &Chip) -> f64 {
    let base = chip.pstates[usize::from(chip.controller.base_pstate) - 1].clock.as_hz();
    (base + chip.clock(chip.top()).as_hz()) / 2.0
}

/// Ramps in the order of the probe, as what ran before one may matter to it.
fn ramps(chip: &Chip) -> Truth {
    let mut bench = Bench::new(chip);
    let cells = everwarm_lab::scenario("fit-ramp").unwrap().cells;
    let mut truth = Truth::new();
    // The first round begins with a machine that has done nothing; the second one counts.
    for cell in cells.iter().chain(&cells) {
        let cell = everwarm_lab::cell_name(&cell.variables).unwrap();
        let idle = if cell.contains("idle=2 s") { 2000.0 } else { 500.0 };
        let ms = if cell.contains("work=long") { 5.8 } else { 0.58 };
        let depth = if cell.contains("eight") { 8 } else { 1 };
        for (what, time) in ramp(chip, &mut bench, idle, ms, depth) {
            truth.insert(format!("ramp {cell}: {what}"), time);
        }
    }
    truth
}

/// From the first start to the first step up, half of the way, the top.
fn ramp(
    chip: &Chip,
    bench: &mut Bench,
    idle: f64,
    ms: f64,
    depth: usize,
) -> Vec<(&'static str, f64)> {
    bench.idle(Span::from_ms(idle));
    (bench.watching, bench.seen) = (true, Vec::new());
    let first = bench.load(ms, depth, Span::ms(1500));
    bench.watching = false;
    let clock = |pstate: u8| chip.clock(everwarm_units::PState(pstate)).as_hz();
    let base = chip.controller.base_pstate;
    let seen: Vec<(f64, f64)> = bench
        .seen
        .iter()
        .filter(|(at, pstate)| *at >= first && *pstate > 0)
        .map(|(at, pstate)| (at.since(first).as_ms(), clock(*pstate)))
        .collect();
    let reached = |level: f64| seen.iter().find(|(_, clock)| *clock >= level).map(|(at, _)| *at);
    let top = clock(chip.top().0);
    let mut all = Vec::new();
    // What is there from the beginning is no ramp.
    let ramp = |at: &f64| *at > 0.1;
    all.extend(reached(1.0001 * clock(base)).filter(ramp).map(|at| ("first step", at)));
    all.extend(reached(half(chip)).filter(ramp).map(|at| ("half", at)));
    let stays = seen.iter().rev().take_while(|(_, clock)| *clock == top).count() > 500;
    all.extend(reached(top).filter(ramp).filter(|_| stays).map(|at| ("top", at)));
    all
}

/// Mean clock, as a share of the top one, below which a loop does not hold it.
const HELD: f64 = 0.97;

/// The gap from which a loop no longer holds the top clock.
fn cliff(chip: &Chip, ms: f64) -> Option<f64> {
    let host = &chip.host;
    let least = host.commit_to_start + host.completion_to_host;
    let mut bench = Bench::new(chip);
    let mut gap = least.as_ms().max(0.35) * GRID.sqrt();
    let mut series = Vec::new();
    while gap < 3.0 {
        let idle = bench.backend.now() + Span::ms(300);
        bench.backend.sleep_until(idle);
        let held = mean_clock(chip, &mut bench, ms, Span::from_ms(gap));
        series.push((gap, held < HELD));
        gap *= GRID;
    }
    split(&series)
}

/// Mean clock over busy time, as a share of the top one, of a loop with exact gaps that has run for
/// 0.6 s.
fn mean_clock(chip: &Chip, bench: &mut Bench, ms: f64, gap: Span) -> f64 {
    let kernel = bench.kernel(ms);
    let begin = bench.backend.now();
    let (mut number, mut busy) = (0.0, 0.0);
    while bench.backend.now().since(begin) < Span::ms(1500) {
        bench.backend.commit(bench.queue, &kernel).unwrap();
        let done = bench.wait();
        if done.gpu_start.since(begin) > Span::ms(600) {
            number += 1.0;
            busy += done.gpu_end.since(done.gpu_start).as_ms() - chip.kernels.overhead.as_ms();
        }
        let next = done.gpu_end + gap - chip.host.commit_to_start;
        bench.backend.sleep_until(next);
    }
    // The kernel of so many ms has the overhead's cycles on top.
    let cycles = chip.kernels.overhead_cycles.as_n() / (1e3 * chip.clock(chip.top()).as_mhz());
    number * (ms + cycles) / busy
}

/// Where a property begins to hold: the cut that leaves the fewest on the wrong side.
fn split(series: &[(f64, bool)]) -> Option<f64> {
    let wrong = |cut: usize| {
        let before = series[..cut].iter().filter(|(_, holds)| *holds).count();
        before + series[cut..].iter().filter(|(_, holds)| !*holds).count()
    };
    let cut = (0..=series.len()).min_by_key(|cut| wrong(*cut))?;
    let inside = cut > 0 && cut < series.len();
    inside.then(|| (series[cut - 1].0 * series[cut].0).sqrt())
}
