//! Event streams, who asked, slow sides, tunnels that break: traffic that naive proxies get wrong.

mod support;

use std::time::{Duration, Instant};
use support::{Closed, GET, IN_FLIGHT_MAX, LONG, Proxy, Upstream, Wire, post};

/// An event stream's head, and what the client gets of it.
fn stream_head(headers: &str) -> String {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    server.send(format!("HTTP/1.1 200 OK\r\n{headers}Transfer-Encoding: chunked\r\n\r\n"));
    client.head().to_lowercase()
}

#[test]
fn event_streams_are_marked_not_to_be_buffered() {
    let head = stream_head("Content-Type: text/event-stream; charset=utf-8\r\n");
    assert!(head.contains("x-accel-buffering: no\r\n"), "{head}");
    assert!(head.contains("cache-control: no-cache\r\n"), "{head}");
    // The upstream's own word stands, and nothing else is marked.
    let own = "X-Accel-Buffering: yes\r\nCache-Control: private\r\n";
    let head = stream_head(&format!("Content-Type: text/event-stream\r\n{own}"));
    assert!(head.contains(&own.to_lowercase()), "{head}");
    assert_eq!(head.matches("cache-control").count() + head.matches("x-accel").count(), 2);
    let head = stream_head("Content-Type: application/json\r\n");
    assert!(!head.contains("x-accel") && !head.contains("cache-control"), "{head}");
}

#[test]
fn a_silent_stream_gets_comments_between_events_alone() {
    const EVERY: Duration = Duration::from_millis(60);
    let upstream = Upstream::start();
    let proxy = Proxy::with(upstream.address, |c| c.keep_alive = Some(EVERY));
    let mut client = proxy.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    // Never before the upstream's head.
    client.silent(EVERY * 3);
    let kind = "Content-Type: text/event-stream\r\n";
    server.send(format!("HTTP/1.1 200 OK\r\n{kind}Transfer-Encoding: chunked\r\n\r\n"));
    client.head();
    let comment = b"3\r\n:\n\n\r\n";
    assert_eq!(client.exactly(8), comment);
    assert_eq!(client.exactly(8), comment);
    // Within an event: none, however long it takes.
    server.send("7\r\ndata: a\r\n");
    let got = client.until(b"data: a\r\n");
    assert!(got.ends_with(b"7\r\ndata: a\r\n"));
    client.silent(EVERY * 3);
    server.send("1\r\n\n\r\n");
    assert_eq!(client.exactly(6), b"1\r\n\n\r\n");
    client.silent(EVERY * 3);
    server.send("1\r\n\n\r\n");
    assert_eq!(client.exactly(6), b"1\r\n\n\r\n");
    assert_eq!(client.exactly(8), comment);
    server.send("0\r\n\r\n");
    client.until(b"0\r\n\r\n");
    // A body with a length has no room for one.
    client.send(GET);
    server.head();
    server.send(format!("HTTP/1.1 200 OK\r\n{kind}Content-Length: 9\r\n\r\n"));
    client.head();
    client.silent(EVERY * 3);
    server.send("data: b\n\n");
    assert_eq!(client.exactly(9), b"data: b\n\n");
}

#[test]
fn who_asked_is_told_where_it_is_wanted() {
    let upstream = Upstream::start();
    let ask =
        "GET / HTTP/1.1\r\nHost: desk\r\nX-Forwarded-For: 1.2.3.4\r\nOrigin: http://page\r\n\r\n";
    for (wanted, added) in [
        (
            true,
            "X-Forwarded-For: 1.2.3.4, 127.0.0.1\r\nOrigin: http://page\r\nx-forwarded-host: desk\r\nx-forwarded-proto: http\r\n",
        ),
        (false, "X-Forwarded-For: 1.2.3.4\r\nOrigin: http://page\r\n"),
    ] {
        let proxy = Proxy::with(upstream.address, |c| c.x_forwarded = wanted);
        let mut client = proxy.client();
        client.send(ask);
        let host = upstream.address;
        let expected = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{added}\r\n");
        assert_eq!(upstream.accept().head(), expected);
    }
}

#[test]
fn a_slow_reader_holds_the_upstream_back() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send(post("/", "{}"));
    let mut server = upstream.accept();
    server.head();
    server.exactly(2);
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    client.head();
    let taken = server.push_until_stuck();
    assert!(taken < IN_FLIGHT_MAX, "{taken} bytes for nobody");
}

#[test]
fn a_slow_upstream_holds_the_client_back() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n");
    let mut server = upstream.accept();
    server.head();
    let taken = client.push_until_stuck();
    assert!(taken < IN_FLIGHT_MAX, "{taken} bytes for nobody");
}

#[test]
fn a_client_that_leaves_while_the_upstream_is_waited_for_is_forgotten() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::with(free, |c| c.limits.upstream_wait = LONG);
    let mut client = proxy.client();
    client.send(post("/leaves", "{}"));
    proxy.metric("everwarm_requests_in_flight 1");
    drop(client);
    proxy.metric("everwarm_requests_in_flight 0");
    let upstream = Upstream::on(free);
    let mut client = proxy.client();
    client.send(post("/stays", "{}"));
    assert!(upstream.accept().head().starts_with("POST /stays "));
    upstream.no_more();
}

#[test]
fn an_idle_proxy_asks_its_upstream_nothing() {
    let upstream = Upstream::start();
    let proxy = Proxy::with(upstream.address, |c| c.warmer.device = Some("sim:m2".to_owned()));
    let _probes: Vec<Wire> = (0..5).map(|_| proxy.client()).collect();
    assert_eq!(proxy.ask("POST /hint", "").0, "HTTP/1.1 202 Accepted");
    let began = Instant::now();
    while !proxy.ask("GET /status", "").1.contains("gpu_start_ns") {
        assert!(began.elapsed() < LONG, "never warmed");
    }
    proxy.metric("everwarm_hints_total{source=\"other\"} 1");
    // It has warmed, by no request, and a connection is none.
    upstream.no_more();
    let (_, text) = proxy.ask("GET /metrics", "");
    assert!(!text.contains("everwarm_requests_total{"), "{text}");
}

/// A tunnel through `proxy`, from end to end.
fn tunnel(proxy: &Proxy, upstream: &Upstream) -> (Wire, Wire) {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    let mut client = proxy.client();
    client.send(format!("GET /ws HTTP/1.1\r\nHost: h\r\n{upgrade}"));
    let mut server = upstream.accept();
    server.head();
    server.send(format!("HTTP/1.1 101 Switching Protocols\r\n{upgrade}"));
    client.head();
    client.send("to");
    assert_eq!(server.exactly(2), b"to");
    server.send("fro");
    assert_eq!(client.exactly(3), b"fro");
    (client, server)
}

#[test]
fn a_tunnel_that_breaks_breaks_on_both_sides_and_is_counted_once() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    // The upstream breaks it: no proper end for the client.
    let (mut client, server) = tunnel(&proxy, &upstream);
    proxy.metric("everwarm_requests_in_flight 1");
    server.reset();
    assert_eq!(client.rest(), (Vec::new(), Closed::Reset));
    proxy.metric("everwarm_requests_total{outcome=\"upstream_cut\"} 1");
    // The client does.
    let (client, mut server) = tunnel(&proxy, &upstream);
    client.reset();
    let began = Instant::now();
    assert!(server.rest().0.is_empty());
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    proxy.metric("everwarm_requests_total{outcome=\"client_abort\"} 1");
    // Each side ends for itself.
    let (mut client, mut server) = tunnel(&proxy, &upstream);
    server.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), (Vec::new(), Closed::Fin));
    client.send("last");
    assert_eq!(server.exactly(4), b"last");
    drop(client);
    assert_eq!(server.rest(), (Vec::new(), Closed::Fin));
    proxy.metric("everwarm_requests_total{outcome=\"complete\"} 1");
    proxy.metric("everwarm_requests_in_flight 0");
}

/// Every test that the page names is one.
#[test]
fn the_page_names_tests_that_exist() {
    let page = include_str!("../../../docs/proxy.md");
    let table = page.split("## What other proxies got wrong").nth(1).unwrap();
    let sources = [
        include_str!("endings.rs"),
        include_str!("fidelity.rs"),
        include_str!("http2.rs"),
        include_str!("traffic.rs"),
        include_str!("../../real-servers/tests/llama.rs"),
        include_str!("../../real-servers/tests/mlx.rs"),
        include_str!("../../stream/tests/endings.rs"),
        include_str!("../../stream/tests/servers.rs"),
    ];
    let named = table.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() > 2);
    let named: Vec<&str> = named.collect();
    assert!(named.len() > 30, "{named:?}");
    for name in named {
        let is_there = sources.iter().any(|s| s.contains(&format!("fn {name}(")));
        assert!(is_there, "docs/proxy.md names `{name}`, which is no test");
    }
    let rows = table.lines().filter(|l| l.starts_with("| ") && l.as_bytes()[2].is_ascii_digit());
    assert_eq!(rows.count(), 25);
}
