//! A simulated GPU behind an instrument with faults, so that noise shapes what is measured.
//!
//! Every source of error acts where it would on a real machine: kernels differ in length and some
//! are disturbed, the host commits late by some microseconds and sometimes wakes up much later, and
//! stamps have their own error. What the host does next depends on all of it. No p-state, clock or
//! counter is told.

use super::Dice;
use everwarm_dvfs::Chip;
use everwarm_gpu::{Backend, Completion, Counters, Device, Error, Queue, Ticket};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;

/// Deviation of a kernel's work. Unit: share.
const WORK: f64 = 0.01;
/// One kernel in so many is disturbed and takes half as long again.
const DISTURBED: f64 = 1.0 / 200.0;
/// Deviation of a stamp of the GPU. Unit: us.
const STAMP_US: f64 = 1.0;
/// Mean time by which a commit, a wake-up or a timer is late. Unit: us.
const LATE_US: f64 = 4.0;
/// One of them in so many is late by up to [`LATE_MOST_US`].
const VERY_LATE: f64 = 1.0 / 1000.0;
/// Unit: us.
const LATE_MOST_US: f64 = 400.0;

/// The device that a run is recorded on.
pub struct Instrument {
    device: Device,
    inner: Box<dyn Backend>,
    dice: Dice,
}

impl Instrument {
    /// `chip` as this instrument shows it.
    pub fn new(chip: &Chip, seed: u64) -> Instrument {
        let inner = everwarm_gpu::backend::simulate(chip.clone());
        let mut device = inner.device().clone();
        device.pstates = None;
        Instrument { device, inner, dice: Dice::new(seed ^ 0x5EED) }
    }

    fn lateness(&mut self) -> Span {
        let us = match self.dice.between(0.0, 1.0) < VERY_LATE {
            true => self.dice.between(0.0, LATE_MOST_US),
            false => -LATE_US * self.dice.between(1e-6, 1.0).ln(),
        };
        Span::from_ms(us / 1e3)
    }

    fn be_late(&mut self) {
        let until = self.inner.now() + self.lateness();
        self.inner.sleep_until(until);
    }

    /// What the kernel is this time.
    fn disturbed(&mut self, kernel: &Kernel) -> Kernel {
        let strange = if self.dice.between(0.0, 1.0) < DISTURBED { 1.5 } else { 1.0 };
        let factor = strange * (1.0 + WORK * self.dice.normal());
        match *kernel {
            Kernel::Fma { iterations, threads } => {
                let iterations = (f64::from(iterations) * factor).round() as u32;
                Kernel::Fma { iterations, threads }
            }
            Kernel::Stream { bytes } => Kernel::Stream { bytes: (bytes as f64 * factor) as u64 },
            other => other,
        }
    }

    /// The host learns of `completion` now, and sees its stamps.
    fn seen(&mut self, mut completion: Completion) -> Completion {
        self.be_late();
        let mut stamp = |at: Instant| {
            let ns = at.as_nanos() as f64 + 1e3 * STAMP_US * self.dice.normal();
            Instant::from_nanos(ns.max(0.0) as u64)
        };
        completion.gpu_start = stamp(completion.gpu_start).max(completion.committed);
        completion.gpu_end = stamp(completion.gpu_end).max(completion.gpu_start);
        completion.observed = self.inner.now().max(completion.gpu_end);
        (completion.pstate, completion.clock) = (None, None);
        completion
    }
}

impl Backend for Instrument {
    fn device(&self) -> &Device {
        &self.device
    }

    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn sleep_until(&mut self, deadline: Instant) {
        self.inner.sleep_until(deadline);
        self.be_late();
    }

    fn queue(&mut self) -> Result<Queue, Error> {
        self.inner.queue()
    }

    fn commit(&mut self, queue: Queue, kernel: &Kernel) -> Result<Ticket, Error> {
        self.be_late();
        let kernel = self.disturbed(kernel);
        self.inner.commit(queue, &kernel)
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        let found = self.inner.poll()?;
        Ok(found.map(|completion| self.seen(completion)))
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Completion>, Error> {
        let found = self.inner.wait(deadline)?;
        if found.is_none() && deadline != Instant::FAR_FUTURE {
            self.be_late();
        }
        Ok(found.map(|completion| self.seen(completion)))
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        let at = self.inner.counters()?.at;
        Ok(Counters { at, ..Counters::default() })
    }
}
