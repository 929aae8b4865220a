//! GPUs behind one trait: timed, ordered command buffers on one time base.
//!
//! A [`Backend`] is one process's handle on one device. It owns time: the host reads it, sleeps by
//! it and finds the GPU's own stamps on it, so that the same code runs in virtual time on a
//! simulated device and by the wall clock on a real one. What a device can't tell is `None`.
//!
//! A backend is one file in `backend/` and one line in `backend::TABLE`; the conformance suite
//! walks that table.

pub mod backend;
mod calibrate;
mod clock;
mod device;
pub mod environment;
mod error;
mod lower;
mod punctual;
mod timebase;
pub mod wire;

pub use backend::{default_device, devices, known, open, watch};
pub use calibrate::{FmaRates, calibrate};
pub use clock::Monotonic;
pub use device::{Completion, Counters, Device, Queue, Ticket};
pub use environment::{Environment, Heat};
pub use error::Error;
pub use lower::{Part, lower};
pub use punctual::{keep_real_time, wake_promptly};
pub use timebase::{Reading, Timebase};

use everwarm_units::{Instant, PState};
use everwarm_workload::Kernel;

/// What the machine tells of a device to somebody who does not use it.
///
/// Reading opens no handle on the device, so that it neither wakes nor keeps it awake: the power of
/// a GPU that nobody uses can't be read any other way.
pub trait Telemetry {
    /// Counters since it was opened; what isn't known is `None`.
    ///
    /// # Errors
    /// [`Error::Lost`] when the device or what tells of it has gone.
    fn read(&mut self) -> Result<Counters, Error>;
}

/// One process's handle on one device.
///
/// Calls come from one thread. Buffers of one queue run in commit order; queues share the device.
/// All instants are on the handle's own time base, which starts near 0 when it is opened.
pub trait Backend: Send {
    /// What the device is and what it can tell.
    fn device(&self) -> &Device;

    /// The present.
    fn now(&self) -> Instant;

    /// When the handle's instant 0 was on the clock that processes share; `None` in virtual time.
    fn epoch(&self) -> Option<Monotonic> {
        None
    }

    /// Returns at `deadline` (or at once, if that is past).
    fn sleep_until(&mut self, deadline: Instant);

    /// Opens a queue.
    ///
    /// # Errors
    /// [`Error::Limit`] when the device has no more queues, [`Error::Memory`] when it has no room for one.
    fn queue(&mut self) -> Result<Queue, Error>;

    /// Commits one command buffer and returns without waiting for it.
    ///
    /// The first kernel that reads memory, and the first of a larger product, may wait for that memory to
    /// be allocated and filled: a measurement sends one of them ahead. No other commit waits for the GPU.
    ///
    /// # Errors
    /// [`Error::Limit`] when too many are in flight or the queue is not open,
    /// [`Error::Unsupported`] for a kernel that the device can't run at any time, [`Error::Memory`]
    /// for one that there is no memory for now, [`Error::Lost`] when the device has gone.
    fn commit(&mut self, queue: Queue, kernel: &Kernel) -> Result<Ticket, Error>;

    /// The next completion that the host could have observed by now, in the order of observation.
    ///
    /// # Errors
    /// [`Error::Lost`] when the device has gone.
    fn poll(&mut self) -> Result<Option<Completion>, Error>;

    /// Waits for the next completion, until `deadline` at the latest.
    ///
    /// # Errors
    /// [`Error::Lost`] when the device has gone.
    fn wait(&mut self, deadline: Instant) -> Result<Option<Completion>, Error>;

    /// Cumulative counters since the handle was opened; what isn't known is `None`.
    ///
    /// # Errors
    /// [`Error::Lost`] when the device has gone.
    fn counters(&mut self) -> Result<Counters, Error>;

    /// Holds the clock at `pstate` while the GPU is powered; `None` gives it back to the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the clock can't be held, or not at that p-state.
    fn pin(&mut self, pstate: Option<PState>) -> Result<(), Error> {
        match pstate {
            None => Ok(()),
            Some(pstate) => Err(Error::Unsupported {
                device: self.device().id.clone(),
                what: format!("at a fixed clock ({pstate})"),
            }),
        }
    }
}
