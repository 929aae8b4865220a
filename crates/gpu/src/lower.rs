//! What a real device runs for a kernel: a sequence of parts that it has a shader for.
//!
//! Backends know three parts; kernels that are known only by their cost become parts of the same
//! cost. Pure arithmetic: it knows no device.

use crate::Error;
use everwarm_workload::Kernel;

/// Something that a backend has a shader for. The parts of one command buffer run one after the
/// other: each sees what the one before has written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// The chain of fused multiply-adds of [`Kernel::Fma`].
    Fma {
        /// Iterations of two dependent FMAs a thread; at least 1.
        iterations: u32,
        /// Threads; at least 1.
        threads: u32,
    },
    /// The streaming read of [`Kernel::Stream`].
    Stream {
        /// Memory traffic; at least 1. Unit: B.
        bytes: u64,
    },
    /// The product of [`Kernel::Matmul`].
    Matmul {
        /// Rows and columns; at least 1.
        n: u32,
    },
}

impl Part {
    /// Threads of an FMA chain that stands for arithmetic that fills the device.
    ///
    /// Source: four times what an H200 runs at once (132 multiprocessors of 2,048 threads).
    pub const FILLING_THREADS: u32 = 1 << 20;

    /// Operations of one iteration of such a chain: two FMAs a thread, two operations each.
    const FILLING_FLOPS: f64 = 4.0 * Self::FILLING_THREADS as f64;
}

/// The parts of `kernel` in order; none for an empty command buffer.
///
/// A [`Kernel::Modelled`] is arithmetic at the peak rate, then memory traffic: a chain of as many
/// operations with enough threads to hide its latency, then a streaming read. Memory that it wants
/// wired is the driver's business on a real device: what a process has allocated stays as it is.
///
/// # Errors
/// [`Error::Unsupported`] by `device` for a cost that would take it hours.
pub fn lower(kernel: &Kernel, device: &str) -> Result<Vec<Part>, Error> {
    Ok(match *kernel {
        Kernel::Empty => Vec::new(),
        Kernel::Fma { iterations, threads } => {
            vec![Part::Fma { iterations: iterations.max(1), threads: threads.max(1) }]
        }
        Kernel::Stream { bytes } => vec![Part::Stream { bytes: bytes.max(1) }],
        Kernel::Matmul { n } => vec![Part::Matmul { n: n.max(1) }],
        Kernel::Modelled { flops, bytes, .. } => {
            let iterations = whole(flops / Part::FILLING_FLOPS);
            // Longer than one chain can be: several of them.
            let whole_chains = (iterations / u64::from(u32::MAX)) as usize;
            if whole_chains > CHAINS_MAX || bytes > BYTES_MAX {
                let what = format!(
                    "a cost of {flops:.3e} operations and {bytes:.3e} B at once: expected at most \
                     {:.1e} and {BYTES_MAX:.1e}",
                    CHAINS_MAX as f64 * f64::from(u32::MAX) * Part::FILLING_FLOPS,
                );
                return Err(Error::Unsupported { device: device.to_owned(), what });
            }
            let rest = (iterations % u64::from(u32::MAX)) as u32;
            let chain = |iterations| Part::Fma { iterations, threads: Part::FILLING_THREADS };
            let mut parts = vec![chain(u32::MAX); whole_chains];
            parts.extend((rest > 0).then(|| chain(rest)));
            let bytes = whole(bytes);
            parts.extend((bytes > 0).then_some(Part::Stream { bytes }));
            parts
        }
    })
}

/// Chains that one command buffer may hold: hours of work on any GPU.
const CHAINS_MAX: usize = 64;

/// Memory traffic that one command buffer may stand for, likewise. Unit: B.
const BYTES_MAX: f64 = 1e15;

/// The nearest whole number; 0 for what is negative or no number.
fn whole(value: f64) -> u64 {
    value.round().max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_stays_the_same() {
        let cost = |parts: &[Part]| {
            let mut cost = (0.0, 0.0);
            for part in parts {
                match *part {
                    Part::Fma { iterations, threads } => {
                        cost.0 += 4.0 * f64::from(iterations) * f64::from(threads);
                    }
                    Part::Stream { bytes } => cost.1 += bytes as f64,
                    Part::Matmul { .. } => unreachable!("no cost is a product"),
                }
            }
            cost
        };
        for (flops, bytes) in [(0.0, 0.0), (1e9, 0.0), (0.0, 1e9), (3.2e13, 1.6e9), (1e18, 7.0)] {
            let parts = lower(&Kernel::Modelled { flops, bytes, resident: 1e9 }, "x").unwrap();
            let (f, b) = cost(&parts);
            assert!((f - flops).abs() <= Part::FILLING_FLOPS / 2.0 + 1e-9 * flops, "{flops}: {f}");
            assert_eq!(b, bytes);
        }
        let none = Kernel::Modelled { flops: f64::NAN, bytes: -1.0, resident: 0.0 };
        assert_eq!(lower(&none, "x").unwrap(), []);
        for (flops, bytes) in [(1e30, 0.0), (f64::INFINITY, 0.0), (0.0, f64::INFINITY)] {
            let error = lower(&Kernel::Modelled { flops, bytes, resident: 0.0 }, "x").unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
    }
}
