//! One process's handle on an Apple GPU.
//!
//! Metal stamps command buffers in seconds of `mach_absolute_time`, the clock that [`Monotonic`]
//! reads on macOS: both stand still while the machine sleeps, and no mapping is needed. Whether
//! that is so is looked at when a handle is opened.
//!
//! Metal's own limit of command buffers in a queue makes a caller wait. Ours lies below it, is
//! counted here, and is told.

use super::encode::{Kernels, Outputs};
use super::flight::{self, Landing, Lane};
use super::memory::{self, Gpu, Inputs};
use super::telemetry::Telemetry;
use crate::calibrate::Once;
use crate::{Backend, Completion, Counters, Device, Error, FmaRates, Monotonic, Queue, Ticket};
use crate::{calibrate, lower};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;
use objc2::rc::{Retained, autoreleasepool};
use objc2_metal::{
    MTLCommandBuffer, MTLCommandEncoder, MTLCommandQueue, MTLCreateSystemDefaultDevice, MTLDevice,
};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

// SAFETY: it declares nothing; Metal finds no device in a process that is not linked to this.
#[cfg(target_os = "macos")]
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// Command buffers in flight in one queue. Source: Metal's own default for a queue.
const IN_FLIGHT_MAX: usize = 64;

/// What Metal's limit is more than ours: a buffer that has ended counts there a little longer.
const SLACK: usize = 2;

/// Queues of one handle. Source: guess; Metal documents no limit, a runaway caller needs one.
const QUEUES_MAX: usize = 64;

/// How long the first command buffer may take. Source: guess.
const PATIENCE: Span = Span::s(10);

/// What handles of this process have measured, by the registry's number of the GPU.
static RATES: Once<u64, FmaRates> = Once::new();

/// A handle.
pub struct Metal {
    device: Device,
    epoch: Monotonic,
    gpu: Retained<Gpu>,
    kernels: Kernels,
    inputs: Inputs,
    lanes: Vec<Lane>,
    reports: SyncSender<Landing>,
    landings: Receiver<Landing>,
    tickets: u64,
    busy: Busy,
    /// When the last completion that was handed out was observed.
    observed: Instant,
    telemetry: Option<Telemetry>,
    lost: Option<String>,
}

// SAFETY: Metal's devices, queues, pipelines and memory may be used by any thread, command buffers
// by one at a time; what the telemetry holds is not bound to a thread either. A handle owns all of
// its objects, gives none away and is itself used by one thread at a time (`&mut`). The blocks that
// Metal calls on its own threads share nothing with it but a channel.
unsafe impl Send for Metal {}

/// The GPU's name, or why there is none.
pub fn name() -> Result<String, String> {
    autoreleasepool(|_| Ok(gpu()?.name().to_string()))
}

fn gpu() -> Result<Retained<Gpu>, String> {
    MTLCreateSystemDefaultDevice().ok_or_else(|| "Metal finds no GPU".to_owned())
}

impl Metal {
    /// Opens the GPU, compiles the kernels and measures how fast they run.
    ///
    /// # Errors
    /// [`Error::NoDevice`] without a GPU that runs the kernels, [`Error::Unsupported`] if its
    /// stamps are of another clock.
    pub fn open(id: &str) -> Result<Self, Error> {
        let no_device = |why| Error::NoDevice { id: id.to_owned(), why };
        let (gpu, kernels, name) = autoreleasepool(|_| {
            let gpu = gpu()?;
            let kernels = Kernels::compile(&gpu)?;
            let name = gpu.name().to_string();
            Ok((gpu, kernels, name))
        })
        .map_err(no_device)?;
        // As long as all that can be in flight: a block never waits for room.
        let (reports, landings) = sync_channel(QUEUES_MAX * IN_FLIGHT_MAX);
        let device = Device {
            id: id.to_owned(),
            name,
            simulated: false,
            virtual_time: false,
            pstates: None,
            in_flight_max: IN_FLIGHT_MAX,
            fma_iterations_per_ms: 1.0,
            fma_iterations_per_ms_group: 1.0,
            facts: facts(&gpu),
        };
        let mut metal = Metal {
            device,
            epoch: Monotonic::now(),
            gpu,
            kernels,
            inputs: Inputs::default(),
            lanes: Vec::new(),
            reports,
            landings,
            tickets: 0,
            busy: Busy::default(),
            observed: Instant::ZERO,
            telemetry: None,
            lost: None,
        };
        metal.measure()?;
        metal.begin();
        Ok(metal)
    }

    /// Looks whether stamps are of the host's clock, and how fast the GPU is.
    fn measure(&mut self) -> Result<(), Error> {
        let queue = self.queue()?;
        self.commit(queue, &Kernel::Empty)?;
        let deadline = self.now() + PATIENCE;
        let first = self.wait(deadline)?.ok_or_else(|| Error::Lost {
            device: self.device.id.clone(),
            why: format!("its first command buffer did not end within {PATIENCE}"),
        })?;
        let Completion { committed, gpu_start, gpu_end, observed, .. } = first;
        if !(committed <= gpu_start && gpu_start <= gpu_end && gpu_end <= observed) {
            return Err(Error::Unsupported {
                device: self.device.id.clone(),
                what: format!(
                    "anything that is timed: a command buffer of {committed} to {observed} is \
                     stamped {gpu_start} to {gpu_end}"
                ),
            });
        }
        let number = self.gpu.registryID();
        let rates = RATES.of(number, || calibrate(self, queue))?;
        self.device.fma_iterations_per_ms = rates.full;
        self.device.fma_iterations_per_ms_group = rates.group;
        Ok(())
    }

    /// Forgets what was measured, whose queue was for that alone, and begins to count: with the
    /// system's own counters, where they can be read.
    fn begin(&mut self) {
        self.lanes.clear();
        (self.tickets, self.busy, self.observed) = (0, Busy::default(), Instant::ZERO);
        match Telemetry::open() {
            Ok(telemetry) => {
                self.device.pstates = telemetry.pstates();
                self.device.facts.extend(telemetry.facts());
                self.epoch = telemetry.epoch();
                self.telemetry = Some(telemetry);
            }
            Err(why) => {
                self.device.facts.push(("counters".into(), format!("not told: {why}")));
                self.epoch = Monotonic::now();
            }
        }
    }

    fn lost(&self, why: &str) -> Error {
        Error::Lost { device: self.device.id.clone(), why: why.to_owned() }
    }

    fn alive(&self) -> Result<(), Error> {
        self.lost.as_ref().map_or(Ok(()), |why| Err(self.lost(why)))
    }

    /// Encodes and commits; what can be refused has been.
    fn send(&mut self, index: usize, parts: &[crate::Part]) -> Result<Ticket, Error> {
        let lane = &mut self.lanes[index];
        let none = |what: &str| Error::Lost {
            device: self.device.id.clone(),
            why: format!("Metal gives no {what}"),
        };
        let buffer = lane.queue.commandBuffer().ok_or_else(|| none("command buffer"))?;
        let encoder = buffer.computeCommandEncoder().ok_or_else(|| none("encoder"))?;
        let encoded =
            self.kernels.encode(&self.gpu, &encoder, parts, &mut self.inputs, &lane.outputs);
        encoder.endEncoding();
        encoded?;
        // SAFETY: the block lives as long as the lane and Metal's copy of it as long as it needs;
        // it may be called on any thread, as all that it holds is a channel's end.
        unsafe { buffer.addCompletedHandler(flight::Block::as_ptr(&lane.block)) };
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        let committed = Monotonic::now();
        buffer.commit();
        lane.took_off(ticket, committed, buffer);
        Ok(ticket)
    }

    fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.in_flight() == 0)
    }
}

impl Backend for Metal {
    crate::backend::by_the_wall_clock!();

    fn queue(&mut self) -> Result<Queue, Error> {
        self.alive()?;
        let index = self.lanes.len();
        let full =
            || Error::Limit { what: format!("{index} queues are already open"), limit: QUEUES_MAX };
        if index == QUEUES_MAX {
            return Err(full());
        }
        let lane = autoreleasepool(|_| {
            let count = IN_FLIGHT_MAX + SLACK;
            let queue = self.gpu.newCommandQueueWithMaxCommandBufferCount(count);
            let queue = queue.ok_or_else(full)?;
            let outputs = Outputs { sink: memory::sink(&self.gpu)?, product: None };
            Ok(Lane::new(queue, outputs, flight::block(index, self.reports.clone())))
        })?;
        self.lanes.push(lane);
        Ok(Queue(index as u32))
    }

    fn commit(&mut self, queue: Queue, kernel: &Kernel) -> Result<Ticket, Error> {
        self.alive()?;
        let index = queue.0 as usize;
        if index >= self.lanes.len() {
            return Err(Error::no_queue(queue, self.lanes.len()));
        }
        if self.lanes[index].in_flight() == IN_FLIGHT_MAX {
            let what = format!("{IN_FLIGHT_MAX} command buffers are already in flight");
            return Err(Error::Limit { what, limit: IN_FLIGHT_MAX });
        }
        let parts = lower(kernel, &self.device.id)?;
        autoreleasepool(|_| {
            let outputs = &mut self.lanes[index].outputs;
            Kernels::prepare(&self.gpu, &parts, &mut self.inputs, outputs)?;
            self.send(index, &parts)
        })
    }

    fn poll(&mut self) -> Result<Option<Completion>, Error> {
        while let Ok(landing) = self.landings.try_recv() {
            flight::report(&mut self.lanes, landing);
        }
        let ended = self.lanes.iter().enumerate().filter_map(|(n, lane)| Some((lane.next()?, n)));
        let Some((_, index)) = ended.min() else {
            return self.alive().map(|()| None);
        };
        match self.lanes[index].land(Queue(index as u32), self.epoch) {
            Ok(mut completion) => {
                self.busy.add(&completion);
                // Metal's threads may overtake each other between looking at the clock and telling.
                self.observed = self.observed.max(completion.observed);
                completion.observed = self.observed;
                Ok(Some(completion))
            }
            Err(failure) => {
                let error = failure.error();
                if let Error::Lost { why, .. } = &error {
                    self.lost = Some(why.clone());
                }
                Err(error)
            }
        }
    }

    fn wait(&mut self, deadline: Instant) -> Result<Option<Completion>, Error> {
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(Some(completion));
            }
            let now = self.now();
            // Nothing will ever come where nothing is in flight.
            if now >= deadline || (deadline == Instant::FAR_FUTURE && self.is_idle()) {
                return Ok(None);
            }
            if let Ok(landing) = self.landings.recv_timeout(deadline.since(now).into()) {
                flight::report(&mut self.lanes, landing);
            }
        }
    }

    fn counters(&mut self) -> Result<Counters, Error> {
        self.alive()?;
        let Some(telemetry) = &mut self.telemetry else {
            let at = self.now();
            return Ok(Counters { at, busy: Some(self.busy.share(at)), ..Counters::default() });
        };
        let reading = telemetry.read();
        Ok(Counters {
            at: reading.at,
            residency: reading.residency,
            gpu_energy: reading.gpu_energy,
            pstate: reading.pstate,
            clock: reading.clock,
            busy: Some(self.busy.share(reading.at)),
            ..Counters::default()
        })
    }
}

/// What a reader of a record wants to know besides.
fn facts(gpu: &Gpu) -> Vec<(String, String)> {
    let gib = gpu.recommendedMaxWorkingSetSize() as f64 / f64::from(1 << 30);
    let unified = if gpu.hasUnifiedMemory() { "unified" } else { "its own" };
    vec![
        ("memory".into(), format!("{unified}, {gib:.1} GiB may be in use")),
        ("GPU stamps".into(), "Metal's, on the host's clock as it is".into()),
    ]
}

/// Time with this handle's work running, as far as the caller has heard of it.
#[derive(Default)]
struct Busy {
    total: Span,
    until: Instant,
}

impl Busy {
    fn add(&mut self, completion: &Completion) {
        self.total += completion.gpu_end.since(completion.gpu_start.max(self.until));
        self.until = self.until.max(completion.gpu_end);
    }

    /// The share of the time up to `now`.
    fn share(&self, now: Instant) -> f64 {
        self.total.share_of(now.since(Instant::ZERO))
    }
}
