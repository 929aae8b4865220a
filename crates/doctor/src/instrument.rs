//! The ruler, before anything is measured with it, and what the measurement itself then shows of it.
//!
//! Clocks that don't agree, a timer that steps coarsely, and somebody else on the GPU don't void a
//! sample, they void what would be concluded from all of them.

use crate::evidence::{Evidence, executions, start, warm};
use everwarm_gpu::{Backend, Error};
use everwarm_lab::{Dispatch, StepRun};
use everwarm_stats::median;
use everwarm_units::Span;
use serde::Serialize;

/// What is known of the instrument.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Instrument {
    /// The smallest step of the host's clock. Unit: ns.
    pub timer_step_ns: Option<u64>,
    /// How late a sleep of 1 ms ends. Unit: ms.
    pub sleep_late_ms: Option<f64>,
    /// What a commit takes of the host's time. Unit: ms.
    pub commit_ms: Option<f64>,
    /// The smallest difference between two execution times. Unit: ms.
    pub gpu_step_ms: Option<f64>,
    /// Time on the GPU's clock by time on the host's, of full queues.
    pub gpu_by_host_clock: Option<f64>,
    /// Share of time that the GPU worked while nothing of ours ran; `None` if nothing tells.
    pub others_busy: Option<f64>,
    /// Share of kernels under full load that something else disturbed.
    pub disturbed: Option<f64>,
    /// How much slower the warm GPU was in the last third of the measurement than in the first, as a
    /// share.
    pub drift: Option<f64>,
    /// By how much two halves of the controls differ, which nothing but noise makes. Unit: ms.
    pub noise_ms: Option<f64>,
    /// Samples that count.
    pub samples: usize,
    /// Samples that don't, with the reason of the first.
    pub void: usize,
    /// Why nothing can be concluded about the GPU; `None` if all is well.
    pub trouble: Option<String>,
    /// What a reader should know besides.
    pub remarks: Vec<String>,
}

/// How long nothing of ours runs while somebody else is looked for.
const SILENCE: Span = Span::ms(300);

/// More than this share of disturbed kernels, or of time, is somebody else's work.
const OTHERS_MAX: f64 = 0.1;

/// A kernel is disturbed if it took so many times as long as those around it.
const DISTURBED: f64 = 1.5;

/// How far time on the GPU's clock may be from the host's, and how much of it a full queue may miss.
const CLOCKS: std::ops::RangeInclusive<f64> = 0.85..=1.03;

/// A step of the GPU's clock above this share of a kernel hides what is looked for.
const STEP_MAX: f64 = 0.2;

/// A drift that is worth a word.
const DRIFT: f64 = 0.03;

/// What can be found out before: clocks, sleep, and whether somebody else is there.
///
/// # Errors
/// When the device is lost.
pub fn before(backend: &mut dyn Backend) -> Result<Instrument, Error> {
    let test = everwarm_lab::self_test_on(backend)?;
    let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
    Ok(Instrument {
        timer_step_ns: test.timer_step_ns,
        sleep_late_ms: ms(test.sleep_overshoot_ns),
        commit_ms: ms(test.submit_overhead_ns),
        others_busy: others_busy(backend)?,
        ..Instrument::default()
    })
}

/// The share of a silent time with work running.
fn others_busy(backend: &mut dyn Backend) -> Result<Option<f64>, Error> {
    let before = backend.counters()?;
    let until = backend.now() + SILENCE;
    backend.sleep_until(until);
    let after = backend.counters()?;
    let span = after.at.since(before.at).as_ms();
    let (Some(a), Some(b)) = (before.busy, after.busy) else { return Ok(None) };
    let begin = everwarm_units::Instant::ZERO;
    let worked = b * after.at.since(begin).as_ms() - a * before.at.since(begin).as_ms();
    Ok((span > 0.0).then(|| (worked / span).clamp(0.0, 1.0)))
}

impl Instrument {
    /// Adds what the evidence shows of it.
    pub fn after(&mut self, evidence: &Evidence) {
        let controls: Vec<&StepRun> =
            evidence.cell("clock", "0").filter_map(|taken| taken.step("burst")).collect();
        self.gpu_step_ms = step(&controls);
        self.gpu_by_host_clock = ratio(&controls);
        self.disturbed = disturbed(&controls);
        self.drift = drift(evidence);
        self.noise_ms = noise(&evidence.numbers("clock", "0", crate::evidence::Taken::lost));
        self.samples = evidence.taken.len();
        self.void = evidence.void.len();
        self.conclude(&controls, evidence);
    }

    fn conclude(&mut self, controls: &[&StepRun], evidence: &Evidence) {
        let kernel = median(&controls.iter().flat_map(|step| executions(step)).collect::<Vec<_>>());
        let disorder = controls.iter().flat_map(|step| &step.dispatches).filter(|d| !in_order(d));
        let others = self.others_busy.into_iter().chain(self.disturbed).fold(0.0, f64::max);
        self.trouble = if kernel.is_none() {
            Some(match evidence.void.first() {
                Some(void) => format!("no sample counts: {}", void.why),
                None => "there was no time for a single sample".to_owned(),
            })
        } else if others > OTHERS_MAX {
            Some(format!(
                "something else uses the GPU ({:.0} % of the time or of our kernels): end it, or this \
                 measures that",
                100.0 * others
            ))
        } else if self.gpu_by_host_clock.is_some_and(|ratio| !CLOCKS.contains(&ratio))
            || disorder.count() > 0
        {
            Some(format!(
                "the GPU's clock and the host's do not agree (a full queue is busy {:.2} of the time)",
                self.gpu_by_host_clock.unwrap_or(0.0)
            ))
        } else {
            let coarse = self.gpu_step_ms.zip(kernel).filter(|(step, k)| *step > STEP_MAX * k);
            coarse.map(|(step, kernel)| {
                format!("the GPU's clock steps by {step:.2} ms; a kernel takes {kernel:.2} ms")
            })
        };
        if let Some(drift) = self.drift.filter(|drift| drift.abs() > DRIFT) {
            let word = if drift > 0.0 { "slower" } else { "faster" };
            self.remarks.push(format!(
                "the warm GPU became {:.0} % {word} while this ran (heat, or a power limit); each \
                 sample is held against its own warm-up, so this is in no number below",
                100.0 * drift.abs()
            ));
        }
        if let Some(void) = evidence.void.first() {
            let n = evidence.void.len();
            self.remarks.push(format!("{n} samples do not count; the first: {}", void.why));
        }
    }
}

/// The life of a command buffer in the order in which it happens.
fn in_order(dispatch: &Dispatch) -> bool {
    dispatch.committed <= dispatch.gpu_start
        && dispatch.gpu_start <= dispatch.gpu_end
        && dispatch.gpu_end <= dispatch.observed
}

/// The smallest difference between execution times that differ.
fn step(steps: &[&StepRun]) -> Option<f64> {
    let mut all: Vec<u64> =
        steps.iter().flat_map(|step| &step.dispatches).map(|d| d.execution().as_nanos()).collect();
    all.sort_unstable();
    all.dedup();
    all.windows(2).map(|pair| pair[1] - pair[0]).min().map(|ns| ns as f64 / 1e6)
}

/// Time on the GPU's clock by time on the host's.
fn ratio(steps: &[&StepRun]) -> Option<f64> {
    let one = |step: &&StepRun| {
        let (first, last) = (step.dispatches.first()?, step.dispatches.last()?);
        let gpu = last.gpu_end.since(first.gpu_start).as_ms();
        let host = last.observed.since(first.committed).as_ms() - start(first);
        (host > 0.0).then(|| gpu / host)
    };
    median(&steps.iter().filter_map(one).collect::<Vec<_>>())
}

/// The share of kernels that took much longer than those before and after them, or that were kept
/// waiting although they stood in the queue.
fn disturbed(steps: &[&StepRun]) -> Option<f64> {
    let (mut all, mut hit) = (0.0, 0.0);
    for step in steps {
        let times = executions(step);
        let usual = median(&times)?;
        let gaps = step.dispatches.windows(2).map(|d| d[1].gpu_start.since(d[0].gpu_end).as_ms());
        let gaps: Vec<f64> = gaps.collect();
        let usual_gap = median(&gaps)?;
        all += times.len() as f64;
        hit += times.iter().filter(|time| **time > DISTURBED * usual).count() as f64;
        hit += gaps.iter().filter(|gap| **gap > usual_gap + usual / 2.0).count() as f64;
    }
    (all > 0.0).then(|| hit / all)
}

/// The last third of all warm-ups against the first.
fn drift(evidence: &Evidence) -> Option<f64> {
    let all: Vec<f64> = evidence.taken.iter().filter_map(warm).collect();
    let third = all.len() / 3;
    let (first, last) = (median(&all[..third])?, median(&all[all.len() - third..])?);
    Some(last / first - 1.0)
}

/// Every other control against the rest.
fn noise(values: &[f64]) -> Option<f64> {
    let half = |odd: usize| values.iter().skip(odd).step_by(2).copied().collect::<Vec<_>>();
    Some((median(&half(0))? - median(&half(1))?).abs())
}
