//! What the proxy answers itself, because passing it on could only do harm.

mod support;

use everwarm_proxy::spawn;
use support::{GET, LONG, Proxy, Upstream, config};

fn free() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn an_upstream_that_leads_back_is_told_apart_from_a_slow_one() {
    let own = free();
    // A way of writing 127.0.0.1 that only the resolver understands.
    let url = format!("http://127.1:{}", own.port());
    let proxy = Proxy::with(own, |c| {
        c.listen = own;
        c.upstream = url.parse().unwrap();
    });
    let mut client = proxy.client();
    client.stream.set_read_timeout(Some(LONG)).unwrap();
    for _ in 0..3 {
        client.send(GET);
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 508 Loop Detected\r\n"), "{head}");
        let body = String::from_utf8(client.until(b"}}\n")).unwrap();
        assert!(body.contains(&url) && body.contains("leads back to this proxy"), "{body}");
    }
    proxy.metric("everwarm_upstream_failures_total{kind=\"loop\"} 3");
    proxy.metric("everwarm_requests_in_flight 0");
}

#[test]
fn an_upstream_that_is_plainly_the_proxy_is_refused_at_the_start() {
    let proxy = Proxy::before(free());
    for host in ["127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]", "LOCALHOST"] {
        let own = free();
        let mut config = config(own);
        config.listen = own;
        config.upstream = format!("http://{host}:{}", own.port()).parse().unwrap();
        let error = proxy.runtime.block_on(spawn(config)).err().unwrap().to_string();
        assert!(error.contains("the proxy itself") && error.contains("http://"), "{error}");
    }
}

#[test]
fn a_switch_of_protocols_that_nobody_asked_for_is_not_passed_on() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let mut client = proxy.client();
    client.send(GET);
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{head}");
    assert!(String::from_utf8(client.until(b"}}\n")).unwrap().contains("nobody asked for"));
}
