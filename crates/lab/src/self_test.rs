//! The ruler measured before it measures: clock step, sleep overshoot, cost of a commit.

use everwarm_gpu::{Backend, Error};
use everwarm_record::SelfTest;
use everwarm_units::Span;
use everwarm_workload::Kernel;

/// Repetitions of each part. Enough for a median, short enough for every run.
const TIMES: usize = 20;

/// The sleep whose overshoot is measured.
const SLEEP: Span = Span::ms(1);

/// Measures the instrument through a fresh handle of the device `id`.
///
/// In virtual time there is nothing to measure: all is `None`.
///
/// # Errors
/// When the device can't be opened or is lost.
pub fn self_test(id: &str) -> Result<SelfTest, Error> {
    self_test_on(everwarm_gpu::open(id)?.as_mut())
}

/// The same through a handle that is open.
///
/// # Errors
/// When the device is lost.
pub fn self_test_on(backend: &mut dyn Backend) -> Result<SelfTest, Error> {
    if backend.device().virtual_time {
        return Ok(SelfTest::default());
    }
    Ok(SelfTest {
        timer_step_ns: timer_step(backend),
        sleep_overshoot_ns: median((0..TIMES).map(|_| overshoot(backend)).collect()),
        submit_overhead_ns: submit_overhead(backend)?,
    })
}

/// The smallest step between two readings that differ.
fn timer_step(backend: &dyn Backend) -> Option<u64> {
    let readings: Vec<_> = (0..1000).map(|_| backend.now()).collect();
    let steps = readings.windows(2).map(|pair| pair[1].since(pair[0]).as_nanos());
    steps.filter(|step| *step > 0).min()
}

fn overshoot(backend: &mut dyn Backend) -> u64 {
    let deadline = backend.now() + SLEEP;
    backend.sleep_until(deadline);
    backend.now().since(deadline).as_nanos()
}

fn submit_overhead(backend: &mut dyn Backend) -> Result<Option<u64>, Error> {
    let queue = backend.queue()?;
    let mut costs = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let before = backend.now();
        backend.commit(queue, &Kernel::Empty)?;
        costs.push(backend.now().since(before).as_nanos());
        let deadline = backend.now() + Span::s(10);
        backend.wait(deadline)?;
    }
    Ok(median(costs))
}

fn median(values: Vec<u64>) -> Option<u64> {
    let values: Vec<f64> = values.into_iter().map(|value| value as f64).collect();
    everwarm_stats::median(&values).map(|value| value as u64)
}
