//! Threads that wake when their time has come.
//!
//! A sleeping thread is normally woken late twice over: its timer is allowed some 50 us of slack,
//! and where all cores are busy it waits for the end of somebody's slice, some 3 ms. Both can be
//! asked away on Linux without any privilege; elsewhere, and where the kernel refuses, nothing
//! happens, and whoever measures lateness sees it.

/// Asks the kernel to wake the calling thread on time, for the rest of its life.
///
/// For threads that sleep most of the time: they preempt others, so they must not compute.
pub fn wake_promptly() {
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        // A privileged process may go before others altogether. (On Linux a nice value belongs to
        // a thread, whatever the name of the call says.)
        let _ = rustix::process::setpriority_process(None, -10);
        ask_for_a_short_slice();
    }
}

/// A thread that wants a shorter slice than the one that runs preempts it on waking (Linux 6.12).
#[cfg(target_os = "linux")]
fn ask_for_a_short_slice() {
    /// The kernel's `struct sched_attr` of its first version.
    #[repr(C)]
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
    let attributes = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: 0,
        nice: rustix::process::getpriority_process(None).unwrap_or(0),
        priority: 0,
        runtime: 100_000, // ns: the shortest that the kernel takes
        deadline: 0,
        period: 0,
    };
    // SAFETY: the call reads `size` bytes of a structure of that size, of the calling thread (0),
    // and writes nothing. An older kernel ignores the slice or refuses the call.
    unsafe {
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
    }
}
