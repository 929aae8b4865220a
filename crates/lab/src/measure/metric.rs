//! The vocabulary: what can be read off a step, a command buffer or the counters.
//!
//! docs/claims.md describes each word. A metric yields samples: one a command buffer, or one a
//! step; it never sees which claim it is taken for.

use super::aggregate::{Aggregate, Sample};
use super::counters;
use super::select::{Between, Select, bounds};
use super::unit::Dimension;
use crate::data::{Dispatch, RunData, StepRun, Unit};
use everwarm_units::{Instant, PState, Span};

/// A metric with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    // One value a command buffer.
    Rate,
    PState,
    Clock,
    CommitToStart,
    Execution,
    Gap,
    RoundTrip,
    ObserveDelay,
    Late,
    // One value a step.
    TimeUntil { reach: i64, sustained: bool },
    Plateau { at: Between },
    Loss,
    Span,
    GpuTime,
    Duty,
    Throughput,
    Count,
    Wall,
    Ttft,
    Interval,
    // From the counters.
    Residency { at: Between },
    Power { rail: Rail },
    Energy { rail: Rail },
    Utilisation,
}

/// Whose energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rail {
    /// The GPU.
    Gpu,
    /// The CPU, as far as it submits.
    Cpu,
}

/// A metric that could not be taken, and why.
pub type Reason = String;

/// Share of a step at its end that counts as steady. Source: study 2 (median of the last 60 %).
const STEADY: f64 = 0.6;

impl Metric {
    /// What its values are; `bytes` if the kernels measured are bandwidth meters.
    pub fn dimension(&self, bytes: bool) -> Dimension {
        match self {
            Metric::Rate | Metric::Throughput if bytes => Dimension::Bandwidth,
            Metric::Rate | Metric::Throughput => Dimension::Flops,
            Metric::PState => Dimension::PState,
            Metric::Clock => Dimension::Frequency,
            Metric::Duty | Metric::Count | Metric::Residency { .. } | Metric::Utilisation => {
                Dimension::One
            }
            Metric::Power { .. } => Dimension::Power,
            Metric::Energy { .. } => Dimension::Energy,
            _ => Dimension::Time,
        }
    }

    /// True if it reads counters rather than command buffers.
    pub fn of_counters(&self) -> bool {
        matches!(
            self,
            Metric::Residency { .. }
                | Metric::Power { .. }
                | Metric::Energy { .. }
                | Metric::Utilisation
        )
    }

    /// True if a step without command buffers has a value.
    pub fn of_any_step(&self) -> bool {
        self.of_counters() || matches!(self, Metric::Wall)
    }

    /// How samples of one step become one where nothing is said.
    pub fn default_aggregate(&self) -> Aggregate {
        match self {
            Metric::PState => Aggregate::TimeWeightedMedian,
            _ => Aggregate::Median,
        }
    }
}

/// One step, or a whole round, under a measure's selectors.
pub struct View<'r> {
    pub run: &'r RunData,
    pub unit: &'r Unit,
    /// `None`: the whole round.
    pub step: Option<&'r StepRun>,
    pub select: &'r Select,
}

impl View<'_> {
    fn all(&self) -> &[Dispatch] {
        self.step.map_or(&[], |step| &step.dispatches)
    }

    /// When it began and ended for the host.
    fn host_bounds(&self) -> (Instant, Instant) {
        self.step.map_or((self.unit.begin, self.unit.end), |step| (step.begin, step.end))
    }

    /// The samples of `metric`; one list for each bucket, or one in all.
    pub fn samples(
        &self,
        metric: &Metric,
        bucket: Option<Span>,
    ) -> Result<Vec<Vec<Sample>>, Reason> {
        if metric.of_counters() {
            let (begin, end) = self.host_bounds();
            let (from, to) = self.select.narrow(begin, end);
            let windows = match bucket {
                None => vec![(from, to)],
                Some(bucket) => buckets(from, to, bucket),
            };
            let value = |(from, to)| counters::value(metric, &self.unit.samples, from, to);
            return windows.into_iter().map(|w| Ok(vec![value(w)?])).collect();
        }
        let chosen = self.select.dispatches(self.all());
        match bucket {
            None => Ok(vec![self.of_dispatches(metric, &chosen)?]),
            Some(bucket) => {
                let (begin, end) = bounds(self.all()).unwrap_or_default();
                let (from, to) = self.select.narrow(begin, end);
                let part = |(from, to): (Instant, Instant)| {
                    let inside = |i: &usize| (from..to).contains(&self.all()[*i].gpu_start);
                    self.of_dispatches(
                        metric,
                        &chosen.iter().copied().filter(inside).collect::<Vec<_>>(),
                    )
                };
                buckets(from, to, bucket).into_iter().map(part).collect()
            }
        }
    }

    fn of_dispatches(&self, metric: &Metric, chosen: &[usize]) -> Result<Vec<Sample>, Reason> {
        let all = self.all();
        let each = |value: &dyn Fn(usize) -> Result<Option<f64>, Reason>| {
            let mut samples = Vec::with_capacity(chosen.len());
            for &i in chosen {
                let weight = all[i].execution().as_secs();
                samples.extend(value(i)?.map(|value| Sample { value, weight }));
            }
            Ok(samples)
        };
        let span = |span: Span| Ok(Some(span.as_secs()));
        match metric {
            Metric::Rate => each(&|i| Ok(Some(work(&all[i])? / all[i].execution().as_secs()))),
            Metric::PState => each(&|i| Ok(Some(f64::from(pstate(&all[i])?.0)))),
            Metric::Clock => each(&|i| self.clock(&all[i]).map(Some)),
            Metric::CommitToStart => each(&|i| span(all[i].gpu_start.since(all[i].committed))),
            Metric::Execution => each(&|i| span(all[i].execution())),
            Metric::RoundTrip => each(&|i| span(all[i].observed.since(all[i].committed))),
            Metric::ObserveDelay => each(&|i| span(all[i].observed.since(all[i].gpu_end))),
            Metric::Late => each(&|i| Ok(all[i].late.map(Span::as_secs))),
            Metric::Gap => each(&|i| match i.checked_sub(1) {
                Some(before) => span(all[i].gpu_start.since(all[before].gpu_end)),
                None => Ok(None),
            }),
            Metric::Interval => Ok(self.intervals()),
            _ => self.of_step(metric, chosen).map(|value| {
                value.map(|value| Sample { value, weight: 1.0 }).into_iter().collect()
            }),
        }
    }

    /// Metrics with one value a step; `None` where the step has none.
    fn of_step(&self, metric: &Metric, chosen: &[usize]) -> Result<Option<f64>, Reason> {
        let all = self.all();
        let (begin, end) = self.host_bounds();
        let gpu_time = || chosen.iter().map(|&i| all[i].execution().as_secs()).sum::<f64>();
        let span = || {
            let first = chosen.iter().map(|&i| all[i].gpu_start).min()?;
            Some(chosen.iter().map(|&i| all[i].gpu_end).max()?.since(first).as_secs())
        };
        Ok(match metric {
            Metric::Wall => Some(end.since(begin).as_secs()),
            Metric::Ttft => {
                let marks = self.step.and_then(|step| step.marks.first());
                marks.map(|(_, at)| at.since(begin).as_secs())
            }
            Metric::Count => Some(chosen.len() as f64),
            Metric::GpuTime => Some(gpu_time()),
            Metric::Span => span(),
            Metric::Duty => span().map(|span| gpu_time() / span),
            Metric::Throughput => {
                let mut total = 0.0;
                for &i in chosen {
                    total += work(&all[i])?;
                }
                span().map(|span| total / span)
            }
            Metric::Loss => self.loss(chosen),
            Metric::TimeUntil { reach, sustained } => time_until(all, chosen, *reach, *sustained)?,
            Metric::Plateau { at } => plateau(all, chosen, *at)?,
            _ => unreachable!("{metric:?} has a value for each command buffer"),
        })
    }

    /// Time above the steady execution time, which is the median over the step's last part.
    fn loss(&self, chosen: &[usize]) -> Option<f64> {
        let all = self.all();
        let (begin, end) = bounds(all)?;
        let from = end - Span::from_nanos_f64(end.since(begin).as_nanos() as f64 * STEADY);
        let late = all.iter().filter(|d| d.gpu_start >= from);
        let steady: Vec<f64> = late.map(|d| d.execution().as_secs()).collect();
        let steady = everwarm_stats::median(&steady)?;
        Some(chosen.iter().map(|&i| all[i].execution().as_secs() - steady).sum())
    }

    /// Times between the marks of a step, the first since its beginning.
    fn intervals(&self) -> Vec<Sample> {
        let Some(step) = self.step else { return Vec::new() };
        let (from, to) = self.select.narrow(step.begin, step.end);
        let mut last = step.begin;
        let marks = step.marks.iter().map(|(_, at)| {
            let value = at.since(last).as_secs();
            last = *at;
            (*at, Sample { value, weight: value })
        });
        let inside = marks.filter(|(at, _)| from <= *at && *at <= to);
        inside.map(|(_, sample)| sample).collect()
    }

    /// As the work counted it, else what the p-state at its start stands for.
    fn clock(&self, dispatch: &Dispatch) -> Result<f64, Reason> {
        if let Some(clock) = dispatch.clock {
            return Ok(clock.as_hz());
        }
        let table =
            self.run.device.pstates.as_ref().ok_or("the device does not tell its clocks")?;
        let pstate = pstate(dispatch)?;
        let clock = pstate.index().checked_sub(1).and_then(|i| table.get(i));
        clock.map(|clock| clock.as_hz()).ok_or_else(|| format!("{pstate} has no clock"))
    }
}

/// What a rate counts.
fn work(dispatch: &Dispatch) -> Result<f64, Reason> {
    let work = dispatch.kernel.flops().or(dispatch.kernel.bytes());
    work.ok_or_else(|| "the kernel counts neither operations nor bytes, so it has no rate".into())
}

fn pstate(dispatch: &Dispatch) -> Result<PState, Reason> {
    dispatch.pstate.ok_or_else(|| "the device does not tell the p-state".into())
}

/// From the step's first start to the first buffer that began at `reach` or above; `sustained`: to
/// the first one after which no two in a row were below.
fn time_until(
    all: &[Dispatch],
    chosen: &[usize],
    reach: i64,
    sustained: bool,
) -> Result<Option<f64>, Reason> {
    let mut states = Vec::with_capacity(chosen.len());
    for &i in chosen {
        states.push(i64::from(pstate(&all[i])?.0) >= reach);
    }
    let from = match sustained {
        false => 0,
        true => {
            let fell = states.windows(2).rposition(|pair| !pair[0] && !pair[1]);
            // A last buffer below counts too: nothing shows that it was a single one.
            match states.last() {
                Some(false) => states.len(),
                _ => fell.map_or(0, |at| at + 2),
            }
        }
    };
    let first = (from..states.len()).find(|&n| states[n]);
    let origin = bounds(all).map(|(begin, _)| begin);
    let at = first.map(|n| all[chosen[n]].gpu_start);
    Ok(at.zip(origin).map(|(at, origin)| at.since(origin).as_secs()))
}

/// How long the first run of buffers in these p-states lasted: to the start of the next other one.
fn plateau(all: &[Dispatch], chosen: &[usize], at: Between) -> Result<Option<f64>, Reason> {
    let mut began = None;
    let mut end = None;
    for &i in chosen {
        let inside = at.contains(i64::from(pstate(&all[i])?.0));
        match (inside, began) {
            (true, None) => began = Some(all[i].gpu_start),
            (false, Some(began)) => return Ok(Some(all[i].gpu_start.since(began).as_secs())),
            _ => {}
        }
        end = Some(all[i].gpu_end);
    }
    Ok(began.zip(end).map(|(began, end)| end.since(began).as_secs()))
}

/// The complete buckets between two instants.
fn buckets(from: Instant, to: Instant, bucket: Span) -> Vec<(Instant, Instant)> {
    let count = to.since(from).as_nanos() / bucket.as_nanos();
    (0..count).map(|n| (from + bucket * n, from + bucket * (n + 1))).collect()
}
