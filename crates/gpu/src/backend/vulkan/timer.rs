//! The GPU's timer on the host's clock.
//!
//! Where the driver can, it reads both clocks at once (`VK_EXT_calibrated_timestamps`); elsewhere a
//! command buffer with a single stamp is sent and waited for, and the shortest of several round trips
//! says where the two clocks are. Both drift apart, so this is repeated now and then, when a buffer
//! has landed: never while the GPU idles (that would wake it), and not in a commit.

use super::context::Context;
use super::stock::Errand;
use crate::timebase::Keeper;
use crate::{Monotonic, Reading, Timebase};
use ash::vk;
use everwarm_units::Instant;
#[cfg(test)]
use everwarm_units::Span;
use std::sync::Arc;

/// Readings of one burst.
const BURST: usize = 8;

/// The time base of one handle.
pub struct Timer {
    keeper: Keeper,
    source: Source,
    context: Arc<Context>,
}

/// How the GPU's timer is read.
enum Source {
    /// Beside the host's clock.
    Calibrated,
    /// By the stamp of a command buffer.
    RoundTrip { errand: Errand, query: vk::QueryPool },
}

impl Timer {
    /// Reads the timer for the first time.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(context: &Arc<Context>) -> Result<Self, vk::Result> {
        let mut source = match context.calibrated.is_some() {
            true => Source::Calibrated,
            false => Source::round_trip(context)?,
        };
        let burst = source.burst(context)?;
        let tick = f64::from(context.card.limits.timestamp_period);
        let base = Timebase::new(context.family.bits, tick, &burst).expect("a burst has readings");
        Ok(Timer { keeper: Keeper::new(base), source, context: Arc::clone(context) })
    }

    /// Reads the timer again, if the last time is long ago. `alone` is true if nothing is in flight,
    /// so that a round trip is short.
    ///
    /// # Errors
    /// The driver's.
    pub fn keep(&mut self, alone: bool) -> Result<(), vk::Result> {
        let free = alone || matches!(self.source, Source::Calibrated);
        match free && self.keeper.is_due(Monotonic::now(), free) {
            true => self.read(),
            false => Ok(()),
        }
    }

    /// Reads the timer again.
    ///
    /// # Errors
    /// The driver's.
    pub fn read(&mut self) -> Result<(), vk::Result> {
        let burst = self.source.burst(&self.context)?;
        self.keeper.take(&burst, Monotonic::now());
        Ok(())
    }

    /// A stamp on the time base of a handle that began at `epoch`.
    pub fn at(&self, ticks: u64, epoch: Monotonic) -> Instant {
        self.base().at(ticks).on_base(epoch)
    }

    /// Takes the speed of the timer from an older time base of the same device.
    pub fn continues(&mut self, older: Timebase) {
        self.keeper.continues(older);
    }

    /// How far off a stamp may be.
    #[cfg(test)]
    pub fn error(&self) -> Span {
        self.base().error()
    }

    /// What a later handle can go on from.
    pub fn base(&self) -> &Timebase {
        self.keeper.base()
    }

    /// How it is read, and how well, in words.
    pub fn about(&self) -> String {
        let how = match self.source {
            Source::Calibrated => "read beside CLOCK_MONOTONIC",
            Source::RoundTrip { .. } => "placed by round trips",
        };
        let (error, ppm) = (self.base().error(), 1e6 * self.base().drift());
        format!("{how}, within {error}, {ppm:+.1} ppm")
    }
}

impl Source {
    fn round_trip(context: &Arc<Context>) -> Result<Self, vk::Result> {
        let errand = Errand::new(context)?;
        let info =
            vk::QueryPoolCreateInfo::default().query_type(vk::QueryType::TIMESTAMP).query_count(1);
        // SAFETY: a plain creation.
        let query = unsafe { context.device.create_query_pool(&info, None)? };
        Ok(Source::RoundTrip { errand, query })
    }

    fn burst(&mut self, context: &Context) -> Result<Vec<Reading>, vk::Result> {
        (0..BURST).map(|_| self.read(context)).collect()
    }

    fn read(&mut self, context: &Context) -> Result<Reading, vk::Result> {
        match self {
            Source::Calibrated => calibrated(context),
            Source::RoundTrip { errand, query } => {
                let device = &context.device;
                let mut before = Monotonic::now();
                errand.run(|to| {
                    // SAFETY: the command buffer is being recorded; the query is not in use.
                    unsafe {
                        device.cmd_reset_query_pool(to, *query, 0, 1);
                        let bottom = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
                        device.cmd_write_timestamp(to, bottom, *query, 0);
                    }
                    before = Monotonic::now();
                })?;
                let after = Monotonic::now();
                let mut ticks = [0u64];
                let flags = vk::QueryResultFlags::TYPE_64 | vk::QueryResultFlags::WAIT;
                // SAFETY: the query was written by what has ended.
                unsafe { device.get_query_pool_results(*query, 0, &mut ticks, flags)? };
                Ok(Reading { before, ticks: ticks[0], after })
            }
        }
    }
}

/// Both clocks as the driver read them.
fn calibrated(context: &Context) -> Result<Reading, vk::Result> {
    let clock = |domain| vk::CalibratedTimestampInfoEXT::default().time_domain(domain);
    let both = [clock(vk::TimeDomainEXT::DEVICE), clock(vk::TimeDomainEXT::CLOCK_MONOTONIC)];
    let reader = context.calibrated.as_ref().expect("asked only where the driver can");
    let before = Monotonic::now();
    // SAFETY: both domains are among those that the driver offers.
    let (stamps, deviation) = unsafe { reader.get_calibrated_timestamps(&both)? };
    let after = Monotonic::now();
    let (ticks, host) = (stamps[0], stamps[1]);
    // Both were read within this call, and no further apart than the driver says.
    let earliest = Monotonic(host.saturating_sub(deviation)).max(before);
    let latest = Monotonic(host.saturating_add(deviation)).min(after);
    Ok(match earliest <= latest {
        true => Reading { before: earliest, ticks, after: latest },
        false => Reading { before, ticks, after },
    })
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Source::RoundTrip { query, .. } = self.source {
            // SAFETY: errands are waited for.
            unsafe { self.context.device.destroy_query_pool(query, None) };
        }
    }
}
