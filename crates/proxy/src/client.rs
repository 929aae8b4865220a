//! The client's end of a connection: is it gone, and how is it closed.
//!
//! hyper sees a client leave only where it reads, which it does not while a request body waits to
//! be taken. A second descriptor of the same socket is watched for the other side's FIN or RST,
//! whatever is still unread. The same descriptor resets the connection where a proper close would
//! tell a lie, and outlasts hyper where a close would destroy an answer on its way.

use crate::route::Route;
use http::Version;
use socket2::SockRef;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A close with unread bytes makes the system send RST, which takes the answer with it.
const LINGER: Duration = Duration::from_secs(1);

pub(crate) struct Client {
    socket: TcpStream,
    /// Its two ends; `None` if it was gone at once.
    pub(crate) route: Option<Route>,
    unread_body: AtomicBool,
}

impl Client {
    /// A second descriptor of `stream`.
    pub(crate) fn of(stream: &TcpStream) -> std::io::Result<Self> {
        let duplicate: std::net::TcpStream = SockRef::from(stream).try_clone()?.into();
        let socket = TcpStream::from_std(duplicate)?;
        let route = Route::accepted(&socket);
        Ok(Client { socket, route, unread_body: AtomicBool::new(false) })
    }

    /// Ends when the client has closed or reset its side.
    pub(crate) async fn gone(&self) {
        loop {
            let Ok(ready) = self.socket.ready(Interest::READABLE).await else { return };
            if ready.is_read_closed() || ready.is_error() {
                return;
            }
            // Not reading, only clearing: edge-triggered, the next readiness comes with the next
            // bytes, or with the end.
            let _ = self
                .socket
                .try_io(Interest::READABLE, || Err::<(), _>(std::io::ErrorKind::WouldBlock.into()));
        }
    }

    /// The connection will be reset instead of closed: an answer that ends with the connection was
    /// cut, and a proper close would say that it is complete.
    pub(crate) fn reset_on_close(&self) {
        // An earlier answer's reason to linger, which begins with a proper close, is over.
        self.unread_body.store(false, Ordering::Relaxed);
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
    }

    /// A tunnel to this client ended by no proper end. In HTTP/2 it is one stream of several, which
    /// the library resets.
    pub(crate) fn cut_short(&self, version: Version) {
        if version != Version::HTTP_2 {
            self.reset_on_close();
        }
    }

    /// True if the client has reset the connection: it has no other side any more.
    pub(crate) fn was_reset(&self) -> bool {
        self.socket.peer_addr().is_err()
    }

    /// A request was answered before its body was taken.
    pub(crate) fn body_left_unread(&self) {
        self.unread_body.store(true, Ordering::Relaxed);
    }

    /// After hyper has shut the connection down: lets the client read an early answer before the
    /// bytes it is still sending turn the close into a reset.
    pub(crate) async fn linger(&self) {
        if !self.unread_body.load(Ordering::Relaxed) {
            return;
        }
        let _ = SockRef::from(&self.socket).shutdown(std::net::Shutdown::Write);
        let _ = tokio::time::timeout(LINGER, self.discard()).await;
    }

    async fn discard(&self) {
        // On the heap, or every connection's task would have room for it from its beginning.
        let mut buffer = vec![0u8; 16 * 1024];
        while self.socket.readable().await.is_ok() {
            match self.socket.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
