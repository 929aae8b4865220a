//! The bench's own handle on the GPU: work to make it busy, and its energy.

use crate::Error;
use everwarm_gpu::{Backend, Counters, Queue};
use everwarm_units::{Instant, Joules, Span};
use everwarm_workload::Kernel;

/// Rows and columns of the matrices that make it busy: about 6 ms each on an M2. Source: study 4.
const MATRIX: u32 = 2048;

/// Command buffers in flight while it is made busy; a second one hides the host's round trip.
const IN_FLIGHT: usize = 2;

/// How long a burn may take before the device counts as lost.
const BURN_MAX: Span = Span::s(30);

/// A device that is shared with a server.
pub(crate) struct Gpu {
    backend: Box<dyn Backend>,
    queue: Queue,
}

impl Gpu {
    /// Opens `id`.
    ///
    /// # Errors
    /// [`Error::Device`] as the backend says; [`Error::Plan`] for a device in virtual time.
    pub(crate) fn open(id: &str) -> Result<Self, Error> {
        let mut backend = everwarm_gpu::open(id)?;
        if backend.device().virtual_time {
            return Err(Error::Plan(format!(
                "`{id}` lives in virtual time and no server runs on it; expected a device by the wall \
                 clock, such as the `sim:SOCKET` that `everwarm sim-server` prints"
            )));
        }
        let queue = backend.queue()?;
        Ok(Gpu { backend, queue })
    }

    /// The maker's name of the device.
    pub(crate) fn name(&self) -> &str {
        &self.backend.device().name
    }

    /// True for a modelled device.
    pub(crate) fn simulated(&self) -> bool {
        self.backend.device().simulated
    }

    /// Runs `count` large matrix products back to back.
    pub(crate) fn burn(&mut self, count: u32) -> Result<(), Error> {
        let deadline = self.backend.now() + BURN_MAX;
        let mut in_flight = 0;
        for _ in 0..count {
            while in_flight >= IN_FLIGHT {
                self.wait(deadline)?;
                in_flight -= 1;
            }
            self.backend.commit(self.queue, &Kernel::Matmul { n: MATRIX })?;
            in_flight += 1;
        }
        for _ in 0..in_flight {
            self.wait(deadline)?;
        }
        Ok(())
    }

    fn wait(&mut self, deadline: Instant) -> Result<(), Error> {
        match self.backend.wait(deadline)? {
            Some(_) => Ok(()),
            None => Err(Error::Device(everwarm_gpu::Error::Lost {
                device: self.backend.device().id.clone(),
                why: format!("a matrix product did not end within {BURN_MAX}"),
            })),
        }
    }

    /// The counters now.
    pub(crate) fn counters(&mut self) -> Result<Counters, Error> {
        Ok(self.backend.counters()?)
    }
}

/// Energy between two readings, where both are known.
pub(crate) fn spent(before: Option<Joules>, after: Option<Joules>) -> Option<Joules> {
    Some(after? - before?)
}
