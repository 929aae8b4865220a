//! One device and the kernels that keep it warm: pre-warm, hold, release.
//!
//! It does what it is told and knows neither why nor until when. Contract: after [`Pump::hold`],
//! call [`Pump::turn`] at [`Pump::turn_at`] at the latest, or the hold's queue runs empty.

use everwarm_gpu::{Backend, Device, Error, Monotonic, Queue, Ticket};
use everwarm_units::{Instant, Joules, Span};
use everwarm_workload::Kernel;
use std::collections::VecDeque;

/// What a pre-warm kernel is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prewarm {
    /// One threadgroup on a chain of multiply-adds: runs beside a prefill and delays nobody.
    #[default]
    Group,
    /// A matrix product that fills the GPU, as in the study: what comes behind it waits for it.
    Matmul,
}

/// The kernels' lengths and how many are in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// What a pre-warm kernel is made of.
    pub prewarm: Prewarm,
    /// Its length at the top clock (of a threadgroup). Source: study 4.2.
    pub prewarm_span: Span,
    /// Length of a hold's kernel at the top clock: the longest that is acceptable is the cheapest.
    /// Source: study 4.1.
    pub hold_span: Span,
    /// Hold kernels in flight: with two, a late host leaves no gap.
    pub hold_depth: usize,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            prewarm: Prewarm::Group,
            prewarm_span: Span::ms(6),
            hold_span: Span::us(5500),
            hold_depth: 2,
        }
    }
}

/// Rows of the study's pre-warm matrix product (about 6 ms on an M2).
const MATMUL_N: u32 = 2048;
/// How often a completion that is overdue is looked for.
const OVERDUE: Span = Span::ms(1);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prewarm,
    Hold,
}

/// A pre-warm kernel that the device has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// On the clock that processes share.
    pub gpu_start: Monotonic,
}

pub struct Pump {
    backend: Box<dyn Backend>,
    /// Where the handle's instant 0 lies on the shared clock.
    epoch: Monotonic,
    /// A handle in virtual time is driven by the wall clock.
    paced: bool,
    queue: Queue,
    shape: Shape,
    holding: bool,
    in_flight: VecDeque<(Ticket, Kind)>,
    /// The hold kernel that ended last took this long.
    took: Span,
    turned: Instant,
    hold_buffers: u64,
}

impl Pump {
    /// Opens `device` and a queue on it; if it lives in virtual time, its clock follows the wall's.
    pub fn open(device: &str, shape: Shape) -> Result<Self, Error> {
        let mut backend = everwarm_gpu::open(device)?;
        let queue = backend.queue()?;
        let epoch = backend.epoch().unwrap_or_else(Monotonic::now);
        let paced = backend.device().virtual_time;
        let (took, turned) = (shape.hold_span, backend.now());
        Ok(Pump {
            backend,
            epoch,
            paced,
            queue,
            shape,
            holding: false,
            in_flight: VecDeque::new(),
            took,
            turned,
            hold_buffers: 0,
        })
    }

    /// Opens `device` and leaves virtual time to [`Pump::wait`].
    pub fn open_unpaced(device: &str, shape: Shape) -> Result<Self, Error> {
        Ok(Pump { paced: false, ..Pump::open(device, shape)? })
    }

    pub fn device(&self) -> &Device {
        self.backend.device()
    }

    pub fn now(&self) -> Instant {
        self.backend.now()
    }

    /// Hold kernels that have ended.
    pub fn hold_buffers(&self) -> u64 {
        self.hold_buffers
    }

    /// Submits one pre-warm kernel.
    pub fn prewarm(&mut self) -> Result<(), Error> {
        let kernel = match self.shape.prewarm {
            Prewarm::Group => self.device().fma(self.shape.prewarm_span, Kernel::GROUP_THREADS),
            Prewarm::Matmul => Kernel::Matmul { n: MATMUL_N },
        };
        self.commit(kernel, Kind::Prewarm)
    }

    /// Begins to hold.
    pub fn hold(&mut self) -> Result<(), Error> {
        self.holding = true;
        self.top_up()
    }

    /// Ends the hold; what is in flight runs out (some 10 ms).
    pub fn release(&mut self) {
        self.holding = false;
    }

    /// Looks for completions and keeps the hold's queue filled. Returns a pre-warm kernel that has
    /// come back, if one has.
    pub fn turn(&mut self) -> Result<Option<Begun>, Error> {
        self.pace();
        let mut begun = None;
        while let Some(done) = self.backend.poll()? {
            begun = self.landed(done).or(begun);
        }
        self.turned = self.backend.now();
        self.top_up()?;
        Ok(begun)
    }

    /// Virtual time alone: waits for a completion until `deadline` at the latest.
    pub fn wait(&mut self, deadline: Instant) -> Result<(), Error> {
        if let Some(done) = self.backend.wait(deadline)? {
            self.landed(done);
        }
        self.top_up()
    }

    /// How long until the next turn is due; `None` while nothing is in flight.
    pub fn turn_in(&self) -> Option<Span> {
        self.in_flight.front()?;
        let due = self.turned + self.took;
        let now =
            if self.paced { Monotonic::now().on_base(self.epoch) } else { self.backend.now() };
        Some(due.since(now).max(OVERDUE).min(self.took))
    }

    /// Energy of the device since it was opened, as far as it tells.
    pub fn energy(&mut self) -> Result<Option<Joules>, Error> {
        let counters = self.backend.counters()?;
        let cpu = counters.cpu_energy.unwrap_or(Joules::ZERO);
        Ok(counters.gpu_energy.map(|gpu| gpu + cpu))
    }

    fn pace(&mut self) {
        if self.paced {
            let now = Monotonic::now().on_base(self.epoch);
            self.backend.sleep_until(now);
        }
    }

    fn landed(&mut self, done: everwarm_gpu::Completion) -> Option<Begun> {
        let place = self.in_flight.iter().position(|(ticket, _)| *ticket == done.ticket)?;
        let (_, kind) = self.in_flight.remove(place)?;
        match kind {
            Kind::Prewarm => Some(Begun { gpu_start: self.epoch.at(done.gpu_start) }),
            Kind::Hold => {
                self.hold_buffers += 1;
                self.took = done.gpu_end.since(done.gpu_start).max(OVERDUE);
                None
            }
        }
    }

    fn top_up(&mut self) -> Result<(), Error> {
        let held = |flight: &VecDeque<_>| flight.iter().filter(|(_, k)| *k == Kind::Hold).count();
        while self.holding && held(&self.in_flight) < self.shape.hold_depth {
            let kernel = self.device().fma(self.shape.hold_span, Kernel::GROUP_THREADS);
            self.commit(kernel, Kind::Hold)?;
        }
        Ok(())
    }

    fn commit(&mut self, kernel: Kernel, kind: Kind) -> Result<(), Error> {
        self.pace();
        let ticket = self.backend.commit(self.queue, &kernel)?;
        self.in_flight.push_back((ticket, kind));
        Ok(())
    }
}
