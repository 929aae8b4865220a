//! What a caller of Metal must not do, and a list of what was done all the same.
//!
//! Contract: [`broken`] notes and goes on, as a panic inside of a worker or a destructor would hide
//! what happened; whoever tests looks at [`all`].

use std::sync::{Mutex, PoisonError};

/// One of Metal's rules, or of Objective-C's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// An encoder is ended before its command buffer is committed or another one is made.
    EndEncoding,
    /// An ended encoder is not used again.
    EncoderHasEnded,
    /// A command buffer is committed once.
    CommitOnce,
    /// Completion handlers are added before the commit.
    HandlerBeforeCommit,
    /// Nobody waits for what was not committed.
    WaitAfterCommit,
    /// Nobody asks a full queue for a command buffer: that call would wait.
    QueueIsFull,
    /// A dispatch comes after a pipeline.
    PipelineFirst,
    /// Every argument of a kernel is bound, with what its declaration says; nothing else is.
    Arguments,
    /// Memory is as large as a kernel reaches.
    Bounds,
    /// A threadgroup is neither empty nor larger than the pipeline allows.
    Threadgroup,
    /// `setBytes` copies at most 4 KiB.
    SmallBytes,
    /// Memory has a length, within the device's limit.
    BufferLength,
    /// Memory lives as long as a command buffer that uses it.
    AliveInFlight,
    /// Stamps are read when a command buffer has ended.
    StampsAtTheEnd,
    /// Nothing is used or released that is gone.
    Ownership,
    /// Objects are autoreleased within a pool, or they leak.
    Pool,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// What was done.
    pub what: String,
}

static BROKEN: Mutex<Vec<Violation>> = Mutex::new(Vec::new());

/// Notes that a rule was broken, and says so.
pub fn broken(rule: Rule, what: impl Into<String>) {
    let what = what.into();
    eprintln!("Metal: {rule:?}: {what}");
    BROKEN.lock().unwrap_or_else(PoisonError::into_inner).push(Violation { rule, what });
}

/// What has been broken so far in this process.
pub fn all() -> Vec<Violation> {
    BROKEN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
