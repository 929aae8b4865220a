//! A chip as data: everything the simulator and the controller know of one GPU.
//!
//! The types mirror a chip file (`chips/m2.toml`) section by section; `file` reads and checks it.
//! Nothing here has a default: what a chip file leaves out, and is like no other chip that has it,
//! is an error, not a guess.

use crate::PowerModel;
use everwarm_units::{BytesPerSecond, Cycles, Hertz, Joules, PState, Span, Volts, Watts};
use serde::{Deserialize, Serialize};

/// Everything the simulator knows of one chip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// Short name, as in `sim:m2`.
    pub id: String,
    /// The maker's name.
    pub name: String,
    /// GPU cores; `None` if nobody scales by it.
    pub cores: Option<u32>,
    /// The memory's bandwidth as the maker gives it; `None` if nobody scales by it.
    pub memory_peak: Option<BytesPerSecond>,
    /// Operating points. Shape: ascending clocks, P1 first, without the off state.
    pub pstates: Vec<OperatingPoint>,
    /// The firmware performance controller.
    pub controller: ControllerParameters,
    /// The host's side of a command buffer.
    pub host: HostCosts,
    /// What a gated GPU costs the first buffer.
    pub wake: WakeCosts,
    /// Power of the GPU rail.
    pub power: Power,
    /// What kernels cost.
    pub kernels: KernelCosts,
    /// Coefficients for power limits that are not published.
    pub power_model: Option<PowerModel>,
}

/// One p-state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatingPoint {
    /// Core clock.
    pub clock: Hertz,
    /// Core voltage.
    pub voltage: Volts,
    /// The driver's figure for the most power drawn here; only ratios between states are used.
    pub power_limit: Watts,
}

/// Parameters of the performance controller; the controller's essay gives their meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerParameters {
    /// Time between two decisions while powered.
    pub sample_period: Span,
    /// Time from the end of the last work to power off.
    pub idle_off_delay: Span,
    /// The lowest p-state used while powered.
    pub base_pstate: u8,
    /// Utilisation that the loop settles at. Unit: percent.
    pub target_utilization_pct: f64,
    /// Time constant of the utilisation filter. Unit: sample periods.
    pub filter_periods: f64,
    /// Proportional gain. Unit: output percent per percent of utilisation.
    pub proportional_gain: f64,
    /// Integral gain. Unit: output percent per percent of utilisation and sample.
    pub integral_gain: f64,
    /// Most that the regulator's output winds up to. Unit: output percent.
    pub output_limit_pct: f64,
    /// Samples for which a boost is held and a gated regulator stands still; also what one sample
    /// without credited work takes back.
    pub reset_periods: u32,
    /// Time without power after which the controller begins as new.
    pub forget_after: Span,
    /// Filtered utilisation of a new controller. Unit: percent.
    pub filter_start_pct: f64,
    /// Credited share of a window from which it counts towards a boost. Unit: percent.
    pub boost_min_utilization_pct: f64,
    /// Size of the first boost. Unit: percent of the span from base to top clock.
    pub boost_step_pct: f64,
    /// An empty queue is credited as busy if it is filled again within this time.
    pub credited_gap: Span,
    /// Work without any gap for this long is a burst, which is boosted sooner.
    pub burst: Span,
    /// Credited samples before the first boost, after a burst.
    pub boost_periods_burst: f64,
    /// Credited samples before the first boost otherwise.
    pub boost_periods: f64,
    /// Further credited samples before the boost that lasts.
    pub lasting_boost_periods: f64,
    /// Further credited samples with a burst that count as much.
    pub lasting_boost_periods_burst: f64,
    /// Share of the way to the first boost's size that one sample goes.
    pub boost_rise: f64,
    /// What one sample leaves of a boost that is over.
    pub boost_fade: f64,
}

/// What a command buffer costs outside the GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCosts {
    /// Commit until the firmware knows of the buffer.
    pub commit_to_firmware: Span,
    /// Commit until the GPU starts on a buffer that finds it powered and its queue empty.
    pub commit_to_start: Span,
    /// End of a buffer to the start of the next one of its queue that is already there.
    pub buffer_gap: Span,
    /// End of a buffer until the host learns of it.
    pub completion_to_host: Span,
    /// CPU energy of one submission with its completion.
    pub submission_energy: Joules,
}

/// What the first buffer pays when it finds the GPU gated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeCosts {
    /// Commit to start by idle time. Shape: ascending idle times, at least one entry.
    pub start: Vec<WakeStart>,
    /// Idle time after which the memory of programs that do not keep it wired no longer is.
    pub unwired_after: Span,
    /// Rate at which it is wired again, from the wake on.
    pub wiring_rate: BytesPerSecond,
    /// First start after gating until memory traffic flows.
    pub memory_ready: Span,
    /// Idle time after which the GPU is in deep idle.
    pub deep_idle_after: Span,
    /// Time inside the first buffer after deep idle before it makes progress.
    pub deep_idle_stall: Span,
}

/// One point of [`WakeCosts::start`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WakeStart {
    /// Time since the last work ended.
    pub idle: Span,
    /// Commit-to-start latency after that.
    pub latency: Span,
}

/// Power of the GPU rail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Powered off.
    pub off: Watts,
    /// Powered at the top p-state without work.
    pub idle: Watts,
    /// Full arithmetic load at the top p-state.
    pub full: Watts,
    /// Share of a kernel's dynamic power that remains while it moves memory.
    pub memory_share: f64,
}

/// What kernels cost on this chip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    /// Fixed time in each buffer that has a dispatch.
    pub overhead: Span,
    /// Fixed cycles in each buffer that has a dispatch.
    pub overhead_cycles: Cycles,
    /// Fixed time of a buffer without a dispatch.
    pub empty: Span,
    /// Latency of one iteration (two dependent FMAs) of a thread that has a core to itself.
    pub fma_cycles: Cycles,
    /// Throughput of such iterations over the whole GPU. Unit: threads an iteration and cycle.
    pub fma_threads_per_cycle: f64,
    /// Latency of one step of a matrix product's inner dimension.
    pub matmul_cycles: Cycles,
    /// Peak single-precision rate of the whole GPU. Unit: operations a cycle.
    pub flops_per_cycle: f64,
    /// Share of the GPU up to which kernels run beside one that fills it.
    pub beside_share: f64,
    /// Memory bandwidth, which no p-state limits.
    pub bandwidth: BytesPerSecond,
}

impl Chip {
    /// The fastest p-state.
    pub fn top(&self) -> PState {
        PState(self.pstates.len() as u8)
    }

    /// The clock of `pstate`; none while off.
    ///
    /// # Panics
    /// If the chip has no such p-state.
    pub fn clock(&self, pstate: PState) -> Hertz {
        match pstate.index() {
            0 => Hertz::ZERO,
            n => self.pstates[n - 1].clock,
        }
    }

    /// Clocks of the p-states, ascending, without the off state.
    pub fn clocks(&self) -> Vec<Hertz> {
        self.pstates.iter().map(|p| p.clock).collect()
    }

    /// Place of `pstate`'s clock between the base state's (0) and the top's (100), as the firmware
    /// tabulates it. Unit: percent.
    pub fn boost_pct(&self, pstate: PState) -> f64 {
        let base = self.clock(PState(self.controller.base_pstate)).as_hz();
        let span = self.clock(self.top()).as_hz() - base;
        if span <= 0.0 {
            return 0.0;
        }
        (100.0 * (self.clock(pstate).as_hz() - base) / span).max(0.0)
    }

    /// Threads from which the FMA chain is bound by throughput rather than latency.
    pub fn threads_to_fill(&self) -> f64 {
        self.kernels.fma_cycles.as_n() * self.kernels.fma_threads_per_cycle
    }
}

impl WakeCosts {
    /// Commit-to-start latency of a buffer that finds the GPU gated `idle` after the last work.
    pub fn latency(&self, idle: Span) -> Span {
        let after = self.start.partition_point(|s| s.idle <= idle);
        let (Some(low), Some(high)) = (self.start[..after].last(), self.start.get(after)) else {
            let edge = if after == 0 { self.start.first() } else { self.start.last() };
            return edge.map_or(Span::ZERO, |s| s.latency);
        };
        let log = |span: Span| (span.as_nanos().max(1) as f64).ln();
        let share = (log(idle) - log(low.idle)) / (log(high.idle) - log(low.idle));
        let (from, to) = (low.latency.as_ms(), high.latency.as_ms());
        Span::from_ms(from + share * (to - from))
    }
}
