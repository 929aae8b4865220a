//! A socket that notes when it was last read.
//!
//! The first token is there when the read returns that brought it; what lies above (HTTP framing,
//! parsing) would only add its own time.

use everwarm_gpu::Monotonic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::InspectReader;

/// When a [`stamped`] socket last gave bytes.
#[derive(Clone, Default)]
pub(crate) struct LastRead(Arc<AtomicU64>);

impl LastRead {
    /// The stamp; 0 before the first read.
    pub(crate) fn at(&self) -> Monotonic {
        Monotonic(self.0.load(Ordering::Relaxed))
    }
}

/// `socket` as it is, and its stamp.
pub(crate) fn stamped<S>(socket: S) -> (InspectReader<S, impl FnMut(&[u8])>, LastRead)
where
    S: AsyncRead + AsyncWrite,
{
    let last_read = LastRead::default();
    let stamp = last_read.clone();
    let note = move |bytes: &[u8]| {
        if !bytes.is_empty() {
            stamp.0.store(Monotonic::now().0, Ordering::Relaxed);
        }
    };
    (InspectReader::new(socket, note), last_read)
}
