//! What clients speak: HTTP/1.0 and 1.1, and HTTP/2 for those who begin with it.
//!
//! Which one shows in the first bytes. They are looked at where they lie, in the socket: whoever
//! reads them has to hand them on, which costs every connection another buffer.

use crate::pool::HEADERS_MAX;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::TokioExecutor;
use rustix::net::RecvFlags;
use std::io::ErrorKind;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// A method that is for HTTP/2's preface alone. Source: RFC 9113 3.4 and 11.2.
const PREFACE: [u8; 3] = *b"PRI";

/// As much as a head may have in HTTP/1. Unit: B. Source: hyper's buffer for one.
const HEADERS_BYTES_MAX: u32 = 400 * 1024;

/// Bytes of one HTTP/2 stream that may wait in here, either way: memory per request. Source: guess;
/// a loopback has some 20 us of round trip, which makes it ten gigabytes a second.
const STREAM_WINDOW: u32 = 256 * 1024;

/// The same for all streams of a connection: one whose upstream takes nothing must leave room for
/// others.
const CONNECTION_WINDOW: u32 = 16 * STREAM_WINDOW;

/// True if the client begins with HTTP/2's preface. Waits for as many bytes as tell; on an error,
/// false: whoever reads next will meet it.
pub(crate) async fn begins_with_2(stream: &TcpStream) -> bool {
    let look = || {
        let mut seen = [0; PREFACE.len()];
        let (length, _) = rustix::net::recv(stream, &mut seen, RecvFlags::PEEK)?;
        match is_preface(&seen[..length]) {
            Some(http2) => Ok(http2),
            // Too little to tell: asked again when there is more.
            None => Err(ErrorKind::WouldBlock.into()),
        }
    };
    loop {
        let Ok(ready) = stream.ready(Interest::READABLE).await else { return false };
        match stream.try_io(Interest::READABLE, look) {
            Ok(http2) => return http2,
            // A socket that is closed stays ready: waiting for more would never end, nor pause.
            Err(error) if error.kind() == ErrorKind::WouldBlock && !ready.is_read_closed() => {}
            Err(_) => return false,
        }
    }
}

/// What the first bytes of a connection tell; `None` for too few.
fn is_preface(seen: &[u8]) -> Option<bool> {
    match seen.len() {
        0 => Some(false),
        length if seen != &PREFACE[..length] => Some(false),
        length => (length == PREFACE.len()).then_some(true),
    }
}

/// HTTP/1.0 and 1.1.
pub(crate) fn http1() -> http1::Builder {
    let mut http = http1::Builder::new();
    http.preserve_header_case(true)
        .auto_date_header(false)
        .half_close(false)
        .header_read_timeout(None)
        .max_headers(HEADERS_MAX);
    http
}

/// HTTP/2.
pub(crate) fn http2() -> http2::Builder<TokioExecutor> {
    let mut http = http2::Builder::new(TokioExecutor::new());
    http.auto_date_header(false)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_WINDOW as usize);
    http
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preface_is_known_by_its_method() {
        let check = |seen: &str, expected| assert_eq!(is_preface(seen.as_bytes()), expected);
        check("PRI", Some(true));
        check("PR", None);
        check("P", None);
        check("PO", Some(false));
        check("PUT", Some(false));
        check("G", Some(false));
        // The client has closed.
        check("", Some(false));
    }
}
