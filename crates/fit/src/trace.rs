//! Recorded runs as fitting sees them: steps of command buffers, without p-states or counters.
//!
//! A recorded run and a simulated one become the same thing here, so that what is read off one is
//! read off the other by the same code.

use everwarm_record as record;

/// A command buffer. Unit of times: ms since the run began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buffer {
    /// When the host gave it away.
    pub committed: f64,
    /// When the GPU began it.
    pub start: f64,
    /// When the GPU ended it.
    pub end: f64,
    /// When the host learned of its end.
    pub observed: f64,
    /// Operations, or 0.
    pub flops: f64,
    /// Bytes of traffic, or 0.
    pub bytes: f64,
    /// The core clock while it ran, where the work itself counted cycles. Unit: MHz.
    pub clock: Option<f64>,
}

impl Buffer {
    /// Execution time. Unit: ms.
    pub fn took(&self) -> f64 {
        self.end - self.start
    }

    /// What it is: buffers with equal work are the same kernel.
    pub fn work(&self) -> (u64, u64) {
        (self.flops.to_bits(), self.bytes.to_bits())
    }
}

/// The buffers of one step in one round of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Name of the scenario.
    pub scenario: String,
    /// Cell of its sweep, empty if it has none.
    pub cell: String,
    /// The step's label.
    pub label: String,
    /// Round.
    pub round: u32,
    /// In the order of commits.
    pub buffers: Vec<Buffer>,
    /// From the end of whatever ran before to the first commit; `None` at the start of a run.
    /// Unit: ms.
    pub idle: Option<f64>,
}

impl Step {
    /// From the end of each buffer to the start of the next one. Unit: ms.
    pub fn gaps(&self) -> Vec<f64> {
        self.buffers.windows(2).map(|w| w[1].start - w[0].end).collect()
    }

    /// Buffers are committed before the one before them has ended.
    pub fn is_queued(&self) -> bool {
        let ahead = self.buffers.windows(2).filter(|w| w[1].committed < w[0].end).count();
        2 * ahead > self.buffers.len().saturating_sub(1)
    }

    /// All buffers do the same.
    pub fn is_uniform(&self) -> bool {
        self.buffers.windows(2).all(|w| w[0].work() == w[1].work())
    }
}

/// The steps of a run, in the order of time.
pub fn steps(run: &record::Run) -> Vec<Step> {
    let name = run.manifest.scenario.as_ref().map_or("", |s| s.name.as_str());
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut steps: Vec<Step> = Vec::new();
    let mut last_end: Option<f64> = None;
    let mut rows: Vec<&record::Dispatch> = run.dispatches.iter().collect();
    rows.sort_by_key(|row| row.committed_ns);
    for row in rows {
        let cell = row.cell.clone().unwrap_or_default();
        let label = row.step.clone().unwrap_or_default();
        let round = row.round.unwrap_or(0);
        let buffer = Buffer {
            committed: ms(row.committed_ns),
            start: ms(row.gpu_start_ns),
            end: ms(row.gpu_end_ns),
            observed: ms(row.observed_ns),
            flops: row.flops.unwrap_or(0.0),
            bytes: row.bytes.unwrap_or(0.0),
            clock: row.clock_hz.map(|hz| hz / 1e6),
        };
        let same = |s: &Step| s.cell == cell && s.label == label && s.round == round;
        if !steps.last().is_some_and(same) {
            let idle = last_end.map(|end| buffer.committed - end);
            let scenario = name.to_owned();
            steps.push(Step { scenario, cell, label, round, buffers: Vec::new(), idle });
        }
        last_end = Some(last_end.map_or(buffer.end, |end| end.max(buffer.end)));
        if let Some(step) = steps.last_mut() {
            step.buffers.push(buffer);
        }
    }
    steps
}
