//! What threads share and wait with: the standard library's, or loom's where `--cfg loom` has it try
//! every order of steps (`cargo xtask loom`).
//!
//! Loom knows no time: who waits there waits until somebody wakes it.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU8, Ordering},
    },
    thread::{Thread, current, park_timeout},
};

#[cfg(loom)]
pub(crate) use loom::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU8, Ordering},
    },
    thread::{Thread, current},
};

#[cfg(loom)]
pub(crate) fn park_timeout(_: std::time::Duration) {
    loom::thread::park();
}
