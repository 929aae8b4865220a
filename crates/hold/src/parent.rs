//! Noticing that the parent process is gone.
//!
//! A hold that was started by another program must not outlive it. Linux has a signal for this
//! (PR_SET_PDEATHSIG), but it goes by the parent's *thread*, and a runtime that starts us from a
//! worker thread would end us by chance; a pidfd goes by the process. Elsewhere, and on kernels
//! without pidfds, the parent's id is compared twice a second.

use rustix::process::{Pid, getppid};
use std::time::Duration;

/// Calls `then` once, on a thread of its own, when the process that started this one has ended.
/// Never, if that is init or unknown.
pub fn on_parent_exit(then: impl FnOnce() + Send + 'static) {
    let Some(parent) = getppid().filter(|pid| !pid.is_init()) else { return };
    let watch = move || {
        wait_for(parent);
        then();
    };
    let _ = std::thread::Builder::new().name("parent".to_owned()).spawn(watch);
}

#[cfg(target_os = "linux")]
fn wait_for(parent: Pid) {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::process::{PidfdFlags, pidfd_open};
    let Ok(pidfd) = pidfd_open(parent, PidfdFlags::empty()) else { return watch_id(parent) };
    // It may have ended, and its id been given away, before the descriptor was open.
    while getppid() == Some(parent) {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        if matches!(poll(&mut fds, None), Ok(n) if n > 0) {
            return;
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn wait_for(parent: Pid) {
    watch_id(parent);
}

fn watch_id(parent: Pid) {
    while getppid() == Some(parent) {
        std::thread::sleep(Duration::from_millis(500));
    }
}
