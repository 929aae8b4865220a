//! What the client got against what the server sent, as the relay between saw it.
//!
//! Each check returns what differs, so that a test can also show that it finds a fault.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use crate::http::{Head, Request, Response};
use crate::relay::{Recorded, Relay};

/// Headers that belong to one connection (RFC 9110, 7.6.1) and so may differ on each side.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What a proxy may add to an event stream, so that nobody else on the way buffers it.
const STREAM_MARKS: [(&str, &str); 2] =
    [("x-accel-buffering", "no"), ("cache-control", "no-cache")];

/// Status, headers but hop-by-hop ones, and body are what the server sent, and it ended alike.
///
/// An event stream may have the two headers that the proxy adds where the server set none.
///
/// # Errors
/// What differs.
pub fn delivered_as_sent(got: &Response, sent: &Response) -> anyhow::Result<()> {
    let status = |head: &Head| (head.status(), head.reason().to_owned());
    let (one, other) = (status(&got.head), status(&sent.head));
    ensure!(one == other, "status {one:?}, the server sent {other:?}");
    let (mut one, other) = (end_to_end(&got.head), end_to_end(&sent.head));
    remove_marks(&mut one, &other);
    ensure!(one == other, "headers {one:#?}, the server sent {other:#?}");
    if got.body != sent.body {
        let pairs = got.body.iter().zip(&sent.body);
        let same = pairs.take_while(|(a, b)| a == b).count();
        let lengths = (got.body.len(), sent.body.len());
        bail!("bodies differ from byte {same} on; lengths (got, sent): {lengths:?}");
    }
    ensure!(
        got.broken.is_some() == sent.broken.is_some(),
        "the end: {:?}, the server's: {:?}",
        got.broken,
        sent.broken
    );
    Ok(())
}

/// Method, path, headers but hop-by-hop ones, and body reached the server as the client gave them.
///
/// The host may be the server's, and a proxy may say more (`Forwarded`, say), but not less.
///
/// # Errors
/// What differs.
pub fn asked_as_given(given: &Request, carried: &Recorded) -> anyhow::Result<()> {
    let (head, body) = carried.request()?;
    let line = format!("{} {} HTTP/", given.method, given.path);
    ensure!(head.start.starts_with(&line), "asked {:?}, given {line:?}", head.start);
    for (name, value) in &given.headers {
        let name = name.to_ascii_lowercase();
        let hop_by_hop = HOP_BY_HOP.contains(&name.as_str());
        let there = head.headers.iter().any(|(n, v)| *n == name && v == value);
        ensure!(there || hop_by_hop, "{name}: {value} is not in {:#?}", head.headers);
    }
    ensure!(body == given.body, "a body of {} bytes, given {}", body.len(), given.body.len());
    Ok(())
}

/// Takes away what a proxy may have added to a server's event stream.
fn remove_marks(got: &mut Vec<(String, String)>, sent: &[(String, String)]) {
    let of = |name: &str| sent.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    if of("content-type").is_some_and(|v| v.starts_with("text/event-stream")) {
        got.retain(|(n, v)| of(n).is_some() || !STREAM_MARKS.contains(&(n.as_str(), v.as_str())));
    }
}

/// Headers that go from end to end, sorted by name; those of one name keep their order.
fn end_to_end(head: &Head) -> Vec<(String, String)> {
    let named = head.headers.iter().filter(|(name, _)| name == "connection");
    let named = named.flat_map(|(_, value)| value.split(','));
    let named: BTreeSet<String> = named.map(|name| name.trim().to_ascii_lowercase()).collect();
    let mut headers = head.headers.clone();
    headers.retain(|(name, _)| !HOP_BY_HOP.contains(&name.as_str()) && !named.contains(name));
    headers.sort_by(|(a, _), (b, _)| a.cmp(b));
    headers
}

/// How much later than at the relay the body's bytes were at the client, at most.
///
/// # Errors
/// When the client did not get what the relay saw.
pub fn lateness(got: &Response, sent: &Response) -> anyhow::Result<Duration> {
    let mut latest = Duration::ZERO;
    for (at, length) in &sent.arrivals {
        let had = got.had(*length).with_context(|| format!("byte {length} never came"))?;
        latest = latest.max(had.saturating_duration_since(*at));
    }
    Ok(latest)
}

/// The client's side of a connection at the relay has ended since `left`, within `limit`.
///
/// # Errors
/// When it has not, or later.
pub fn gone_within(
    relay: &Relay,
    connection: usize,
    left: Instant,
    limit: Duration,
) -> anyhow::Result<Duration> {
    // Waits longer than the limit, to tell late from never.
    let patience = left + limit + Duration::from_secs(3);
    loop {
        if let Some(end) = relay.client_end(connection) {
            ensure!(end >= left, "gone before the client left");
            let took = end - left;
            ensure!(took <= limit, "gone after {took:?}, expected at most {limit:?}");
            return Ok(took);
        }
        ensure!(
            Instant::now() < patience,
            "still there {:?} after the client left",
            left.elapsed()
        );
        thread::sleep(Duration::from_micros(500));
    }
}
