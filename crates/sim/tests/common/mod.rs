//! A host thread in a dozen lines, for the tests of the machine.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod study;

use everwarm_dvfs::Chip;
use everwarm_sim::{Completion, Machine, QueueId};
use everwarm_units::{Instant, PState, Span};
use everwarm_workload::Kernel;

/// A machine and one queue of it.
pub struct Rig {
    pub machine: Machine,
    pub queue: QueueId,
}

pub fn m2() -> Chip {
    Chip::built_in("m2").unwrap()
}

/// The FMA chain whose pure execution at P8 takes `ms`.
pub fn alu(ms: f64) -> Kernel {
    Kernel::Fma { iterations: (ms / 0.00029).round() as u32, threads: Kernel::FMA_THREADS }
}

/// One threadgroup that runs for `ms` at P8.
pub fn group(ms: f64) -> Kernel {
    Kernel::Fma { iterations: (ms * 200_000.0 / 5.5).round() as u32, threads: 32 }
}

pub const STREAM: Kernel = Kernel::Stream { bytes: 65_536 * 32 * 16 };

impl Rig {
    pub fn new(chip: Chip) -> Rig {
        let mut machine = Machine::new(chip);
        let queue = machine.open_queue();
        Rig { machine, queue }
    }

    pub fn now(&self) -> Instant {
        self.machine.now()
    }

    pub fn idle(&mut self, ms: f64) {
        self.machine.advance(self.now() + Span::from_ms(ms));
    }

    pub fn commit(&mut self, kernel: &Kernel) {
        self.machine.commit(self.now(), self.queue, kernel);
    }

    /// Blocks until the next completion.
    pub fn wait(&mut self) -> Completion {
        loop {
            if let Some(done) = self.machine.poll() {
                return done;
            }
            let next = self.machine.next_event().expect("something is outstanding");
            self.machine.advance(next);
        }
    }

    /// `n` buffers one after another, with a host sleep after each wait.
    pub fn sync(&mut self, kernel: &Kernel, n: usize, sleep_ms: f64) -> Vec<Completion> {
        let mut all = Vec::with_capacity(n);
        for _ in 0..n {
            self.commit(kernel);
            all.push(self.wait());
            self.idle(sleep_ms);
        }
        all
    }

    /// Buffers one after another for `ms`.
    pub fn sync_for(&mut self, kernel: &Kernel, ms: f64, sleep_ms: f64) -> Vec<Completion> {
        let end = self.now() + Span::from_ms(ms);
        let mut all = Vec::new();
        while self.now() < end {
            all.extend(self.sync(kernel, 1, sleep_ms));
        }
        all
    }

    /// `n` buffers committed at once.
    pub fn deep(&mut self, kernel: &Kernel, n: usize) -> Vec<Completion> {
        (0..n).for_each(|_| self.commit(kernel));
        (0..n).map(|_| self.wait()).collect()
    }

    /// `depth` buffers in flight for `ms`, a host delay before each commit.
    pub fn in_flight(
        &mut self,
        kernel: &Kernel,
        depth: usize,
        ms: f64,
        delay: f64,
    ) -> Vec<Completion> {
        let end = self.now() + Span::from_ms(ms);
        let mut all = Vec::new();
        (0..depth).for_each(|_| self.commit(kernel));
        while self.now() < end {
            all.push(self.wait());
            self.idle(delay);
            self.commit(kernel);
        }
        (0..depth).for_each(|_| all.push(self.wait()));
        all
    }
}

/// GPU time of a buffer. Unit: ms.
pub fn took(c: &Completion) -> f64 {
    c.gpu_end.since(c.gpu_start).as_ms()
}

/// Commit-to-start latency. Unit: ms.
pub fn latency(c: &Completion) -> f64 {
    c.gpu_start.since(c.committed).as_ms()
}

/// First start to last end. Unit: ms.
pub fn span(all: &[Completion]) -> f64 {
    all[all.len() - 1].gpu_end.since(all[0].gpu_start).as_ms()
}

/// Gaps between buffers on the GPU timeline. Unit: ms.
pub fn gaps(all: &[Completion]) -> Vec<f64> {
    all.windows(2).map(|w| w[1].gpu_start.since(w[0].gpu_end).as_ms()).collect()
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The p-state held for half of the running time over the last 60 % of the run.
pub fn settled(all: &[Completion]) -> PState {
    let cut = all[0].gpu_start + Span::from_ms(0.4 * span(all));
    let tail = all.iter().filter(|c| c.gpu_start >= cut);
    let mut weighted: Vec<(PState, f64)> = tail.map(|c| (c.pstate, took(c))).collect();
    weighted.sort_by_key(|(p, _)| *p);
    let half = weighted.iter().map(|(_, w)| w).sum::<f64>() / 2.0;
    let mut sum = 0.0;
    for (p, w) in weighted {
        sum += w;
        if sum >= half {
            return p;
        }
    }
    PState::OFF
}
