//! What a caller of a backend can't foresee.

/// Why a backend could not do what it was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no such device; the text says which exist or what was missing.
    #[error("no device `{id}`: {why}")]
    NoDevice {
        /// As the user wrote it.
        id: String,
        /// Why, and what exists instead.
        why: String,
    },
    /// A limit of the device is reached.
    #[error("{what}: the limit is {limit}")]
    Limit {
        /// "64 command buffers are already in flight".
        what: String,
        /// The limit.
        limit: usize,
    },
    /// The device can't do this.
    #[error("{device} can't run {what}")]
    Unsupported {
        /// Which device.
        device: String,
        /// What was asked.
        what: String,
    },
    /// Memory has run out for now: less would do, or the same later. The handle is well.
    #[error("{device} has no memory left for {what}")]
    Memory {
        /// Which device.
        device: String,
        /// What wanted it.
        what: String,
    },
    /// Nothing tells of the device but a handle on it.
    #[error("nothing tells of {device}: {why}")]
    Silent {
        /// Which device.
        device: String,
        /// Why, or what was missing.
        why: String,
    },
    /// The device was there and is gone.
    #[error("{device} is gone: {why}")]
    Lost {
        /// Which device.
        device: String,
        /// What was seen.
        why: String,
    },
}

impl Error {
    /// A commit to a queue that the handle, which has opened `open` queues, does not have.
    pub(crate) fn no_queue(queue: crate::Queue, open: usize) -> Self {
        let what = format!("queue {} is not open; queues are numbered from 0", queue.0);
        Error::Limit { what, limit: open }
    }
}
