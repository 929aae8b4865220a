//! A proxy in front of a real server with the relay between, and what is asked of any such three.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use everwarm_real_servers::{
    Client, Proxy, Recorded, Relay, Request, Response, Server, asked_as_given, delivered_as_sent,
    gone_within, python, reset, send,
};

/// The longest that a client which left may still be there for the server.
pub const GONE: Duration = Duration::from_millis(100);

/// Proxy, relay and server.
pub struct Behind {
    /// The proxy.
    pub proxy: Proxy,
    /// The relay between proxy and server.
    pub relay: Relay,
    server: Option<Server>,
}

impl Behind {
    /// Puts a proxy that warms nothing before a server.
    pub fn new(server: Server, flags: &str) -> Self {
        Self::with(server, &format!("--admin off --device none {flags}"))
    }

    /// Puts a proxy with these flags before a server.
    pub fn with(server: Server, flags: &str) -> Self {
        let relay = Relay::start(server.address);
        let proxy = Proxy::start(relay.address(), flags).expect("the proxy starts");
        Self { proxy, relay, server: Some(server) }
    }

    /// Kills the server.
    pub fn kill_server(&mut self) {
        drop(self.server.take());
    }

    /// Sends a request through the proxy, and holds the answer against what the server sent.
    pub fn passes_unchanged(&self, request: &Request) -> (Response, Response) {
        let about = format!("{} {}", request.method, request.path);
        let mark = self.relay.mark();
        let got = send(self.proxy.address, request);
        let got = got.unwrap_or_else(|error| panic!("{about}: {error:#}"));
        let carried = self.relay.since(&mark).unwrap_or_else(|e| panic!("{about}: {e:#}"));
        let sent = carried.response(&request.method);
        let sent = sent.unwrap_or_else(|error| panic!("{about}: the server: {error:#}"));
        let same = asked_as_given(request, &carried).and_then(|()| delivered_as_sent(&got, &sent));
        if let Err(difference) = same {
            panic!("{about}: {difference:#}");
        }
        (got, sent)
    }

    /// Sends a request, leaves after `bytes` of the body or before anything came, and wants the
    /// server's side gone in time, in both directions.
    pub fn leaves(&self, request: &Request, bytes: Option<usize>, by_reset: bool) {
        let about = format!("{} after {bytes:?}, by reset: {by_reset}", request.path);
        let mark = self.relay.mark();
        let mut client = Client::connect(self.proxy.address).expect("the proxy listens");
        client.send(request).expect("sent");
        if let Some(bytes) = bytes {
            let got =
                client.response_until("POST", |body| body.len() >= bytes).expect("it streams");
            assert!(got.broken.is_none(), "{about}: {:?}", got.broken);
        }
        self.connection_with(&mark, &request.body);
        // Some way into the prefill; and a request that met a connection's end is on another by now.
        thread::sleep(Duration::from_millis(120));
        let connection = self.connection_with(&mark, &request.body);
        let left = if by_reset { reset(client) } else { client.leave() };
        if let Err(error) = gone_within(&self.relay, connection, left, GONE) {
            panic!("{about}: {error:#}");
        }
    }

    /// The live connection to the server that has carried this body since `mark`.
    fn connection_with(&self, mark: &everwarm_real_servers::Mark, body: &[u8]) -> usize {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let carried = self.relay.all_since(mark);
            let live = |r: &&Recorded| r.sent.ends_with(body) && !r.server_ended;
            if let Some(recorded) = carried.iter().find(live) {
                return recorded.connection;
            }
            assert!(Instant::now() < deadline, "the request never reached the server");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The body of a chat request for so many tokens.
pub fn ask(tokens: u32, stream: bool) -> String {
    format!(
        "{{\"messages\": [{{\"role\": \"user\", \"content\": \"river maple amber\"}}], \
         \"max_tokens\": {tokens}, \"temperature\": 0, \"stream\": {stream}}}"
    )
}

/// The openai Python client asks whole and streamed, and gets the same words.
pub fn openai(behind: &Behind) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/openai_client.py");
    let output = Command::new(python().expect("a venv"))
        .args([script, &format!("http://{}/v1", behind.proxy.address)])
        .output()
        .expect("Python starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the openai client: {said}");
    let got: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let pieces: Vec<&str> =
        got["pieces"].as_array().expect("pieces").iter().filter_map(|p| p.as_str()).collect();
    assert!(pieces.len() > 8, "the stream came in {} pieces: {got}", pieces.len());
    assert_eq!(got["whole"], pieces.concat(), "greedy answers are alike");
    assert!(!got["models"].as_array().expect("models").is_empty());
}

/// curl gets a stream and a whole answer as the server sent them, by HTTP/1.1 and 1.0.
pub fn curl(behind: &Behind) {
    for (version, stream) in
        [("--http1.1", false), ("--http1.1", true), ("--http1.0", false), ("--http1.0", true)]
    {
        let mark = behind.relay.mark();
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--no-buffer", version])
            .args(["--header", "Content-Type: application/json", "--data", &ask(8, stream)])
            .arg(format!("http://{}/v1/chat/completions", behind.proxy.address))
            .output()
            .expect("curl starts");
        let about = format!("curl {version}, stream: {stream}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{about}: {said}");
        let sent = behind.relay.since(&mark).and_then(|recorded| recorded.response("POST"));
        let sent = sent.unwrap_or_else(|error| panic!("{about}: the server: {error:#}"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), sent.text(), "{about}");
    }
}
