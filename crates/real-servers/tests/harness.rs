//! That the checks find what they are for: a canned server, and relays that do wrong in front of it.
//!
//! Needs no real server and no proxy, so it runs with the ordinary tests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use everwarm_real_servers::{
    Client, Fault, Relay, Request, Response, delivered_as_sent, gone_within, lateness, reset,
};

/// Wider than what the proxy is held to: these tests run beside others on a busy machine.
const LIMIT: Duration = Duration::from_millis(200);
const EVENTS: usize = 12;

/// A server of three paths: a stream with pauses, a whole answer, and one that never comes.
fn canned() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(socket));
        }
    });
    address
}

fn answer(mut socket: TcpStream) {
    let mut request = Vec::new();
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut byte = [0];
        if socket.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        request.push(byte[0]);
    }
    let path = String::from_utf8_lossy(&request).split(' ').nth(1).unwrap_or_default().to_owned();
    let _ = match path.as_str() {
        "/stream" => stream(&mut socket),
        "/never" => socket.read(&mut [0]).map(|_| ()),
        _ => socket.write_all(
            b"HTTP/1.1 200 Fine\r\nServer: canned\r\nContent-Length: 9\r\nConnection: close\r\n\r\n\
              an answer",
        ),
    };
}

fn stream(socket: &mut TcpStream) -> std::io::Result<()> {
    socket.write_all(
        b"HTTP/1.1 200 OK\r\nServer: canned\r\nContent-Type: text/event-stream\r\n\
          Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
    )?;
    for event in 0..EVENTS {
        let event = format!("data: event {event} at last\n\n");
        socket.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes())?;
        thread::sleep(Duration::from_millis(40));
    }
    socket.write_all(b"0\r\n\r\n")
}

/// The stand-in for a proxy with `fault`, the recording relay behind it, and one exchange over both.
fn exchange(fault: Fault, path: &str) -> (Response, Response) {
    let relay = Relay::start(canned());
    let proxy = Relay::faulty(relay.address(), fault);
    let mark = relay.mark();
    let got = everwarm_real_servers::send(proxy.address(), &Request::new("GET", path));
    let sent = relay.since(&mark).and_then(|recorded| recorded.response("GET"));
    (got.expect("an answer"), sent.expect("a recorded answer"))
}

#[test]
fn a_faithful_relay_passes() {
    for path in ["/stream", "/whole"] {
        let (got, sent) = exchange(Fault::None, path);
        delivered_as_sent(&got, &sent).expect("the same on both sides");
        assert!(lateness(&got, &sent).expect("all came") < LIMIT);
    }
}

#[test]
fn each_changed_response_is_found() {
    let faults = [
        (Fault::DropHeader("server"), "headers"),
        (Fault::AddHeader("Date: today"), "headers"),
        (Fault::AddHeader("Server: another"), "headers"),
        (Fault::ChangeBody, "bodies differ"),
        (Fault::CutEnd, "the end"),
    ];
    for (fault, said) in faults {
        let (got, sent) = exchange(fault, "/stream");
        let found = delivered_as_sent(&got, &sent).expect_err("a difference").to_string();
        assert!(found.starts_with(said), "{fault:?}: {found}");
    }
    let hop_by_hop = Fault::AddHeader("Keep-Alive: timeout=9");
    let (got, sent) = exchange(hop_by_hop, "/stream");
    delivered_as_sent(&got, &sent).expect("a hop-by-hop header is each side's own");
}

#[test]
fn a_buffering_relay_is_found() {
    let (got, sent) = exchange(Fault::Buffer, "/stream");
    delivered_as_sent(&got, &sent).expect("late, but whole");
    assert!(lateness(&got, &sent).expect("all came") > LIMIT);
}

/// Leaves at `path`, after `bytes` of the body, and says how soon that was seen behind `fault`.
fn leave(fault: Fault, path: &str, bytes: usize, by_reset: bool) -> anyhow::Result<Duration> {
    let relay = Relay::start(canned());
    let proxy = Relay::faulty(relay.address(), fault);
    let mark = relay.mark();
    let mut client = Client::connect(proxy.address())?;
    client.send(&Request::new("GET", path))?;
    if bytes > 0 {
        client.response_until("GET", |body| body.len() >= bytes)?;
    }
    while relay.all_since(&mark).is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
    let connection = relay.since(&mark)?.connection;
    let left = if by_reset { reset(client) } else { client.leave() };
    gone_within(&relay, connection, left, LIMIT)
}

#[test]
fn a_late_close_is_found() {
    for by_reset in [false, true] {
        leave(Fault::None, "/stream", 1, by_reset).expect("in time");
        leave(Fault::None, "/never", 0, by_reset).expect("in time");
    }
    let late = Fault::CloseLate(Duration::from_millis(800));
    leave(late, "/stream", 1, false).expect_err("too late");
    leave(late, "/never", 0, true).expect_err("too late");
}
