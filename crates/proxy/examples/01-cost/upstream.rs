//! The scripted upstream: one JSON answer, or a stream of events on a fixed schedule.
//!
//! Every piece of content carries the time at which it was written, on the process's own clock, so
//! that the client of the same process can tell how long it was under way. It reads of a request
//! only its length and whether a stream is wanted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Pieces of content in one stream.
pub const CHUNKS: usize = 32;

/// Digits of a stamp, which stands between `t=` and `;`.
pub const STAMP_DIGITS: usize = 16;

/// Where stamps begin.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Clock(Instant::now())
    }

    /// Unit: ns.
    pub fn now(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// A running upstream; its thread lives as long as the process.
pub struct Upstream {
    pub address: SocketAddr,
    gap_us: Arc<AtomicU64>,
}

impl Upstream {
    /// Starts it on a thread of its own, which inherits the caller's CPUs.
    pub fn start(clock: Clock) -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let gap_us = Arc::new(AtomicU64::new(1000));
        let gap = Arc::clone(&gap_us);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("upstream".to_owned()).spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("a listener can be watched");
                while let Ok((stream, _)) = listener.accept().await {
                    let gap = Arc::clone(&gap);
                    // A client that leaves is no news here.
                    tokio::spawn(async move { serve(stream, clock, gap).await.ok() });
                }
            });
        })?;
        Ok(Upstream { address, gap_us })
    }

    /// The time between two pieces of content, for streams that begin from now on.
    pub fn schedule(&self, gap: Duration) {
        self.gap_us.store(gap.as_micros() as u64, Ordering::Relaxed);
    }
}

async fn serve(mut stream: TcpStream, clock: Clock, gap: Arc<AtomicU64>) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let mut unread = Vec::with_capacity(16 * 1024);
    loop {
        let length = loop {
            if let Some(length) = request_length(&unread)? {
                break length;
            }
            if stream.read_buf(&mut unread).await? == 0 {
                return Ok(());
            }
        };
        let streams = wants_stream(&unread[..length]);
        unread.drain(..length);
        if streams {
            let gap = Duration::from_micros(gap.load(Ordering::Relaxed));
            events(&mut stream, clock, gap).await?;
        } else {
            stream.write_all(&json(clock)).await?;
        }
    }
}

/// Bytes of the first request in `unread`, once it is whole.
fn request_length(unread: &[u8]) -> anyhow::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head_length) = head.parse(unread)? else { return Ok(None) };
    let length = content_length(head.headers).unwrap_or(0);
    Ok((unread.len() >= head_length + length).then_some(head_length + length))
}

/// What `Content-Length` says.
pub fn content_length(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let header = headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(header.value).ok()?.trim().parse().ok()
}

fn wants_stream(request: &[u8]) -> bool {
    let plain: Vec<u8> = request.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
    let wanted = b"\"stream\":true";
    plain.windows(wanted.len()).any(|w| w == wanted)
}

fn json(clock: Clock) -> Vec<u8> {
    let body = format!(
        "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"tiny\",\
         \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{}{}\"}},\
         \"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":20,\"completion_tokens\":80,\
         \"total_tokens\":100}}}}",
        stamp(clock),
        "river ".repeat(80),
    );
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

const EVENTS_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Transfer-Encoding: chunked\r\n\r\n";

async fn events(stream: &mut TcpStream, clock: Clock, gap: Duration) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    for n in 0..CHUNKS {
        if n > 0 {
            // Also one that is due takes until the timer's next millisecond.
            tokio::time::sleep_until(began + gap * n as u32).await;
        }
        let mut text = if n == 0 { EVENTS_HEAD.to_owned() } else { String::new() };
        text += &chunk(&event(&stamp(clock), "null"));
        if n + 1 == CHUNKS {
            text += &chunk(&event("", "\"stop\""));
            text += &chunk("data: [DONE]\n\n");
            text += "0\r\n\r\n";
        }
        stream.write_all(text.as_bytes()).await.context("the client left")?;
    }
    Ok(())
}

fn event(content: &str, reason: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\
         \"model\":\"tiny\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\
         \"finish_reason\":{reason}}}]}}\n\n"
    )
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn stamp(clock: Clock) -> String {
    format!("t={:0STAMP_DIGITS$};", clock.now())
}
