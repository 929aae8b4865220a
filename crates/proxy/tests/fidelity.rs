//! What passes is what was sent: heads, bodies, piece by piece, both ways.

mod support;

use std::time::Duration;
use support::{Closed, GET, Proxy, Upstream, post, show};

/// Sends `request`, answers `response` and closes; returns what each side got.
fn exchange(request: &str, response: &str) -> (String, Vec<u8>, Closed) {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send(request);
    let mut server = upstream.accept();
    let head = server.head().replace(&upstream.address.to_string(), "UPSTREAM");
    server.send(response);
    drop(server);
    let (got, closed) = client.rest();
    (head, got, closed)
}

#[test]
fn heads_pass_in_case_order_and_number() {
    let (head, got, _) = exchange(
        "POST /v1//odd/../path;x=%2F?q=a%20b&&c HTTP/1.1\r\n\
         hOST: somewhere\r\n\
         X-Two: 1\r\n\
         x-two: 2\r\n\
         Connection: close, X-Once\r\n\
         X-Once: gone\r\n\
         Keep-Alive: timeout=9\r\n\
         Proxy-Authorization: Basic eA==\r\n\
         TE: trailers\r\n\
         ORIGIN: http://page\r\n\
         empty:\r\n\
         Accept-Encoding: gzip\r\n\
         Content-Length: 0\r\n\r\n",
        "HTTP/1.1 200 Fine By Me\r\n\
         Server: llama.cpp\r\n\
         Access-Control-Allow-Origin: \r\n\
         Content-type: text/plain; charset=utf-8\r\n\
         set-cookie: a=1\r\n\
         Set-Cookie: b=2\r\n\
         Keep-Alive: timeout=5, max=100\r\n\
         Connection: close, X-Hop\r\n\
         X-Hop: gone\r\n\
         X-Latin: caf\u{e9}\r\n\
         Content-Length: 2\r\n\r\nok",
    );
    assert_eq!(
        head,
        "POST /v1//odd/../path;x=%2F?q=a%20b&&c HTTP/1.1\r\n\
         hOST: UPSTREAM\r\n\
         X-Two: 1\r\n\
         x-two: 2\r\n\
         ORIGIN: http://page\r\n\
         empty:\r\n\
         Accept-Encoding: gzip\r\n\
         Content-Length: 0\r\n\r\n"
    );
    // The client asked for a close and is told that it gets it: hop-by-hop, ours.
    let got = String::from_utf8(got).unwrap().replace("Connection: close\r\n", "");
    assert_eq!(
        got,
        "HTTP/1.1 200 Fine By Me\r\n\
         Server: llama.cpp\r\n\
         Access-Control-Allow-Origin: \r\n\
         Content-type: text/plain; charset=utf-8\r\n\
         set-cookie: a=1\r\n\
         Set-Cookie: b=2\r\n\
         X-Latin: caf\u{e9}\r\n\
         Content-Length: 2\r\n\r\nok"
    );
}

#[test]
fn every_method_and_target_passes() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    let mut server = None;
    for line in [
        "GET /v1/models",
        "PURGE /x",
        "get /lower",
        "DELETE /v1/responses/resp_1",
        "OPTIONS *",
        "M-SEARCH /",
        "PUT //two//slashes",
        "PATCH /api/chat?a[]=1&b={c}|d",
        "GET /%E6%B0%B4%2f..",
    ] {
        client.send(format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"));
        let server = server.get_or_insert_with(|| upstream.accept());
        assert_eq!(server.head().lines().next().unwrap(), format!("{line} HTTP/1.1"));
        server.send("HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n");
        assert_eq!(client.head(), "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n");
    }
}

#[test]
fn a_prefix_of_the_upstream_stands_before_every_path() {
    let upstream = Upstream::start();
    let url = format!("http://localhost:{}/base/", upstream.address.port());
    let proxy = Proxy::with(upstream.address, |c| c.upstream = url.parse().unwrap());
    let mut client = proxy.client();
    client.send("GET /v1/models?x HTTP/1.1\r\n\r\n");
    let head = upstream.accept().head();
    let port = upstream.address.port();
    assert_eq!(head, format!("GET /base/v1/models?x HTTP/1.1\r\nhost: localhost:{port}\r\n\r\n"));
}

#[test]
fn the_clients_host_can_be_kept() {
    let upstream = Upstream::start();
    let proxy = Proxy::with(upstream.address, |c| c.keep_host = true);
    let mut client = proxy.client();
    client.send(GET);
    assert!(upstream.accept().head().contains("Host: h\r\n"));
}

#[test]
fn pieces_pass_one_by_one_both_ways() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send("POST /up HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
    // Each piece is sent only when the one before has arrived: nothing can be waiting for more.
    let smiley = "水\u{1F600}".as_bytes();
    for at in 0..smiley.len() {
        client.send([b"1\r\n", &smiley[at..=at], b"\r\n"].concat());
        assert_eq!(server.exactly(6), [b"1\r\n", &smiley[at..=at], b"\r\n"].concat());
    }
    client.send("0\r\n\r\n");
    assert_eq!(server.exactly(5), b"0\r\n\r\n");
    server.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n");
    server.send("Transfer-Encoding: chunked\r\n\r\n");
    let head = client.head();
    assert!(
        head.contains("ransfer-encoding: chunked") || head.contains("Transfer-Encoding: chunked")
    );
    for piece in
        [": keepalive 1/2\n\n", "event: x\r", "\ndata: {\"a\":", "\"\u{e9}\"}\r\n\r\n", ":"]
    {
        let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
        server.send(&chunk);
        assert_eq!(show(&client.exactly(piece_len(piece))), show(&upper(&chunk)));
    }
    server.send("0\r\n\r\n");
    assert_eq!(client.exactly(5), b"0\r\n\r\n");
}

fn piece_len(piece: &str) -> usize {
    format!("{:X}\r\n{piece}\r\n", piece.len()).len()
}

/// hyper writes chunk sizes in upper case.
fn upper(chunk: &str) -> Vec<u8> {
    let (size, rest) = chunk.split_once("\r\n").unwrap();
    format!("{}\r\n{rest}", size.to_uppercase()).into_bytes()
}

#[test]
fn no_head_before_the_upstreams() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send(post("/v1/chat/completions", "{}"));
    let mut server = upstream.accept();
    server.head();
    client.silent(Duration::from_millis(200));
    server.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\n\r\n{\"busy\":1");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
    assert_eq!(client.exactly(9), b"{\"busy\":1");
}

#[test]
fn a_large_body_streams_and_is_not_changed() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    let body: Vec<u8> = (0..4_000_000u32).map(|i| (i * 31 % 251) as u8).collect();
    client.send(format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len()));
    let mut server = upstream.accept();
    assert!(server.head().contains("Content-Length: 4000000\r\n"));
    // The first half is through before the second is sent.
    client.send(&body[..2_000_000]);
    assert!(server.exactly(2_000_000) == body[..2_000_000]);
    client.send(&body[2_000_000..]);
    assert!(server.exactly(2_000_000) == body[2_000_000..]);
    server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.head();
    let sending = std::thread::spawn({
        let body = body.clone();
        move || server.send(&body)
    });
    assert!(client.exactly(body.len()) == body);
    sending.join().unwrap();
}

#[test]
fn http_10_upstreams_end_by_closing() {
    let response = "HTTP/1.0 200 OK\r\nServer: BaseHTTP/0.6\r\nDate: Mon, 30 Nov 2026 19:03:23 GMT\
                    \r\nContent-type: text/event-stream\r\n\r\n";
    for (version, chunked) in [("1.1", true), ("1.0", false)] {
        let upstream = Upstream::start();
        let proxy = Proxy::before(upstream.address);
        let mut client = proxy.client();
        client.send(format!("GET / HTTP/{version}\r\nHost: h\r\n\r\n"));
        let mut server = upstream.accept();
        server.head();
        server.send(response);
        let head = client.head();
        assert_eq!(head.matches("Date: ").count() + head.matches("date: ").count(), 1, "{head}");
        assert!(head.starts_with(&format!("HTTP/{version} 200 OK\r\nServer: BaseHTTP/0.6\r\n")));
        server.send(": keepalive 1/1\n\n");
        let mut got = Vec::new();
        if chunked {
            got.extend(client.until(b"1/1\n\n\r\n"));
        } else {
            got.extend(client.until(b"1/1\n\n"));
        }
        assert!(show(&got).contains(": keepalive 1/1"), "{}", show(&got));
        server.send("data: [DONE]\n\n");
        drop(server);
        if chunked {
            assert_eq!(client.chunked(), b"data: [DONE]\n\n");
        } else {
            assert_eq!(client.rest(), (b"data: [DONE]\n\n".to_vec(), Closed::Fin));
        }
    }
}

#[test]
fn http_10_clients_get_no_chunks() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send("GET /old HTTP/1.0\r\nX: y\r\n\r\n");
    let mut server = upstream.accept();
    let host = upstream.address;
    assert_eq!(server.head(), format!("GET /old HTTP/1.1\r\nhost: {host}\r\nX: y\r\n\r\n"));
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.0 200 OK\r\n"));
    assert_eq!(client.rest(), (b"abc".to_vec(), Closed::Fin));
}

#[test]
fn answers_without_bodies_keep_their_headers() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX: y\r\n\r\n");
    assert_eq!(client.head(), "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX: y\r\n\r\n");
    client.send(GET);
    server.head();
    server.send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
    assert_eq!(client.head(), "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n");
    client.send(GET);
    server.head();
    server.send("HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.head(), "HTTP/1.1 411 Length Required\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn a_body_without_a_length_can_be_given_one() {
    let upstream = Upstream::start();
    let proxy = Proxy::with(upstream.address, |c| c.take_in = Some(10));
    let mut client = proxy.client();
    let ask = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n";
    client.send(format!("{ask}3\r\nabc\r\n"));
    client.send("2\r\nde\r\n0\r\n\r\n");
    let mut server = upstream.accept();
    let host = upstream.address;
    let head = server.head();
    assert_eq!(
        head,
        format!("POST / HTTP/1.1\r\nHost: {host}\r\nX: y\r\ncontent-length: 5\r\n\r\n")
    );
    assert_eq!(server.exactly(5), b"abcde");
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    client.send(format!("{ask}b\r\nabcdefghijk\r\n0\r\n\r\n"));
    assert!(client.head().starts_with("HTTP/1.1 413 "));
}

#[test]
fn two_framings_at_once_cannot_smuggle() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n\
         6\r\nabcdef\r\n0\r\n\r\n",
    );
    let mut server = upstream.accept();
    let head = server.head().to_lowercase();
    assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"));
    assert_eq!(server.chunked(), b"abcdef");
    server
        .send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n");
    server.send("3\r\nabc\r\n0\r\n\r\n");
    let head = client.head().to_lowercase();
    assert!(head.contains("transfer-encoding: chunked") && !head.contains("content-length"));
    assert_eq!(client.chunked(), b"abc");
    // Two lengths, or a transfer coding that is none: refused, not guessed.
    for bad in ["Content-Length: 1\r\nContent-Length: 2", "Transfer-Encoding: x"] {
        let mut client = proxy.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: h\r\n{bad}\r\n\r\nab"));
        assert!(client.head().starts_with("HTTP/1.1 400 "), "{bad}");
    }
    upstream.no_more();
}

#[test]
fn a_request_may_come_byte_by_byte() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    for byte in post("/v1", "").bytes() {
        client.send([byte]);
        std::thread::yield_now();
    }
    assert!(upstream.accept().head().starts_with("POST /v1 "));
    // Half a word that could become either protocol, and then no more.
    let mut client = proxy.client();
    client.send("PR");
    client.silent(Duration::from_millis(50));
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(client.rest().0.is_empty());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send(format!("{GET}{GET}"));
    let mut server = upstream.accept();
    for n in ["1", "2"] {
        server.head();
        server.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{n}"));
        client.head();
        assert_eq!(client.exactly(1), n.as_bytes());
    }
}

#[test]
fn an_upgrade_becomes_a_raw_tunnel() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send(
        "GET /ws HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: x\r\n\r\n",
    );
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.contains("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n"));
    // The first bytes of the new protocol come with the head.
    server.send(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x01A",
    );
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert!(head.contains("Connection: Upgrade\r\nUpgrade: websocket\r\n"), "{head}");
    assert_eq!(client.exactly(2), b"\x01A");
    client.send(b"\x00\xff\r\n");
    assert_eq!(server.exactly(4), b"\x00\xff\r\n");
    // One side at a time can end.
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(server.rest(), (Vec::new(), Closed::Fin));
    server.send("bye");
    drop(server);
    assert_eq!(client.rest(), (b"bye".to_vec(), Closed::Fin));
}
