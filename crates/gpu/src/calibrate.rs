//! How fast a device runs the FMA chain, measured through its own backend.
//!
//! A simulated device knows this; a real one is measured when it is opened, at whatever clock it
//! gives to steady work. A kernel that should take a given time at the top clock
//! ([`crate::Device::fma`]) is made from the result.

use crate::{Backend, Completion, Error, Queue};
use everwarm_units::Span;
use everwarm_workload::Kernel;
use std::sync::{Mutex, PoisonError};

/// What this process has found out about devices, by what tells them apart.
pub(crate) struct Once<K, V>(Mutex<Vec<(K, V)>>);

impl<K: PartialEq, V: Clone> Once<K, V> {
    /// Nothing yet.
    pub const fn new() -> Self {
        Once(Mutex::new(Vec::new()))
    }

    /// What is known of a device, found out now if nothing is. Whoever asks meanwhile waits: two
    /// measurements at a time would each find half the speed.
    ///
    /// # Errors
    /// Those of `find`; nothing is known then.
    pub fn of<E>(&self, device: K, find: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = known.iter().find(|(of, _)| *of == device) {
            return Ok(value.clone());
        }
        let value = find()?;
        known.push((device, value.clone()));
        Ok(value)
    }
}

/// Iterations of the FMA chain in one millisecond: [`Kernel::FMA_THREADS`] threads and
/// [`Kernel::GROUP_THREADS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FmaRates {
    /// With [`Kernel::FMA_THREADS`] threads.
    pub full: f64,
    /// With [`Kernel::GROUP_THREADS`] threads.
    pub group: f64,
}

/// A chain at least this long is measured: many steps of any timer.
const LONG_ENOUGH: Span = Span::ms(1);

/// Steady work before anything counts: the slowest ramp that is known takes 137 ms (study 3).
const WARM_UP: Span = Span::ms(200);

/// Chains in flight: a loop that waits for each one keeps some GPUs from their top clock (study 3).
const DEPTH: usize = 8;

/// A completion that takes longer than this never comes.
const PATIENCE: Span = Span::s(20);

/// Measures how fast the device runs the FMA chain, on `queue`; takes about a second. Backends keep
/// the result for later handles of the same device.
///
/// # Errors
/// Those of [`Backend::commit`] and [`Backend::wait`]; [`Error::Lost`] if nothing completes.
pub fn calibrate(backend: &mut dyn Backend, queue: Queue) -> Result<FmaRates, Error> {
    Ok(FmaRates {
        full: rate(backend, queue, Kernel::FMA_THREADS)?,
        group: rate(backend, queue, Kernel::GROUP_THREADS)?,
    })
}

/// The slope between two lengths: what every command buffer costs besides does not enter it.
fn rate(backend: &mut dyn Backend, queue: Queue, threads: u32) -> Result<f64, Error> {
    let chain = |iterations| Kernel::Fma { iterations, threads };
    let mut iterations = 64;
    while time(backend, queue, chain(iterations))? < LONG_ENOUGH && iterations < u32::MAX / 8 {
        iterations *= 2;
    }
    let pair = [chain(iterations), chain(3 * iterations)];
    keep_busy(backend, queue, pair, WARM_UP)?;
    let [short, long] = keep_busy(backend, queue, pair, WARM_UP / 2)?;
    let slope = long.as_ms() - short.as_ms();
    // A device that takes no longer for more work has no clock that could be told from it.
    Ok(match slope > 0.0 {
        true => 2.0 * f64::from(iterations) / slope,
        false => f64::from(iterations) / short.as_ms().max(1e-6),
    })
}

/// Keeps the queue filled with the two kernels in turn for about `span`; the shortest time of each.
fn keep_busy(
    backend: &mut dyn Backend,
    queue: Queue,
    kernels: [Kernel; 2],
    span: Span,
) -> Result<[Span; 2], Error> {
    let mut shortest = [Span::MAX; 2];
    let depth = DEPTH.min(backend.device().in_flight_max);
    let until = backend.now() + span;
    let (mut committed, mut landed) = (0, 0);
    loop {
        let more = backend.now() < until || committed < kernels.len();
        if !more && landed == committed {
            return Ok(shortest);
        }
        if more && committed - landed < depth {
            backend.commit(queue, &kernels[committed % 2])?;
            committed += 1;
        } else {
            let took = land(backend)?;
            shortest[landed % 2] = shortest[landed % 2].min(took);
            landed += 1;
        }
    }
}

/// How long one kernel ran on the GPU, with nothing else in the queue.
fn time(backend: &mut dyn Backend, queue: Queue, kernel: Kernel) -> Result<Span, Error> {
    backend.commit(queue, &kernel)?;
    land(backend)
}

/// How long the next one to complete ran on the GPU.
fn land(backend: &mut dyn Backend) -> Result<Span, Error> {
    let deadline = backend.now() + PATIENCE;
    let done: Option<Completion> = backend.wait(deadline)?;
    done.map(|c| c.gpu_end.since(c.gpu_start)).ok_or_else(|| Error::Lost {
        device: backend.device().id.clone(),
        why: format!("a chain of multiply-adds did not end within {PATIENCE}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_found_once() {
        let known = Once::new();
        assert_eq!(known.of(0, || Err("busy")), Err("busy"));
        assert_eq!(known.of(0, || Ok::<_, ()>(7)), Ok(7));
        assert_eq!(known.of(0, || Err("not asked")), Ok(7));
        assert_eq!(known.of(1, || Ok::<_, ()>(8)), Ok(8));
    }

    #[test]
    fn a_simulated_device_measures_what_it_knows() {
        let mut device = crate::open("sim:m2").unwrap();
        let queue = device.queue().unwrap();
        let known = device.device().clone();
        let rates = calibrate(device.as_mut(), queue).unwrap();
        let off = |got: f64, known: f64| (got / known - 1.0).abs();
        assert!(off(rates.full, known.fma_iterations_per_ms) < 0.01, "{rates:?}");
        assert!(off(rates.group, known.fma_iterations_per_ms_group) < 0.01, "{rates:?}");
    }
}
