//! A client that speaks raw HTTP/1 on one connection.
//!
//! Does not retry, follow or correct anything: what it sees is what came.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::http::{Head, Reader, Request, Response};

/// The longest that a test waits for anything to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection.
pub struct Client {
    socket: TcpStream,
    reader: Reader<TcpStream>,
    host: String,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(address).with_context(|| address.to_string())?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let reader = Reader::new(socket.try_clone()?);
        Ok(Self { socket, reader, host: address.to_string() })
    }

    /// Sends a request and returns without an answer.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send(&mut self, request: &Request) -> anyhow::Result<()> {
        Ok(self.socket.write_all(&request.bytes(&self.host))?)
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send_raw(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.socket.write_all(bytes)?)
    }

    /// The answer, to its end.
    ///
    /// # Errors
    /// When no whole head comes.
    pub fn response(&mut self, method: &str) -> anyhow::Result<Response> {
        self.reader.response(method)
    }

    /// The answer, until `enough` of its body is there.
    ///
    /// # Errors
    /// When no whole head comes.
    pub fn response_until(
        &mut self,
        method: &str,
        enough: impl Fn(&[u8]) -> bool,
    ) -> anyhow::Result<Response> {
        self.reader.response_until(method, enough)
    }

    /// The next head, be it an interim one.
    ///
    /// # Errors
    /// When no whole head comes.
    pub fn interim(&mut self) -> anyhow::Result<Head> {
        self.reader.head()
    }

    /// Everything that yet comes, with its framing.
    ///
    /// # Errors
    /// When the connection ends by a reset; what came before is in `bytes`.
    pub fn rest(&mut self, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        self.reader.rest(bytes)
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// When the connection is gone, or no whole head comes.
    pub fn exchange(&mut self, request: &Request) -> anyhow::Result<Response> {
        self.send(request)?;
        self.response(&request.method)
    }

    /// Whether the other side has closed, once all it sent is read.
    pub fn closed(&mut self) -> bool {
        self.reader.ended()
    }

    /// Goes away with a FIN; returns when.
    pub fn leave(self) -> Instant {
        let at = Instant::now();
        drop(self);
        at
    }
}

/// Goes away with a reset, as a killed program's kernel may; returns when.
///
/// # Panics
/// When the socket can't be told to.
pub fn reset(client: Client) -> Instant {
    let linger = socket2::SockRef::from(&client.socket).set_linger(Some(Duration::ZERO));
    linger.expect("a socket can linger");
    client.leave()
}

/// Sends one request on a connection of its own and reads the answer.
///
/// # Errors
/// When nobody listens there, or no whole head comes.
pub fn send(address: SocketAddr, request: &Request) -> anyhow::Result<Response> {
    Client::connect(address)?.exchange(request)
}
