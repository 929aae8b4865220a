//! What one command buffer costs, and how far it has come.
//!
//! A [`Work`] is derived once, at commit. A [`Progress`] spends it in three stretches: a fixed time
//! (overhead, a stall), then cycles at whatever clock there is, then memory traffic once the memory
//! path is ready. It is brought up to date only when the clock changes or the work ends, so the
//! instants at which a caller looks do not matter.

use everwarm_dvfs::{Chip, KernelCosts};
use everwarm_units::Hertz;
use everwarm_workload::Kernel;

/// The cost of one command buffer on one chip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Work {
    /// Time that no clock shortens. Unit: ns.
    pub fixed: f64,
    /// Core cycles.
    pub cycles: f64,
    /// Memory traffic after them. Unit: B.
    pub bytes: f64,
    /// Share of the GPU that it fills, 0 to 1.
    pub occupancy: f64,
}

impl Work {
    pub(crate) fn of(kernel: &Kernel, chip: &Chip) -> Work {
        let k = &chip.kernels;
        let filled = |threads: f64| (threads / chip.threads_to_fill()).min(1.0);
        match *kernel {
            Kernel::Empty => {
                let fixed = k.empty.as_nanos() as f64;
                Work { fixed, cycles: 0.0, bytes: 0.0, occupancy: 0.0 }
            }
            Kernel::Fma { iterations, threads } => {
                let threads = f64::from(threads);
                let each = k.fma_cycles.as_n().max(threads / k.fma_threads_per_cycle);
                dispatch(k, f64::from(iterations) * each, 0.0, filled(threads))
            }
            Kernel::Stream { bytes } => dispatch(k, 0.0, bytes as f64, 1.0),
            Kernel::Matmul { n } => {
                let n = f64::from(n);
                let cycles = (2.0 * n.powi(3) / k.flops_per_cycle).max(n * k.matmul_cycles.as_n());
                dispatch(k, cycles, 0.0, filled(n * n))
            }
            // `max` also turns a NaN into no work.
            Kernel::Modelled { flops, bytes, .. } => {
                dispatch(k, flops.max(0.0) / k.flops_per_cycle, bytes.max(0.0), 1.0)
            }
        }
    }
}

fn dispatch(k: &KernelCosts, cycles: f64, bytes: f64, occupancy: f64) -> Work {
    let fixed = k.overhead.as_nanos() as f64;
    Work { fixed, cycles: cycles + k.overhead_cycles.as_n(), bytes, occupancy }
}

/// What work is spent at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rates {
    /// Cycles a nanosecond.
    pub clock: f64,
    /// Bytes a nanosecond.
    pub bandwidth: f64,
    /// When memory traffic flows. Unit: ns since the machine began.
    pub memory_ready: u64,
}

impl Rates {
    pub(crate) fn new(chip: &Chip, clock: Hertz, memory_ready: u64) -> Rates {
        let bandwidth = chip.kernels.bandwidth.as_b_s() / 1e9;
        Rates { clock: clock.as_hz() / 1e9, bandwidth, memory_ready }
    }
}

/// Work that has been begun.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Progress {
    /// What is left as of `at`.
    left: Work,
    at: u64,
    /// How long the cycles take at the rates it is spent at. Unit: ns.
    computing: f64,
}

impl Progress {
    /// `work` begins at `at`, to be spent at `rates`.
    pub(crate) fn new(work: Work, at: u64, rates: &Rates) -> Progress {
        Progress { left: work, at, computing: work.cycles / rates.clock }
    }

    /// Share of the GPU that it fills.
    pub(crate) fn occupancy(&self) -> f64 {
        self.left.occupancy
    }

    /// When it ends if `rates`, those it is spent at, last.
    pub(crate) fn end(&self, rates: &Rates) -> u64 {
        let mut ns = self.left.fixed + self.computing;
        if self.left.bytes > 0.0 {
            ns = ns.max(rates.memory_ready.saturating_sub(self.at) as f64);
            ns += self.left.bytes / rates.bandwidth;
        }
        // Rounded up by hand: without SSE 4.1, `ceil` is a call, and this is once a buffer. Signed
        // numbers convert in one instruction.
        let whole = ns as i64;
        self.at.saturating_add(whole as u64 + u64::from((whole as f64) < ns))
    }

    /// The time from the last change of rates until `to`, and how much of it goes into computing.
    /// Unit: ns.
    pub(crate) fn spent(&self, to: u64) -> (f64, f64) {
        let time = (to - self.at) as i64 as f64;
        (time, (time - time.min(self.left.fixed)).min(self.computing))
    }

    /// Until `to` it was spent at `rates`, from there on it is at `next`.
    pub(crate) fn change(&mut self, to: u64, rates: &Rates, next: &Rates) {
        let (mut time, computed) = self.spent(to);
        let fixed = time.min(self.left.fixed);
        self.left.fixed -= fixed;
        time -= fixed;
        self.left.cycles = match computed < time {
            true => 0.0,
            false => (self.left.cycles - computed * rates.clock).max(0.0),
        };
        time -= computed;
        time = time.min(to.saturating_sub(rates.memory_ready) as f64);
        self.left.bytes = (self.left.bytes - time * rates.bandwidth).max(0.0);
        *self = Progress::new(self.left, to, next);
    }
}
