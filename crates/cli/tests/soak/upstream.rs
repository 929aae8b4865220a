//! The upstream: plays its part of each request's script, and says so if a request is not as sent.

use super::script::{Fault, Framing, Plan};
use super::wire::{Head, Wire};
use std::io::{Result, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Serves until the process ends.
pub fn serve(listener: &TcpListener, seed: u64) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || connection(stream, seed));
    }
}

/// One connection, to its end; a fault in the script or on the wire is its end.
pub fn connection(stream: TcpStream, seed: u64) {
    let Ok(mut wire) = Wire::new(stream) else { return };
    while let Ok(head) = wire.head() {
        match answer(&mut wire, &head, seed) {
            Ok(true) => {}
            _ => return,
        }
    }
}

/// Answers one request; true if the connection goes on.
fn answer(wire: &mut Wire, head: &Head, seed: u64) -> Result<bool> {
    let id = head.first.split(['/', ' ']).find_map(|word| word.parse().ok());
    let plan = Plan::of(seed, id.expect("every path names its request"));
    let request = wire.exactly(head.length.unwrap_or(0))?;
    if request != plan.request {
        wire.stream.write_all(b"HTTP/1.1 299 Request Changed\r\nContent-Length: 0\r\n\r\n")?;
        return Ok(true);
    }
    if plan.fault == Some(Fault::NoHead) {
        wire.reset();
        return Ok(false);
    }
    let framing = match plan.framing {
        Framing::Length => format!("Content-Length: {}", plan.body.len()),
        Framing::Chunked => "Transfer-Encoding: chunked".to_owned(),
        Framing::Close => "Connection: close".to_owned(),
    };
    let kind = if plan.framing == Framing::Chunked { "text/event-stream" } else { "text/plain" };
    write!(wire.stream, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{framing}\r\n\r\n")?;
    let end = match plan.fault {
        Some(Fault::Cut { after, .. } | Fault::Stall { after }) => after,
        _ => plan.body.len(),
    };
    for (number, piece) in plan.body[..end].chunks(plan.piece).enumerate() {
        if number % plan.pause_every == plan.pause_every - 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        match plan.framing {
            Framing::Chunked => {
                write!(wire.stream, "{:x}\r\n", piece.len())?;
                wire.stream.write_all(piece)?;
                wire.stream.write_all(b"\r\n")?;
            }
            _ => wire.stream.write_all(piece)?,
        }
    }
    match plan.fault {
        Some(Fault::Cut { reset, .. }) => {
            if reset {
                wire.reset();
            }
            Ok(false)
        }
        Some(Fault::Stall { .. }) => {
            // The proxy's limit ends it, or the client, who leaves; either closes this.
            let _ = wire.closed();
            Ok(false)
        }
        _ if plan.framing == Framing::Chunked => {
            wire.stream.write_all(b"0\r\n\r\n")?;
            Ok(!plan.closes)
        }
        _ => Ok(plan.framing != Framing::Close && !plan.closes),
    }
}
