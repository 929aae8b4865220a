//! The driver without this backend: the same empty kernel, launched and awaited by bare calls. What
//! a dispatch costs beyond it is the backend's own.

use super::driver::{Handle, Launch, Pinned};
use super::shared::{Shared, share};
use super::stamps::{SLOT_WORDS, Stamps};
use super::timer::address;
use crate::Error;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// A stream that takes empty kernels, one at a time.
pub struct Bare {
    shared: Arc<Shared>,
    stream: Handle,
    slot: Pinned,
}

impl Bare {
    /// A stream on the device `id`.
    ///
    /// # Errors
    /// [`Error::NoDevice`] with the driver's refusal.
    pub fn open(id: &str) -> Result<Bare, Error> {
        let made = super::driver().and_then(|driver| {
            let ordinal = super::ordinal(driver, id)?;
            let made = || {
                let shared = share(driver, ordinal)?;
                shared.make_current()?;
                let stream = driver.stream_create()?;
                let slot = driver.host_alloc(SLOT_WORDS).inspect_err(|_| {
                    let _ = driver.stream_destroy(stream);
                })?;
                Ok(Bare { shared, stream, slot })
            };
            made().map_err(|refusal: super::driver::Refusal| refusal.to_string())
        });
        made.map_err(|why| Error::NoDevice { id: id.to_owned(), why })
    }

    /// Launches one empty kernel; the one before has ended.
    ///
    /// # Errors
    /// [`Error::Lost`] with the driver's refusal.
    pub fn launch(&self) -> Result<(), Error> {
        Stamps::clear(self.words());
        let (mut slot, mut counters, mut claim, mut flags) = (self.slot.device, 0u64, 1u32, 3u32);
        let mut parameters =
            [address(&mut slot), address(&mut counters), address(&mut claim), address(&mut flags)];
        let launch = Launch {
            function: self.shared.kernels.empty,
            blocks: 1,
            threads: 1,
            stream: self.stream,
            parameters: &mut parameters,
        };
        // SAFETY: the parameters are those of `everwarm_empty`, which leaves the counters alone; the
        // slot stays until `drop` has waited for the stream.
        let launched = unsafe { self.shared.driver.launch(launch) };
        launched.map_err(|refusal| Error::Lost {
            device: self.shared.about.name.clone(),
            why: refusal.to_string(),
        })
    }

    /// True once the kernel has ended.
    pub fn has_ended(&self) -> bool {
        Stamps::read(self.words()).is_some()
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: so many words were allocated there, aligned, for as long as `self` lives; host and
        // device write them whole.
        unsafe { std::slice::from_raw_parts(self.slot.host.cast(), SLOT_WORDS) }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.shared.make_current();
        let _ = self.shared.driver.stream_wait(self.stream);
        let _ = self.shared.driver.stream_destroy(self.stream);
        let _ = self.shared.driver.host_free(self.slot);
    }
}
