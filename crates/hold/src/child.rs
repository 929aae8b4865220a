//! Ending a child process: asked first, killed if it does not.

use rustix::process::{Pid, Signal, kill_process};
use std::process::Child;
use std::time::{Duration, Instant};

/// How often a child that was asked to end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Ends `child`: SIGTERM, and a kill if it is still there after `patience`. On return it has ended
/// and was waited for.
pub fn end_child(child: &mut Child, patience: Duration) {
    // One that was waited for has lost its id, which may be another process's by now.
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let asked = pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
    if !(asked && child_ended_within(child, patience)) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Waits for the end of `child`, for `patience` at most; says whether it came.
pub fn child_ended_within(child: &mut Child, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    false
}
