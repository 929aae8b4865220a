//! The crate gpu with faults in its Metal backend. Each sleeps until `EVERWARM_FAULT` names it, so that
//! one build serves all of them.

include!(concat!(env!("OUT_DIR"), "/gpu/lib.rs"));

/// Whether this fault is the one that is wanted.
pub(crate) fn fault(name: &str) -> bool {
    static WANTED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    WANTED.get_or_init(|| std::env::var("EVERWARM_FAULT").ok()).as_deref() == Some(name)
}

/// A pool that a fault can leave out.
pub(crate) fn pool<R>(without: bool, run: impl FnOnce() -> R) -> R {
    if without { run() } else { objc2::rc::autoreleasepool(|_| run()) }
}
