//! What a device is, and what it says of the work it did.

use everwarm_units::{Celsius, Hertz, Instant, Joules, PState, Span, Watts};
use everwarm_workload::Kernel;

/// A device, as far as it can tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// As the user writes it: `sim:m2`, `cuda:0`.
    pub id: String,
    /// The maker's name: "Apple M2 (t8112), 8-core GPU".
    pub name: String,
    /// True for a modelled device.
    pub simulated: bool,
    /// True if time is virtual: sleeping costs nothing and two runs are alike.
    pub virtual_time: bool,
    /// Clocks of the p-states, ascending, without the off state.
    pub pstates: Option<Vec<Hertz>>,
    /// Command buffers that may be in flight in one queue.
    pub in_flight_max: usize,
    /// Iterations of the FMA chain ([`Kernel::FMA_THREADS`] threads) in one millisecond at the
    /// top clock: known of a simulated device, measured at opening on a real one.
    pub fma_iterations_per_ms: f64,
    /// The same for a single threadgroup ([`Kernel::GROUP_THREADS`]).
    pub fma_iterations_per_ms_group: f64,
    /// What a reader of a record wants to know besides: driver version, resolution of the GPU's
    /// timer, power source. Shape: name and value, in the order in which they should be read.
    pub facts: Vec<(String, String)>,
}

impl Device {
    /// The FMA chain that takes `span` of execution at the top clock with `threads` threads.
    pub fn fma(&self, span: Span, threads: u32) -> Kernel {
        let iterations = (span.as_ms() * self.fma_rate(threads)).round();
        Kernel::Fma { iterations: iterations.clamp(1.0, f64::from(u32::MAX)) as u32, threads }
    }

    /// The longest that [`Device::fma`] can make a kernel of so many threads.
    pub fn fma_longest(&self, threads: u32) -> Span {
        Span::from_ms(f64::from(u32::MAX) / self.fma_rate(threads))
    }

    /// Iterations a millisecond at the top clock.
    fn fma_rate(&self, threads: u32) -> f64 {
        match threads > Kernel::GROUP_THREADS {
            true => self.fma_iterations_per_ms,
            false => self.fma_iterations_per_ms_group,
        }
    }
}

/// A queue of one backend handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Queue(pub u32);

/// A committed command buffer of one backend handle; numbers ascend in commit order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A command buffer that has ended, with its times on the handle's time base.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Completion {
    /// Which one.
    pub ticket: Ticket,
    /// Its queue.
    pub queue: Queue,
    /// When the host committed it: right before the first call that gives the driver work of this
    /// buffer. What was prepared for it before (memory, an encoded buffer) is not in the time after.
    pub committed: Instant,
    /// When the GPU began it.
    pub gpu_start: Instant,
    /// When the GPU ended it.
    pub gpu_end: Instant,
    /// When the host learned of it.
    pub observed: Instant,
    /// The p-state at `gpu_start`, where the device tells.
    pub pstate: Option<PState>,
    /// The mean core clock while it ran, where the work itself could count cycles.
    pub clock: Option<Hertz>,
    /// How late a real-time simulation was with this buffer; `None` where that can't happen.
    pub late: Option<Span>,
}

/// What a device tells of itself: cumulative since the handle was opened, or of the moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counters {
    /// When they were read.
    pub at: Instant,
    /// Time in each p-state. Shape: index 0 is off, then P1 upwards. They sum to wall time.
    pub residency: Option<Vec<Span>>,
    /// Energy of the GPU rail.
    pub gpu_energy: Option<Joules>,
    /// Energy of the CPU spent on submission.
    pub cpu_energy: Option<Joules>,
    /// The p-state now.
    pub pstate: Option<PState>,
    /// The clock now.
    pub clock: Option<Hertz>,
    /// The clock of the memory now.
    pub memory_clock: Option<Hertz>,
    /// Power of the whole board or the GPU rail, as the device averages it.
    pub power: Option<Watts>,
    /// The temperature of the die.
    pub temperature: Option<Celsius>,
    /// What keeps the clock down now, in plain words ("power cap"); empty if nothing does.
    pub limited_by: Option<Vec<String>>,
    /// Share of time with work running, since the handle was opened.
    pub busy: Option<f64>,
}
