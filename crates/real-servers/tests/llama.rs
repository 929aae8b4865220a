//! `everwarm proxy` in front of a real llama-server.

mod common;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use common::{Behind, GONE, ask, curl, openai};
use everwarm_real_servers::{
    Client, Proxy, Request, delivered_as_sent, free_address, gone_within, lateness, llama_server,
    reset, send,
};

/// A llama-server with the tiny model, the relay and the proxy before it.
fn tiny() -> Behind {
    let server = llama_server(free_address(), "tiny", 2).and_then(|server| server.ready());
    Behind::new(server.expect("llama-server starts"), "")
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_answers_pass_unchanged() {
    let behind = tiny();
    let origin = ("Origin", "http://desk.test");
    let asked = [
        Request::new("GET", "/health"),
        Request::new("HEAD", "/health"),
        Request::new("GET", "/v1/models"),
        Request::new("GET", "/props"),
        Request::new("GET", "/slots"),
        Request::new("GET", "/metrics"),
        Request::new("GET", "/no/such/path?a=b%20c&d"),
        Request::new("DELETE", "/v1/models"),
        Request::new("OPTIONS", "/v1/chat/completions")
            .header(origin.0, origin.1)
            .header("Access-Control-Request-Method", "POST"),
        Request::post("/v1/chat/completions", &ask(8, false)),
        Request::post("/v1/chat/completions", &ask(8, false)).in_chunks(),
        Request::post("/v1/chat/completions", &ask(8, true)).in_chunks(),
        Request::post("/v1/chat/completions", "{\"messages\": [").header(origin.0, origin.1),
        Request::post("/v1/chat/completions", ""),
        Request::post("/v1/chat/completions", "{\"stream\": true}"),
        // More than the context holds, and more than any buffer on the way.
        Request::post(
            "/v1/completions",
            &format!("{{\"prompt\": \"{}\"}}", " river".repeat(500_000)),
        ),
        Request::post("/v1/embeddings", "{\"input\": \"river\"}"),
        Request::post("/tokenize", "{\"content\": \" river maple\"}"),
        Request { version: "1.0", ..Request::post("/v1/chat/completions", &ask(8, false)) },
    ];
    for request in asked {
        behind.passes_unchanged(&request);
    }
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_streams_pass_unchanged_and_at_once() {
    let behind = Behind::new(slow(1), "");
    let prompt = "{\"prompt\": \" river maple\", \"n_predict\": 100, \"stream\": true}";
    let message = "{\"model\": \"tiny\", \"max_tokens\": 100, \"stream\": true, \
                   \"messages\": [{\"role\": \"user\", \"content\": \"river\"}]}";
    let asked = [
        ("/v1/chat/completions", ask(100, true).as_str()),
        ("/completion", prompt),
        ("/v1/messages", message),
    ]
    .map(|(path, body)| Request::post(path, body));
    for request in asked {
        let (got, sent) = behind.passes_unchanged(&request);
        let lasted = sent.arrivals.last().expect("a body").0 - sent.head_at;
        assert!(lasted > Duration::from_millis(150), "too short to tell: {lasted:?}");
        let late = lateness(&got, &sent).expect("all came");
        assert!(late < Duration::from_millis(100), "{}: {late:?} late", request.path);
    }
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_serves_the_openai_client_and_curl() {
    let behind = tiny();
    openai(&behind);
    curl(&behind);
}

/// The slow model: some 280 tokens/s of prefill, 40 of decode.
fn slow(slots: u32) -> everwarm_real_servers::Server {
    let server = llama_server(free_address(), "slow", slots).and_then(|server| server.ready());
    server.expect("llama-server starts")
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_client_that_leaves_is_gone_upstream() {
    let behind = Behind::new(slow(1), "");
    let long = " river".repeat(900);
    let whole = format!("{{\"prompt\": \"{long}\", \"max_tokens\": 8, \"cache_prompt\": false}}");
    let mid_stream = Request::post("/v1/chat/completions", &ask(400, true));
    for by_reset in [false, true] {
        behind.leaves(&mid_stream, Some(400), by_reset);
        // Not streamed: nothing comes before the end.
        behind.leaves(&Request::post("/v1/completions", &whole), None, by_reset);
    }
    // Streamed, but queued behind another request, so that not even a head has come.
    let mut first = Client::connect(behind.proxy.address).expect("the proxy listens");
    first.send(&mid_stream).expect("sent");
    first.response_until("POST", |body| !body.is_empty()).expect("it streams");
    behind.leaves(&Request::post("/v1/chat/completions", &ask(4, true)), None, false);
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_closing_idle_and_used_up_connections_is_never_seen() {
    let behind = tiny();
    let mut client = Client::connect(behind.proxy.address).expect("the proxy listens");
    let ask = Request::post("/v1/completions", "{\"prompt\": \" river\", \"max_tokens\": 1}");
    // The server closes after its 100th answer on a connection.
    for round in 0..230 {
        let request = if round % 10 == 0 { &ask } else { &Request::new("GET", "/health") };
        let got = client.exchange(request).unwrap_or_else(|e| panic!("request {round}: {e:#}"));
        assert_eq!(got.head.status(), 200, "request {round}: {}", got.text());
        assert!(got.broken.is_none(), "request {round}: {:?}", got.broken);
    }
    assert!(behind.relay.connections() >= 3, "the server was asked on too few connections");
    // And after 5 s without a request: each client comes back a little earlier or later than that.
    let mut idle: Vec<(Client, u64)> = (4940..5080)
        .step_by(20)
        .map(|ms| (Client::connect(behind.proxy.address).expect("the proxy listens"), ms))
        .collect();
    for (client, _) in &mut idle {
        assert_eq!(client.exchange(&ask).expect("an answer").head.status(), 200);
    }
    let begun = Instant::now();
    for (mut client, ms) in idle {
        thread::sleep(
            (begun + Duration::from_millis(ms)).saturating_duration_since(Instant::now()),
        );
        let got = client.exchange(&ask).unwrap_or_else(|e| panic!("after {ms} ms: {e:#}"));
        assert_eq!(got.head.status(), 200, "after {ms} ms: {}", got.text());
    }
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_down_is_a_clear_502_and_started_it_is_used_again() {
    let address = free_address();
    let proxy = Proxy::start(address, "--admin off --device none").expect("the proxy starts");
    let request = Request::post("/v1/chat/completions", &ask(4, false));
    for _ in 0..2 {
        is_down(&proxy, address, &request);
        let server = llama_server(address, "tiny", 1).and_then(|server| server.ready());
        let server = server.expect("llama-server starts");
        let got = send(proxy.address, &request).expect("an answer");
        assert_eq!(got.head.status(), 200, "{}", got.text());
        drop(server);
    }
    is_down(&proxy, address, &request);
}

fn is_down(proxy: &Proxy, server: SocketAddr, request: &Request) {
    let got = send(proxy.address, request).expect("an answer");
    assert_eq!(got.head.status(), 502);
    let text = got.text();
    assert!(text.contains(&server.to_string()), "names no server: {text}");
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_that_dies_in_a_stream_is_no_proper_end() {
    let mut behind = Behind::new(slow(1), "");
    let mut client = Client::connect(behind.proxy.address).expect("the proxy listens");
    client.send(&Request::post("/v1/chat/completions", &ask(400, true))).expect("sent");
    client.response_until("POST", |body| body.len() > 400).expect("it streams");
    let begun = Instant::now();
    behind.kill_server();
    let mut rest = Vec::new();
    // A chunked body that has ended properly ends with an empty chunk.
    let ended = client.rest(&mut rest).is_ok() && rest.ends_with(b"0\r\n\r\n");
    assert!(!ended, "the client takes half an answer for a whole one");
    assert!(begun.elapsed() < Duration::from_secs(2), "told after {:?}", begun.elapsed());
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_says_continue_before_a_body() {
    let behind = tiny();
    let request = Request::post("/v1/chat/completions", &ask(4, false));
    let request = request.header("Expect", "100-continue");
    let bytes = request.bytes("proxy");
    let (head, body) = bytes.split_at(bytes.len() - request.body.len());
    let mark = behind.relay.mark();
    let mut client = Client::connect(behind.proxy.address).expect("the proxy listens");
    client.send_raw(head).expect("sent");
    let said = client.interim().expect("a word before the body");
    assert_eq!(said.status(), 100, "{}", said.start);
    client.send_raw(body).expect("sent");
    let got = client.response("POST").expect("an answer");
    let sent = behind.relay.since(&mark).and_then(|recorded| recorded.response("POST"));
    delivered_as_sent(&got, &sent.expect("a recorded answer")).expect("the same on both sides");
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_that_is_loading_says_so_itself() {
    // The proxy first, so that no moment of loading is missed; the relay lets us compare.
    let address = free_address();
    let server = llama_server(address, "slow", 1).expect("llama-server starts");
    let behind = Behind::new(server, "");
    let request = Request::new("GET", "/v1/models");
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut loading = 0;
    loop {
        assert!(Instant::now() < deadline, "it never got ready");
        let mark = behind.relay.mark();
        let got = send(behind.proxy.address, &request);
        let Ok(sent) = behind.relay.since(&mark).and_then(|recorded| recorded.response("GET"))
        else {
            // Nobody listens yet.
            continue;
        };
        let got = got.expect("an answer");
        delivered_as_sent(&got, &sent).expect("the same on both sides");
        match got.head.status() {
            503 => loading += 1,
            200 => break,
            other => panic!("{other}: {}", got.text()),
        }
    }
    assert!(loading > 0, "it loaded too fast to be seen");
}

#[test]
#[ignore = "needs llama-server: cargo xtask test"]
fn llama_is_served_while_the_proxy_warms() {
    let server = llama_server(free_address(), "tiny", 2).and_then(|server| server.ready());
    let behind =
        Behind::with(server.expect("llama-server starts"), "--device sim:m2 --admin 127.0.0.1:0");
    for stream in [false, true] {
        behind.passes_unchanged(&Request::post("/v1/chat/completions", &ask(8, stream)));
    }
    let mut client = Client::connect(behind.proxy.address).expect("the proxy listens");
    let mark = behind.relay.mark();
    client.send(&Request::post("/v1/chat/completions", &ask(4000, true))).expect("sent");
    client.response_until("POST", |body| body.len() > 400).expect("it streams");
    let connection = behind.relay.since(&mark).expect("one connection").connection;
    gone_within(&behind.relay, connection, reset(client), GONE).expect("gone");
}
