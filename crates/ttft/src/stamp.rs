//! A socket that notes when it was last read.
//!
//! The first token is there when the read returns that brought it; what lies above (HTTP framing,
//! parsing) would only add its own time.

use everwarm_gpu::Monotonic;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// When a [`Stamped`] socket last gave bytes.
#[derive(Clone, Default)]
pub(crate) struct LastRead(Arc<AtomicU64>);

impl LastRead {
    /// The stamp; 0 before the first read.
    pub(crate) fn at(&self) -> Monotonic {
        Monotonic(self.0.load(Ordering::Relaxed))
    }
}

/// A stream with its stamp.
pub(crate) struct Stamped<S> {
    inner: S,
    last_read: LastRead,
}

impl<S> Stamped<S> {
    pub(crate) fn new(inner: S) -> (Self, LastRead) {
        let last_read = LastRead::default();
        (Stamped { inner, last_read: last_read.clone() }, last_read)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stamped<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.last_read.0.store(Monotonic::now().0, Ordering::Relaxed);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stamped<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
