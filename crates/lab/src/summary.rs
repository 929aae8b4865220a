//! What a person wants to see of a recorded run: a line for each step with work in each cell.
//!
//! It is taken from the record alone, so that a run of yesterday, of another machine or of another
//! version reads like the one that has just ended.

use everwarm_record::{Dispatch, Run, Telemetry};
use everwarm_units::Span;
use std::collections::HashMap;

/// One step of one cell, over all rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The cell, if the scenario has variables.
    pub cell: Option<String>,
    /// The actor.
    pub actor: String,
    /// The step's label.
    pub label: String,
    /// How often the step ran.
    pub runs: usize,
    /// Command buffers in all.
    pub dispatches: usize,
    /// Median host time of the step. Unit: ms.
    pub wall_ms: Option<f64>,
    /// Median time of a command buffer on the GPU. Unit: ms.
    pub execution_ms: Option<f64>,
    /// Median commit-to-start of the step's first buffer. Unit: ms.
    pub first_start_ms: Option<f64>,
    /// Median gap on the GPU's timeline between two buffers of one run of the step. Unit: ms.
    pub gap_ms: Option<f64>,
    /// Lowest and highest p-state at a start.
    pub pstates: Option<(u8, u8)>,
    /// Lowest and highest clock that was counted while a buffer ran. Unit: MHz.
    pub clocks_mhz: Option<(f64, f64)>,
    /// Median over the step's runs of the mean power within one, by the energy counter. Unit: W.
    pub power_w: Option<f64>,
}

/// Which step of which cell: the cell, the actor, the label.
type Key<'r> = (Option<&'r str>, &'r str, &'r str);

/// Every step with work, in the order in which they first ran.
pub fn summary(run: &Run) -> Vec<Summary> {
    let steps = steps(run);
    let mut order: Vec<Key> = Vec::new();
    let mut groups: HashMap<Key, Vec<&Step>> = HashMap::new();
    for step in &steps {
        groups.entry(step.key).or_insert_with(|| {
            order.push(step.key);
            Vec::new()
        });
        groups.get_mut(&step.key).expect("just made").push(step);
    }
    let lines = order.iter().map(|key| of(key, &groups[key], &run.telemetry));
    let with_work = |line: &Summary| line.dispatches > 0 || line.power_w.is_some();
    lines.filter(with_work).collect()
}

/// One run of a step: its bounds on the host, and its command buffers in commit order.
struct Step<'r> {
    key: Key<'r>,
    begin_ns: u64,
    end_ns: Option<u64>,
    dispatches: Vec<&'r Dispatch>,
}

/// The runs of the steps by their marks; buffers without marks (another writer's) count as one run.
fn steps(run: &Run) -> Vec<Step<'_>> {
    let mut steps: Vec<Step> = Vec::new();
    let mut open: HashMap<(Option<u32>, Key), Vec<usize>> = HashMap::new();
    for mark in &run.marks {
        let Some((side, label)) = mark.name.split_once(' ') else { continue };
        let key = (mark.cell.as_deref(), mark.actor.as_str(), label);
        match side {
            "begin" => {
                let dispatches = Vec::new();
                open.entry((mark.round, key)).or_default().push(steps.len());
                steps.push(Step { key, begin_ns: mark.at_ns, end_ns: None, dispatches });
            }
            "end" => {
                let begun = open.get(&(mark.round, key)).into_iter().flatten();
                let mut waiting = begun.copied().filter(|&n| steps[n].end_ns.is_none());
                if let Some(n) = waiting.next() {
                    steps[n].end_ns = Some(mark.at_ns);
                }
            }
            _ => {}
        }
    }
    for dispatch in &run.dispatches {
        let label = dispatch.step.as_deref().unwrap_or("-");
        let key = (dispatch.cell.as_deref(), dispatch.actor.as_str(), label);
        let runs = open.entry((dispatch.round, key)).or_default();
        // A step that is carried out several times in one round: the last that had begun by then.
        let begun = runs.partition_point(|&n| steps[n].begin_ns <= dispatch.committed_ns);
        match runs.get(begun.saturating_sub(1)) {
            Some(&n) => steps[n].dispatches.push(dispatch),
            None => {
                runs.push(steps.len());
                let begin_ns = dispatch.committed_ns;
                steps.push(Step { key, begin_ns, end_ns: None, dispatches: vec![dispatch] });
            }
        }
    }
    steps
}

fn of(key: &Key, steps: &[&Step], telemetry: &[Telemetry]) -> Summary {
    let median = |values: Vec<f64>| everwarm_stats::median(&values);
    let ms = |from: u64, to: u64| Span::ns(to.saturating_sub(from)).as_ms();
    let all = || steps.iter().flat_map(|step| step.dispatches.iter().copied());
    let clocks = || all().filter_map(|d| d.clock_hz).map(|hz| hz / 1e6);
    let states = || all().filter_map(|d| d.pstate);
    let first = |step: &&Step| {
        let d = step.dispatches.first()?;
        Some(ms(d.committed_ns, d.gpu_start_ns))
    };
    let gaps = steps.iter().flat_map(|step| step.dispatches.windows(2));
    let gaps = gaps.map(|pair| ms(pair[0].gpu_end_ns, pair[1].gpu_start_ns)).collect();
    let wall = |step: &&Step| Some(ms(step.begin_ns, step.end_ns?));
    let power = |step: &&Step| mean_power(telemetry, step.begin_ns, step.end_ns?);
    Summary {
        cell: key.0.map(str::to_owned),
        actor: key.1.to_owned(),
        label: key.2.to_owned(),
        runs: steps.len(),
        dispatches: all().count(),
        wall_ms: median(steps.iter().filter_map(wall).collect()),
        execution_ms: median(all().map(|d| ms(d.gpu_start_ns, d.gpu_end_ns)).collect()),
        first_start_ms: median(steps.iter().filter_map(first).collect()),
        gap_ms: median(gaps),
        pstates: states().min().zip(states().max()),
        clocks_mhz: clocks().reduce(f64::min).zip(clocks().reduce(f64::max)),
        power_w: median(steps.iter().filter_map(power).collect()),
    }
}

/// By the readings of the energy counter that lie within; `None` with fewer than two.
fn mean_power(telemetry: &[Telemetry], begin_ns: u64, end_ns: u64) -> Option<f64> {
    let from = telemetry.partition_point(|t| t.at_ns < begin_ns);
    let to = telemetry.partition_point(|t| t.at_ns <= end_ns);
    let inside = telemetry.get(from..to)?;
    let [first, .., last] = inside else { return None };
    let passed = last.at_ns.checked_sub(first.at_ns)? as f64 / 1e9;
    Some((last.gpu_energy_j? - first.gpu_energy_j?) / passed).filter(|power| power.is_finite())
}
