//! Clients that speak HTTP/2 in clear text, in front of an upstream that speaks HTTP/1.1.

mod support;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Closed, LONG, Proxy, Upstream};
use tokio::net::TcpStream;

/// One connection to `proxy`, and its socket a second time: hyper runs it in a task of its own.
async fn connect<B>(proxy: std::net::SocketAddr) -> (SendRequest<B>, std::net::TcpStream)
where
    B: Body<Data = Bytes, Error = Infallible> + Send + Unpin + 'static,
{
    let socket = std::net::TcpStream::connect(proxy).unwrap();
    socket.set_nonblocking(true).unwrap();
    let stream = TcpStream::from_std(socket.try_clone().unwrap()).unwrap();
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(async move {
        let _ = connection.await;
    });
    (sender, socket)
}

fn get(proxy: &Proxy, path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://{}{path}", proxy.address)).body(Empty::new()).unwrap()
}

/// The next piece of a response.
async fn piece(response: &mut Response<Incoming>) -> Bytes {
    let frame = tokio::time::timeout(LONG, response.frame()).await.expect("something comes");
    frame.expect("no end").expect("no cut").into_data().expect("data")
}

#[test]
fn heads_pass_in_the_form_of_each_side() {
    let upstream = Upstream::start();
    let proxy = Proxy::with(upstream.address, |c| c.keep_host = true);
    let mut request = get(&proxy, "/v1/models?a=b%20c");
    for cookie in ["a=1", "b=2"] {
        request.headers_mut().append("cookie", HeaderValue::from_static(cookie));
    }
    let address = proxy.address;
    let asked = proxy.runtime.spawn(async move {
        let (mut sender, _socket) = connect(address).await;
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        (head, body.collect().await.unwrap().to_bytes())
    });
    let mut server = upstream.accept();
    // The authority is the host, and the cookies are one field again.
    assert_eq!(
        server.head(),
        format!("GET /v1/models?a=b%20c HTTP/1.1\r\nhost: {address}\r\ncookie: a=1; b=2\r\n\r\n")
    );
    server.send(
        "HTTP/1.1 404 Not There\r\nX-A: b\r\nKeep-Alive: timeout=5\r\nConnection: X-Hop\r\nX-Hop: y\r\n\
         Content-Length: 2\r\n\r\nno",
    );
    let (head, body) = proxy.runtime.block_on(asked).unwrap();
    assert_eq!((head.status.as_u16(), body.as_ref()), (404, b"no".as_ref()));
    let names: Vec<&str> = head.headers.keys().map(|n| n.as_str()).collect();
    assert_eq!(names, ["x-a", "content-length"]);
}

#[test]
fn streams_and_trailers_pass_both_ways() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let (address, url) = (proxy.address, format!("http://{}/up", proxy.address));
    let (feed, pieces) = tokio::sync::mpsc::channel(1);
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let asked = proxy.runtime.spawn(async move {
        let pieces = fed_by(pieces);
        let (mut sender, _socket) = connect(address).await;
        let request = Request::post(url).body(pieces).unwrap();
        let mut response = sender.send_request(request).await.unwrap();
        tell.send(piece(&mut response).await).await.unwrap();
        let rest = response.collect().await.unwrap();
        (rest.trailers().cloned(), rest.to_bytes())
    });
    feed.blocking_send(Frame::data(Bytes::from_static(b"abc"))).unwrap();
    let mut server = upstream.accept();
    let head = server.head();
    assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
    assert_eq!(server.exactly(8), b"3\r\nabc\r\n");
    feed.blocking_send(Frame::data(Bytes::from_static(b"d"))).unwrap();
    assert_eq!(server.exactly(6), b"1\r\nd\r\n");
    // The answer begins while the question goes on.
    server
        .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nok\r\n");
    assert_eq!(told.blocking_recv().unwrap(), "ok");
    drop(feed);
    assert_eq!(server.exactly(5), b"0\r\n\r\n");
    server.send("1\r\n!\r\n0\r\nX-Sum: 42\r\n\r\n");
    let (trailers, rest) = proxy.runtime.block_on(asked).unwrap();
    assert_eq!(rest.as_ref(), b"!");
    let mut expected = HeaderMap::new();
    expected.insert("x-sum", HeaderValue::from_static("42"));
    assert_eq!(trailers, Some(expected));
    proxy.metric("everwarm_requests_total{outcome=\"complete\"} 1");
}

/// A body that is fed by hand.
fn fed_by(
    mut pieces: tokio::sync::mpsc::Receiver<Frame<Bytes>>,
) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
    StreamBody::new(PollFn(move |cx: &mut std::task::Context<'_>| {
        pieces.poll_recv(cx).map(|frame| frame.map(Ok))
    }))
}

/// A stream out of a poll function.
struct PollFn<F>(F);

impl<F, T> futures_core::Stream for PollFn<F>
where
    F: FnMut(&mut std::task::Context<'_>) -> std::task::Poll<Option<T>> + Unpin,
{
    type Item = T;
    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T>> {
        (self.get_mut().0)(cx)
    }
}

#[test]
fn a_stream_that_is_reset_is_gone_upstream_and_its_siblings_stay() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let (mut sender, socket) = proxy.runtime.block_on(connect(proxy.address));
    for begun in [false, true] {
        let asked = proxy.runtime.spawn(sender.send_request(get(&proxy, "/leaves")));
        let mut server = upstream.accept();
        server.head();
        if begun {
            server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
            let mut response = proxy.runtime.block_on(asked).unwrap().unwrap();
            assert_eq!(proxy.runtime.block_on(piece(&mut response)), "a");
            // Not to the end: RST_STREAM.
            drop(response);
        } else {
            asked.abort();
        }
        let began = Instant::now();
        let (rest, _) = server.rest();
        assert!(rest.is_empty());
        assert!(began.elapsed() < Duration::from_millis(200), "{begun}: {:?}", began.elapsed());
    }
    proxy.metric("everwarm_requests_total{outcome=\"client_abort\"} 2");
    // The connection goes on, and takes what is left with it when it ends.
    let asked = proxy.runtime.spawn(sender.send_request(get(&proxy, "/stays")));
    let mut server = upstream.accept();
    assert!(server.head().starts_with("GET /stays "));
    socket.shutdown(std::net::Shutdown::Both).unwrap();
    let began = Instant::now();
    assert_eq!(server.rest(), (Vec::new(), Closed::Fin));
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    assert!(proxy.runtime.block_on(asked).unwrap().is_err());
    proxy.metric("everwarm_connections_open 0");
    proxy.metric("everwarm_requests_in_flight 0");
}

#[test]
fn a_cut_is_a_reset_of_its_stream() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let (mut sender, _socket) = proxy.runtime.block_on(connect(proxy.address));
    for response in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
    ] {
        let asked = proxy.runtime.spawn(sender.send_request(get(&proxy, "/")));
        let mut server = upstream.accept();
        server.head();
        server.send(response);
        let mut got = proxy.runtime.block_on(asked).unwrap().unwrap();
        assert_eq!(proxy.runtime.block_on(piece(&mut got)), "abc");
        drop(server);
        assert!(proxy.runtime.block_on(got.collect()).is_err(), "{response:?}");
    }
    proxy.metric("everwarm_requests_total{outcome=\"upstream_cut\"} 2");
}

#[test]
fn a_slow_reader_holds_its_own_stream_back_alone() {
    let upstream = Upstream::start();
    let proxy = Proxy::before(upstream.address);
    let (mut sender, _socket) = proxy.runtime.block_on(connect(proxy.address));
    let asked = proxy.runtime.spawn(sender.send_request(get(&proxy, "/huge")));
    let mut server = upstream.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    let _unread = proxy.runtime.block_on(asked).unwrap().unwrap();
    let taken = server.push_until_stuck();
    assert!(taken < support::IN_FLIGHT_MAX, "{taken} bytes for nobody");
    // Another stream of the same connection passes it.
    let asked = proxy.runtime.spawn(sender.send_request(get(&proxy, "/small")));
    let mut second = upstream.accept();
    second.head();
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let mut got = proxy.runtime.block_on(asked).unwrap().unwrap();
    assert_eq!(proxy.runtime.block_on(piece(&mut got)), "ok");
}

#[test]
fn what_the_proxy_says_itself_comes_in_http2_too() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::before(free);
    let (mut sender, _socket) = proxy.runtime.block_on(connect(proxy.address));
    let body = Full::new(Bytes::from_static(b"{}"));
    let request = Request::post(format!("http://{}/", proxy.address)).body(body).unwrap();
    let got = proxy.runtime.block_on(sender.send_request(request)).unwrap();
    assert_eq!(got.status().as_u16(), 502);
    let body = proxy.runtime.block_on(got.collect()).unwrap().to_bytes();
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(json["error"]["type"], "upstream_connect");
}

#[test]
fn curl_speaks_it_and_asks_to_change_to_it() {
    // With the second curl asks in HTTP/1.1 whether to go on in HTTP/2, and is not taken up on it.
    for (flag, version) in [("--http2-prior-knowledge", "2"), ("--http2", "1.1")] {
        let upstream = Upstream::start();
        let proxy = Proxy::before(upstream.address);
        let url = format!("http://{}/v1/chat/completions", proxy.address);
        let words = ["-sS", flag, "-m", "10", "-d", "{}", "-w", " %{http_version} %{http_code}"];
        let mut curl = Command::new("curl");
        curl.args(words).arg(url).stdout(std::process::Stdio::piped());
        let curl = curl.spawn().expect("curl, which `cargo xtask setup` installs");
        let mut server = upstream.accept();
        let head = server.head().to_lowercase();
        assert!(!head.contains("upgrade") && !head.contains("http2-settings"), "{head}");
        assert!(head.contains("content-length: 2\r\n"), "{head}");
        assert_eq!(server.exactly(2), b"{}");
        server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        let output = curl.wait_with_output().unwrap();
        assert_eq!(support::show(&output.stdout), format!("\"ok {version} 200\""));
    }
}
