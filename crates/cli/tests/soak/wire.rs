//! One end of a connection in bytes, as upstream and client need it.

use super::script::SILENCE;
use std::io::{Error, ErrorKind, Read, Result};
use std::net::TcpStream;
use std::time::Duration;

pub struct Wire {
    pub stream: TcpStream,
    /// Read and not yet asked for.
    spare: Vec<u8>,
}

/// The head of a request or a response, as far as it matters here.
#[derive(Debug)]
pub struct Head {
    pub first: String,
    pub length: Option<usize>,
    pub chunked: bool,
    pub close: bool,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        // Who is silent for longer than the proxy allows twice over hangs.
        stream.set_read_timeout(Some(SILENCE * 3))?;
        stream.set_write_timeout(Some(SILENCE * 3))?;
        Ok(Wire { stream, spare: Vec::new() })
    }

    /// Up to and with the blank line.
    pub fn head(&mut self) -> Result<Head> {
        let text = String::from_utf8(self.until(b"\r\n\r\n")?).map_err(Error::other)?;
        let text = text.to_ascii_lowercase();
        let value = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":")).map(str::trim)
        };
        Ok(Head {
            first: text.lines().next().unwrap_or_default().to_owned(),
            length: value("content-length").and_then(|n| n.parse().ok()),
            chunked: value("transfer-encoding") == Some("chunked"),
            close: value("connection") == Some("close"),
        })
    }

    pub fn until(&mut self, mark: &[u8]) -> Result<Vec<u8>> {
        loop {
            if let Some(at) = self.spare.windows(mark.len()).position(|w| w == mark) {
                return Ok(self.spare.drain(..at + mark.len()).collect());
            }
            self.more()?;
        }
    }

    pub fn exactly(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.spare.len() < count {
            self.more()?;
        }
        Ok(self.spare.drain(..count).collect())
    }

    /// At least one byte, at most `most`.
    pub fn some(&mut self, most: usize) -> Result<Vec<u8>> {
        if self.spare.is_empty() {
            self.more()?;
        }
        Ok(self.spare.drain(..most.min(self.spare.len())).collect())
    }

    /// Waits for the other side to close.
    pub fn closed(&mut self) -> Result<()> {
        loop {
            self.more()?;
        }
    }

    /// Whether there are bytes that nobody asked for.
    pub fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// From now on closing is a reset.
    pub fn reset(&self) {
        let socket = socket2::SockRef::from(&self.stream);
        let _ = socket.set_linger(Some(Duration::ZERO));
    }

    /// Reads once; the other side's proper end is `UnexpectedEof`.
    fn more(&mut self) -> Result<()> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            n => {
                self.spare.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }
}
