//! Threads that wake when their time has come.
//!
//! A sleeping thread is normally woken late twice over: its timer is allowed some 50 us of slack,
//! and where all cores are busy it waits for the end of somebody's slice, some 3 ms. On Linux both
//! can be asked away; elsewhere, and where the kernel refuses, nothing happens, and whoever
//! measures lateness sees it.
//!
//! Measured with eight busy processes on two cores, lateness of a thread that sleeps and works by
//! turns: p99 3 to 4 ms without, below 1 ms with a short slice, 0.02 ms with real time.

use crate::Monotonic;
use everwarm_units::Span;

/// Asks the kernel to wake the calling thread on time, for the rest of its life.
///
/// It needs no privilege. For threads that sleep most of the time: they preempt others.
pub fn wake_promptly() {
    #[cfg(target_os = "linux")]
    linux::wake_promptly();
}

/// Asks the kernel to run the calling thread before all others, for the rest of its life; without
/// the privilege for that it does what [`wake_promptly`] does.
///
/// For threads that are known to do little at a time: one that never sleeps takes a whole core.
pub fn keep_real_time() {
    #[cfg(target_os = "linux")]
    if !linux::keep_real_time() {
        linux::wake_promptly();
    }
}

/// How long before an instant sleeping gives way to spinning: about what waking up from a sleep
/// overshoots by on an idle Linux machine. Source: spin_sleep's default.
const SPIN: Span = Span::us(100);

/// Returns at `deadline`, or at once if that is past: sleeps, and spins at the end.
pub(crate) fn sleep_until(deadline: Monotonic) {
    let rest = deadline.since(Monotonic::now());
    std::thread::sleep(rest.saturating_sub(SPIN).into());
    while Monotonic::now() < deadline {
        std::hint::spin_loop();
    }
}

/// Sleeps for a few microseconds or more, without the slack that a thread's timers have at first; it
/// asks for that once a thread, and takes no other privilege.
pub(crate) fn nap(span: Span) {
    #[cfg(target_os = "linux")]
    {
        thread_local! {
            static ASKED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        }
        if !ASKED.replace(true) {
            linux::no_slack();
        }
    }
    std::thread::sleep(span.into());
}

#[cfg(target_os = "linux")]
mod linux {
    use std::num::NonZeroU64;

    /// The kernel's `struct sched_attr` in its first version.
    #[repr(C)]
    #[derive(Default)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }

    pub(super) fn no_slack() {
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }

    pub(super) fn wake_promptly() {
        no_slack();
        // A privileged process may go before others altogether. (On Linux a nice value belongs to
        // a thread, whatever the name of the call says.)
        let _ = rustix::process::setpriority_process(None, -10);
        // A thread with a shorter slice than the one that runs preempts it on waking (Linux 6.12).
        set_scheduling(SchedAttr {
            policy: libc::SCHED_OTHER as u32,
            nice: rustix::process::getpriority_process(None).unwrap_or(0),
            runtime: 100_000, // ns: the shortest that the kernel takes
            ..SchedAttr::default()
        });
    }

    pub(super) fn keep_real_time() -> bool {
        no_slack();
        // The lowest of the real-time priorities is above everything that is not real time.
        let policy = libc::SCHED_RR as u32;
        set_scheduling(SchedAttr { policy, priority: 1, ..SchedAttr::default() })
    }

    fn set_scheduling(attributes: SchedAttr) -> bool {
        let attributes = SchedAttr { size: size_of::<SchedAttr>() as u32, ..attributes };
        // SAFETY: the call reads `size` bytes of a structure of that size, acts on the calling
        // thread (0), and writes nothing. An old kernel ignores the slice or refuses the call.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        result == 0
    }
}
