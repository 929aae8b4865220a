//! The in-flight helper over a device's backend.

use everwarm_gpu::{Backend, Completion, Error};
use everwarm_inflight::{Chunk, Done, Queue};
use everwarm_units::{Instant, Span};
use everwarm_workload::Kernel;

/// A buffer that takes longer never ends. Source: guess.
const STUCK: Span = Span::s(60);

/// One queue of a backend handle of its own, as [`everwarm_inflight::turn`] drives it.
///
/// `encode` does on the host what encoding a chunk takes and says which kernel it comes to; on a
/// device in virtual time it lets that time pass by [`Backend::sleep_until`].
///
/// ```
/// use everwarm_embed::inflight::{InFlight, Limits, Turn, turn};
/// use everwarm_embed::units::Span;
/// use everwarm_embed::{DeviceQueue, gap_budget, gpu};
///
/// let device = gpu::open("sim:m2")?;
/// let layer = device.device().fma(Span::us(580), 65_536);
/// let mut queue = DeviceQueue::new(device, |device, _chunk| {
///     let encoded = device.now() + Span::us(150);
///     device.sleep_until(encoded);
///     layer
/// })?;
/// let budget = gap_budget("sim:m2").expect("a simulated chip");
/// let mut ahead = InFlight::new(Limits::for_gap(budget));
/// ahead.submit(500).expect("none waits yet");
/// while turn(&mut ahead, &mut queue)? != Turn::Idle {}
/// println!("{:?} {:?}", ahead.plan(), ahead.verdict());
/// # Ok::<(), gpu::Error>(())
/// ```
pub struct DeviceQueue<Encode> {
    backend: Box<dyn Backend>,
    queue: everwarm_gpu::Queue,
    encode: Encode,
    last: Option<Completion>,
}

impl<Encode> DeviceQueue<Encode>
where
    Encode: FnMut(&mut dyn Backend, &Chunk) -> Kernel,
{
    /// Takes the handle and opens a queue on it.
    ///
    /// # Errors
    /// Those of [`Backend::queue`].
    pub fn new(mut backend: Box<dyn Backend>, encode: Encode) -> Result<Self, Error> {
        let queue = backend.queue()?;
        Ok(DeviceQueue { backend, queue, encode, last: None })
    }

    /// The handle, to pass time on it and to read its counters. Committing or taking completions
    /// there would confuse the queue.
    pub fn backend(&mut self) -> &mut dyn Backend {
        self.backend.as_mut()
    }

    /// All that the device told of the buffer that ended last.
    pub fn last(&self) -> Option<&Completion> {
        self.last.as_ref()
    }
}

impl<Encode> Queue for DeviceQueue<Encode>
where
    Encode: FnMut(&mut dyn Backend, &Chunk) -> Kernel,
{
    type Error = Error;

    fn now(&mut self) -> Instant {
        self.backend.now()
    }

    fn commit(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let kernel = (self.encode)(self.backend.as_mut(), chunk);
        self.backend.commit(self.queue, &kernel).map(drop)
    }

    fn completion(&mut self, block: bool) -> Result<Option<Done>, Error> {
        let completion = match block {
            false => self.backend.poll()?,
            true => {
                let deadline = self.backend.now() + STUCK;
                let done = self.backend.wait(deadline)?;
                Some(done.ok_or_else(|| Error::Lost {
                    device: self.backend.device().id.clone(),
                    why: format!("no command buffer has ended for {STUCK}"),
                })?)
            }
        };
        self.last = completion.or(self.last);
        Ok(completion.map(|c| Done { observed: c.observed, gpu: Some((c.gpu_start, c.gpu_end)) }))
    }
}

/// The longest queue gap that the controller of the simulated device `id` still takes for work, as
/// GPU time stamps show it; `None` of a device that does not tell.
///
/// The firmware counts from the end of a buffer to when it learns of the next one; the time from
/// there to the start comes on top. On a real device the gap is measured: `everwarm lab predict`
/// shows where the clock falls off.
pub fn gap_budget(id: &str) -> Option<Span> {
    let chip = everwarm_gpu::backend::simulated_chip(id).ok()?;
    let to_start = chip.host.commit_to_start.saturating_sub(chip.host.commit_to_firmware);
    Some(chip.controller.credited_gap + to_start)
}
