//! HTTP/1 messages as they stand on the wire, each piece with the time it came.
//!
//! Knows framing and nothing else: no redirect, no encoding, no meaning. Reads from a socket or from
//! a recording through [`Source`].

use std::io::{self, Read};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, bail, ensure};

/// Bytes that came together, and when.
#[derive(Clone, Debug)]
pub struct Piece {
    /// When they were read.
    pub at: Instant,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Where pieces come from.
pub trait Source {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// What the socket says, a reset for one.
    fn next_piece(&mut self) -> io::Result<Option<Piece>>;
}

impl Source for TcpStream {
    fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        let mut bytes = vec![0; 64 * 1024];
        let length = self.read(&mut bytes)?;
        bytes.truncate(length);
        Ok((length > 0).then(|| Piece { at: Instant::now(), bytes }))
    }
}

impl Source for std::vec::IntoIter<Piece> {
    fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        Ok(self.next())
    }
}

/// Start line and headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The first line.
    pub start: String,
    /// Names in lower case, values as they came.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first value of a header.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The status code of a response's head.
    pub fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// The reason phrase of a response's head.
    pub fn reason(&self) -> &str {
        self.start.splitn(3, ' ').nth(2).unwrap_or_default()
    }
}

/// A response as it came.
#[derive(Clone, Debug)]
pub struct Response {
    /// Heads with a status below 200 that came first.
    pub interim: Vec<Head>,
    /// Its head.
    pub head: Head,
    /// When the head was complete.
    pub head_at: Instant,
    /// Its body without framing.
    pub body: Vec<u8>,
    /// How long the body was, whenever more of it had come.
    pub arrivals: Vec<(Instant, usize)>,
    /// Why it broke off, unless it ended as its framing says.
    pub broken: Option<String>,
}

impl Response {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// When the body was at least that long.
    pub fn had(&self, length: usize) -> Option<Instant> {
        self.arrivals.iter().find(|(_, so_far)| *so_far >= length).map(|(at, _)| *at)
    }
}

/// How a body ends.
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// Reads messages from a source, keeping what is read too much.
pub struct Reader<S> {
    source: S,
    held: Vec<u8>,
    at: Instant,
}

impl<S: Source> Reader<S> {
    /// A reader that holds nothing yet.
    pub fn new(source: S) -> Self {
        Self { source, held: Vec::new(), at: Instant::now() }
    }

    /// Whether nothing is left.
    pub fn ended(&mut self) -> bool {
        self.held.is_empty() && !matches!(self.fill(), Ok(true))
    }

    /// The response to a request with that method, to its end.
    ///
    /// # Errors
    /// When there is no whole head; a body that breaks off is told in the response.
    pub fn response(&mut self, method: &str) -> anyhow::Result<Response> {
        self.response_until(method, |_| false)
    }

    /// As [`Reader::response`], but stops when `enough` of the body is there.
    ///
    /// # Errors
    /// When there is no whole head.
    pub fn response_until(
        &mut self,
        method: &str,
        enough: impl Fn(&[u8]) -> bool,
    ) -> anyhow::Result<Response> {
        let mut interim = Vec::new();
        let head = loop {
            let head = self.head()?;
            // 101 is final: what follows is another protocol.
            if head.status() >= 200 || head.status() == 101 {
                break head;
            }
            interim.push(head);
        };
        let (head_at, body, arrivals) = (self.at, Vec::new(), Vec::new());
        let mut response = Response { interim, head, head_at, body, arrivals, broken: None };
        let read = framing(method, &response.head)
            .and_then(|framing| self.body(framing, &mut response, &enough));
        response.broken = read.err().map(|error| format!("{error:#}"));
        Ok(response)
    }

    /// A request: its head and its body without framing.
    ///
    /// # Errors
    /// When it isn't whole.
    pub fn request(&mut self) -> anyhow::Result<(Head, Vec<u8>)> {
        let head = self.head()?;
        let framing = match head.value("transfer-encoding").or(head.value("content-length")) {
            Some(_) => framing("POST", &Head { start: "HTTP/1.1 200".into(), ..head.clone() })?,
            None => Framing::Length(0),
        };
        let (head_at, body, arrivals) = (self.at, Vec::new(), Vec::new());
        let mut message =
            Response { interim: Vec::new(), head, head_at, body, arrivals, broken: None };
        self.body(framing, &mut message, &|_| false)?;
        Ok((message.head, message.body))
    }

    /// Everything that yet comes, as it is on the wire.
    ///
    /// # Errors
    /// What the source says; what came before is in `bytes`.
    pub fn rest(&mut self, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
        loop {
            bytes.append(&mut self.held);
            if !self.fill()? {
                return Ok(());
            }
        }
    }

    /// The next head.
    ///
    /// # Errors
    /// When the source ends before it does.
    pub fn head(&mut self) -> anyhow::Result<Head> {
        let mut head = Head { start: self.line().context("no head")?, headers: Vec::new() };
        loop {
            let line = self.line().with_context(|| format!("after {:?}", head.start))?;
            if line.is_empty() {
                return Ok(head);
            }
            let (name, value) = line.split_once(':').with_context(|| format!("header {line:?}"))?;
            head.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn body(
        &mut self,
        framing: Framing,
        response: &mut Response,
        enough: &impl Fn(&[u8]) -> bool,
    ) -> anyhow::Result<()> {
        match framing {
            Framing::Length(length) => self.take(length, response, enough)?,
            Framing::UntilClose => {
                while !enough(&response.body) && (!self.held.is_empty() || self.fill()?) {
                    let all = self.held.len();
                    self.take(all, response, enough)?;
                }
            }
            Framing::Chunked => loop {
                let line = self.line().context("in a chunk's size")?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = usize::from_str_radix(size, 16)
                    .with_context(|| format!("a chunk's size is {line:?}"))?;
                if size == 0 {
                    while !self.line().context("in the trailers")?.is_empty() {}
                    break;
                }
                self.take(size, response, enough)?;
                if enough(&response.body) {
                    break;
                }
                ensure!(self.line()?.is_empty(), "a chunk is longer than it says");
            },
        }
        Ok(())
    }

    /// Moves bytes into the body as they come.
    fn take(
        &mut self,
        length: usize,
        response: &mut Response,
        enough: &impl Fn(&[u8]) -> bool,
    ) -> anyhow::Result<()> {
        let end = response.body.len() + length;
        while response.body.len() < end && !enough(&response.body) {
            if self.held.is_empty() && !self.fill()? {
                bail!("{} bytes are missing", end - response.body.len());
            }
            let part = self.held.len().min(end - response.body.len());
            response.body.extend(self.held.drain(..part));
            response.arrivals.push((self.at, response.body.len()));
        }
        Ok(())
    }

    fn line(&mut self) -> anyhow::Result<String> {
        loop {
            if let Some(end) = self.held.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.held.drain(..end + 2).take(end).collect();
                return Ok(String::from_utf8(line)?);
            }
            ensure!(self.fill()?, "the connection ended after \"{}\"", self.held.escape_ascii());
        }
    }

    /// Waits for more; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let Some(piece) = self.source.next_piece()? else { return Ok(false) };
        self.held.extend(&piece.bytes);
        self.at = piece.at;
        Ok(true)
    }
}

fn framing(method: &str, head: &Head) -> anyhow::Result<Framing> {
    let status = head.status();
    if method == "HEAD" || status == 204 || status == 304 || status < 200 {
        return Ok(Framing::Length(0));
    }
    if let Some(encoding) = head.value("transfer-encoding") {
        ensure!(encoding.eq_ignore_ascii_case("chunked"), "Transfer-Encoding: {encoding}");
        return Ok(Framing::Chunked);
    }
    match head.value("content-length") {
        Some(length) => Ok(Framing::Length(length.parse().with_context(|| length.to_owned())?)),
        None => Ok(Framing::UntilClose),
    }
}

/// A request to send.
#[derive(Clone, Debug)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers beside Host and the body's framing.
    pub headers: Vec<(String, String)>,
    /// The body, empty for none.
    pub body: Vec<u8>,
    /// Whether the body goes in chunks.
    pub chunked: bool,
    /// `1.1` or `1.0`.
    pub version: &'static str,
}

impl Request {
    /// A request without a body.
    pub fn new(method: &str, path: &str) -> Self {
        let (method, path) = (method.to_owned(), path.to_owned());
        let (headers, body) = (Vec::new(), Vec::new());
        Self { method, path, headers, body, chunked: false, version: "1.1" }
    }

    /// A POST with a JSON body.
    pub fn post(path: &str, body: &str) -> Self {
        let request = Self { body: body.into(), ..Self::new("POST", path) };
        request.header("Content-Type", "application/json")
    }

    /// The same with one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with its body in chunks of 7 bytes.
    pub fn in_chunks(self) -> Self {
        Self { chunked: true, ..self }
    }

    /// The bytes on the wire.
    pub fn bytes(&self, host: &str) -> Vec<u8> {
        let mut text =
            format!("{} {} HTTP/{}\r\nHost: {host}\r\n", self.method, self.path, self.version);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        if self.chunked {
            text += "Transfer-Encoding: chunked\r\n\r\n";
            let mut bytes = text.into_bytes();
            for chunk in self.body.chunks(7) {
                bytes.extend(format!("{:x}\r\n", chunk.len()).bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            return bytes;
        }
        if !self.body.is_empty() || self.method == "POST" {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        let mut bytes = (text + "\r\n").into_bytes();
        bytes.extend(&self.body);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wire text, cut at every place: body, and whether it broke.
    fn check(wire: &str, method: &str, body: &str, broken: bool) {
        for cut in 0..wire.len() {
            let (a, b) = wire.as_bytes().split_at(cut);
            let pieces: Vec<Piece> = [a, b]
                .into_iter()
                .filter(|part| !part.is_empty())
                .map(|part| Piece { at: Instant::now(), bytes: part.to_vec() })
                .collect();
            let response = Reader::new(pieces.into_iter()).response(method).expect("a head");
            assert_eq!((response.text().as_str(), response.broken.is_some()), (body, broken));
        }
    }

    #[test]
    fn each_framing_is_read_at_every_cut() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "GET", "abc", false);
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", "GET", "abc", true);
        check("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "HEAD", "", false);
        check("HTTP/1.0 200 OK\r\n\r\nabc", "GET", "abc", false);
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n";
        check(&format!("{chunked}0\r\n\r\n"), "GET", "abc", false);
        check(chunked, "GET", "abc", true);
        check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "POST", "", false);
    }
}
