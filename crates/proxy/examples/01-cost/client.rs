//! The measuring client: raw sockets in one thread, a closed loop on each connection.
//!
//! Closed loop: a connection sends its next request when it has the whole answer to the last one,
//! so a proxy that is slow is asked less often. Every answer is checked: status 200, and whole.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::upstream::{CHUNKS, Clock, STAMP_DIGITS, content_length};

/// What `Authorization` carries; litellm wants one that is not weak, the others pass it on.
pub const KEY: &str = "sk-b1f0c5a2d4e6978860a1b2c3d4e5f60718293a4b5c6d7e8f";

#[derive(Clone, Copy)]
pub struct Load {
    pub connections: usize,
    pub streaming: bool,
    pub span: Duration,
    /// The upstream's time between two pieces of content.
    pub gap: Duration,
}

/// Unit: us, all of them.
#[derive(Clone, Default)]
pub struct Samples {
    /// From writing a request to the whole answer, or to a stream's first content.
    pub latencies: Vec<f32>,
    /// A piece of content from the upstream's write to the client's read, but the first of a stream.
    pub delays: Vec<f32>,
    /// By how much two neighbouring pieces came closer or further apart than they were written.
    pub shifts: Vec<f32>,
    pub answers: u64,
}

impl Samples {
    pub fn add(&mut self, other: Samples) {
        self.latencies.extend(other.latencies);
        self.delays.extend(other.delays);
        self.shifts.extend(other.shifts);
        self.answers += other.answers;
    }
}

/// Puts `load` on `address`. Warm-up requests are not among the samples; `begin` is called after
/// them.
pub async fn run(
    address: SocketAddr,
    clock: Clock,
    load: Load,
    begin: impl FnOnce(),
) -> anyhow::Result<Samples> {
    let mut ready = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        let mut connection = Connection::open(address, clock).await?;
        connection.ask(false, &mut Samples::default()).await?;
        ready.push(connection);
    }
    begin();
    let began = tokio::time::Instant::now();
    let mut running = JoinSet::new();
    for (n, mut connection) in ready.into_iter().enumerate() {
        // Streams that begin together would send together for ever.
        let lag = load.gap * n as u32 / load.connections as u32;
        running.spawn(async move {
            let mut samples = Samples::default();
            if load.streaming {
                tokio::time::sleep_until(began + lag).await;
            }
            while began.elapsed() < load.span {
                connection.ask(load.streaming, &mut samples).await?;
            }
            anyhow::Ok(samples)
        });
    }
    let mut all = Samples::default();
    while let Some(done) = running.join_next().await {
        all.add(done??);
    }
    Ok(all)
}

pub struct Connection {
    stream: TcpStream,
    clock: Clock,
    read: Vec<u8>,
    requests: [Vec<u8>; 2],
}

impl Connection {
    pub async fn open(address: SocketAddr, clock: Clock) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let requests = [false, true].map(|streaming| request(address, streaming));
        Ok(Connection { stream, clock, read: Vec::with_capacity(16 * 1024), requests })
    }

    /// One request and its answer.
    pub async fn ask(&mut self, streaming: bool, samples: &mut Samples) -> anyhow::Result<()> {
        self.read.clear();
        let began = self.clock.now();
        self.stream.write_all(&self.requests[usize::from(streaming)]).await?;
        let mut scanned = 0;
        let (mut stamps, mut last) = (0, None);
        loop {
            let bytes = self.stream.read_buf(&mut self.read).await?;
            let now = self.clock.now();
            ensure!(bytes > 0, "the connection ended inside an answer");
            while let Some((stamp, end)) = next_stamp(&self.read, scanned) {
                scanned = end;
                stamps += 1;
                if stamps == 1 && streaming {
                    samples.latencies.push(micros(began, now));
                } else if streaming {
                    let delay = micros(stamp, now);
                    samples.delays.push(delay);
                    samples.shifts.extend(last.map(|last: f32| (delay - last).abs()));
                }
                last = Some(micros(stamp, now));
            }
            if self.whole(streaming)? {
                break;
            }
        }
        let expected = if streaming { CHUNKS } else { 1 };
        ensure!(stamps == expected, "an answer has {stamps} stamps, expected {expected}");
        if !streaming {
            samples.latencies.push(micros(began, self.clock.now()));
        }
        samples.answers += 1;
        Ok(())
    }

    fn whole(&self, streaming: bool) -> anyhow::Result<bool> {
        if streaming && !self.read.ends_with(b"0\r\n\r\n") {
            return Ok(false);
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = head.parse(&self.read)? else { return Ok(false) };
        let text = || String::from_utf8_lossy(&self.read).into_owned();
        ensure!(head.code == Some(200), "expected a 200: {}", text());
        match content_length(head.headers) {
            Some(body) => Ok(self.read.len() >= length + body),
            None if streaming => Ok(true),
            None => anyhow::bail!("an answer without a length: {}", text()),
        }
    }
}

fn micros(from: u64, to: u64) -> f32 {
    to.saturating_sub(from) as f32 / 1e3
}

fn request(address: SocketAddr, streaming: bool) -> Vec<u8> {
    let content = "river ".repeat(20);
    let body = format!(
        "{{\"model\":\"tiny\",\"stream\":{streaming},\
         \"messages\":[{{\"role\":\"user\",\"content\":\"{content}\"}}]}}"
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nAccept: */*\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The next stamp from `from` on, and where it ends.
fn next_stamp(bytes: &[u8], from: usize) -> Option<(u64, usize)> {
    let length = STAMP_DIGITS + 3;
    let windows = bytes.get(from..)?.windows(length);
    let (at, found) =
        windows.enumerate().find(|(_, w)| w.starts_with(b"t=") && w.ends_with(b";"))?;
    let digits = std::str::from_utf8(&found[2..length - 1]).ok()?;
    Some((digits.parse().ok()?, from + at + length))
}

/// The body of `GET path`, as JSON: for the admin port.
pub async fn status(address: SocketAddr) -> anyhow::Result<serde_json::Value> {
    let mut stream = TcpStream::connect(address).await?;
    let ask = format!("GET /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(ask.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    let at = answer.windows(4).position(|w| w == b"\r\n\r\n").context("an answer has no head")?;
    Ok(serde_json::from_slice(&answer[at + 4..])?)
}
