//! The work of one command buffer.

/// The work of one command buffer, as a backend is asked to run it.
///
/// The first four run on every backend. [`Kernel::Modelled`] is work known only by its cost
/// (a prefill step of a transformer, say): a simulated device takes it as it is, a real one
/// builds it from FMA chains and streaming reads of the same cost.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kernel {
    /// A command buffer without work.
    Empty,
    /// A dependent chain of fused multiply-adds, two an iteration, no memory traffic: a clock
    /// meter. `threads` run it side by side; [`Kernel::GROUP_THREADS`] are one threadgroup on one
    /// core.
    Fma {
        /// Iterations of two FMAs (four floating-point operations) a thread.
        iterations: u32,
        /// Threads. Shape: 65,536 fill an M2 several times over.
        threads: u32,
    },
    /// A streaming read of `bytes` with negligible arithmetic: a bandwidth meter.
    Stream {
        /// Memory traffic. Unit: B.
        bytes: u64,
    },
    /// A dense single-precision matrix product of two `n` by `n` matrices.
    Matmul {
        /// Rows and columns.
        n: u32,
    },
    /// Work known by its cost alone: arithmetic that fills the GPU, then memory traffic.
    Modelled {
        /// Floating-point operations at the device's peak rate (single precision, all cores); a
        /// kernel that reaches half of the peak is given twice its own.
        flops: f64,
        /// Memory traffic that does not overlap with them. Unit: B.
        bytes: f64,
        /// Memory that must be wired before it can start; 0 where a program keeps its own wired.
        /// Unit: B.
        #[serde(default)]
        resident: f64,
    },
}

impl Kernel {
    /// Threads of the FMA chain that is used as a clock meter.
    ///
    /// Source: study 2 (65,536 threads).
    pub const FMA_THREADS: u32 = 65_536;

    /// Threads of one small threadgroup.
    ///
    /// Source: study 4.1 (a hold of one threadgroup of 32 threads).
    pub const GROUP_THREADS: u32 = 32;

    /// Floating-point operations in this kernel, where they are what it measures.
    pub fn flops(&self) -> Option<f64> {
        match *self {
            // Two FMAs an iteration, two operations each.
            Kernel::Fma { iterations, threads } => {
                Some(4.0 * f64::from(iterations) * f64::from(threads))
            }
            Kernel::Matmul { n } => Some(2.0 * f64::from(n).powi(3)),
            Kernel::Empty | Kernel::Stream { .. } | Kernel::Modelled { .. } => None,
        }
    }

    /// Memory that a simulated driver must have wired before it can start, 0 for what needs next to
    /// none. Unit: B.
    pub fn resident(&self) -> f64 {
        match *self {
            // `max` also turns a NaN into none.
            Kernel::Modelled { resident, .. } => resident.max(0.0),
            _ => 0.0,
        }
    }

    /// Bytes of memory traffic, where they are what it measures.
    pub fn bytes(&self) -> Option<f64> {
        match *self {
            Kernel::Stream { bytes } => Some(bytes as f64),
            _ => None,
        }
    }
}
