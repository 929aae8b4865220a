//! The clock that processes of one machine share: CLOCK_MONOTONIC, on macOS CLOCK_UPTIME_RAW.
//!
//! A handle on a wall-clock device counts from its own opening ([`crate::Backend::epoch`] says when
//! that was on this clock), so that stamps of several processes can be put on one axis. It stands
//! still while the machine is suspended and says nothing of the time of day.
//!
//! On macOS the clock called CLOCK_MONOTONIC would run on through a suspend and shows whole
//! microseconds (source: its manual page and Apple's published C library). CLOCK_UPTIME_RAW is
//! `mach_absolute_time` in nanoseconds: it steps by 42 ns on Apple's chips, it is what Metal stamps
//! command buffers by, and what Rust's own `Instant` reads.

use everwarm_units::{Instant, Span};

/// A reading of the shared clock.
///
/// Unit: ns since some start that is the same for all processes of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The clock now.
    pub fn now() -> Self {
        Monotonic(nanoseconds())
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

fn nanoseconds() -> u64 {
    #[cfg(not(target_os = "macos"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    #[cfg(target_os = "macos")]
    const CLOCK: libc::clockid_t = libc::CLOCK_UPTIME_RAW;
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to the structure that it is given; a clock that is always there can't fail.
    unsafe { libc::clock_gettime(CLOCK, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
