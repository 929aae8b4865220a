//! The clock that processes of one machine share: CLOCK_MONOTONIC.
//!
//! A handle on a wall-clock device counts from its own opening ([`crate::Backend::epoch`] says when
//! that was on this clock), so that stamps of several processes can be put on one axis. It stands
//! still while the machine is suspended and says nothing of the time of day.

use everwarm_units::{Instant, Span};
use rustix::time::{ClockId, clock_gettime};

/// A reading of CLOCK_MONOTONIC.
///
/// Unit: ns since some start that is the same for all processes of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The clock now.
    pub fn now() -> Self {
        let t = clock_gettime(ClockId::Monotonic);
        Monotonic(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
    }

    /// This reading on the time base of a handle whose instant 0 was at `epoch`; 0 if before.
    pub fn on_base(self, epoch: Monotonic) -> Instant {
        Instant::from_nanos(self.0.saturating_sub(epoch.0))
    }

    /// The reading at `instant` of a handle whose instant 0 was at `self`.
    pub fn at(self, instant: Instant) -> Monotonic {
        Monotonic(self.0.saturating_add(instant.as_nanos()))
    }

    /// The time from `earlier` to `self`; 0 if `earlier` is later.
    pub fn since(self, earlier: Monotonic) -> Span {
        Span::ns(self.0.saturating_sub(earlier.0))
    }
}
