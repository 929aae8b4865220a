//! The measuring HTTP client.
//!
//! HTTP/1.1 over a fresh connection a request, or over one that is kept. A request is one future
//! that ends with the answer's last byte; its connection is driven beside it.

use crate::stamp::{LastRead, stamped};
use crate::target::Target;
use bytes::Bytes;
use everwarm_gpu::Monotonic;
use everwarm_stream::{End, Framing, Meter};
use everwarm_units::{Instant, Span};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Bytes of an error's body that are shown.
const EXCERPT: usize = 300;

/// An answer that had content.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// When the client began to connect or, on a kept connection, to send.
    pub sent: Monotonic,
    /// From there to the connection being there; 0 on a kept one.
    pub connect: Span,
    /// From there to the first non-empty content.
    pub ttft: Span,
    /// From there to the end of the answer.
    pub total: Span,
    /// Tokens of the prompt, by the server's count.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, by the server's count.
    pub completion_tokens: Option<u64>,
    /// The server's `timings`.
    pub timings: Option<serde_json::Value>,
}

impl Reply {
    /// A number of the server's `timings`.
    pub(crate) fn timing(&self, name: &str) -> Option<f64> {
        self.timings.as_ref()?.get(name)?.as_f64()
    }
}

/// Sends requests to one place.
pub(crate) struct Client {
    target: Target,
    keep_alive: bool,
    timeout: Duration,
    authorization: Option<String>,
    kept: Option<Connection>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    last_read: LastRead,
}

impl Client {
    pub(crate) fn new(
        target: Target,
        keep_alive: bool,
        timeout: Span,
        api_key: Option<&str>,
    ) -> Self {
        let authorization = api_key.map(|key| format!("Bearer {key}"));
        Client { target, keep_alive, timeout: timeout.into(), authorization, kept: None }
    }

    /// One streamed request, from connecting to its last byte.
    ///
    /// # Errors
    /// What went wrong, with the address, in words for a user.
    pub(crate) async fn ask(&mut self, body: String) -> Result<Reply, String> {
        let timeout = self.timeout;
        let asked = tokio::time::timeout(timeout, self.ask_patiently(body)).await;
        let late = || format!("{}: no whole answer within {}", self.target, Span::from(timeout));
        asked.unwrap_or_else(|_| Err(late()))
    }

    async fn ask_patiently(&mut self, body: String) -> Result<Reply, String> {
        let kept = self.kept.take().filter(|kept| !kept.sender.is_closed());
        let sent = Monotonic::now();
        let mut connection = match kept {
            Some(kept) => kept,
            None => connect(&self.target).await?,
        };
        let connect = Monotonic::now().since(sent);
        let mut request = request(Method::POST, &self.target, body.into());
        if let Some(key) = &self.authorization {
            let value = key.parse().map_err(|_| "the API key has characters that no header can")?;
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", self.target);
        connection.sender.ready().await.map_err(|e| failed(&e))?;
        let response = connection.sender.send_request(request).await.map_err(|e| failed(&e))?;
        let (head, mut body) = response.into_parts();
        if head.status != StatusCode::OK {
            return Err(refusal(&self.target, Method::POST, head.status, body).await);
        }
        let text = |name| head.headers.get(name).and_then(|v: &http::HeaderValue| v.to_str().ok());
        let framing = Framing::of(text(header::CONTENT_TYPE), text(header::CONTENT_ENCODING));
        let mut meter = Meter::new(Instant::ZERO, framing);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| failed(&format!("the answer broke off ({e})")))?;
            if let Some(bytes) = frame.data_ref() {
                meter.on_bytes(connection.last_read.at().on_base(sent), bytes);
            }
        }
        let ended = Monotonic::now();
        meter.on_end(ended.on_base(sent), End::Complete);
        if self.keep_alive {
            self.kept = Some(connection);
        }
        self.reply(&meter, sent, connect, ended.since(sent))
    }

    fn reply(
        &self,
        meter: &Meter,
        sent: Monotonic,
        connect: Span,
        total: Span,
    ) -> Result<Reply, String> {
        if let Some(error) = meter.error() {
            return Err(format!("{}: the server's error: {error}", self.target));
        }
        let Some(ttft) = meter.ttft() else {
            let finish =
                meter.finish_reason().map_or(String::new(), |f| format!(", ended by `{f}`"));
            return Err(format!(
                "{}: the answer has no content (status 200{finish}); is this a completions API?",
                self.target
            ));
        };
        Ok(Reply {
            sent,
            connect,
            ttft,
            total,
            prompt_tokens: meter.prompt_tokens(),
            completion_tokens: meter.completion_tokens(),
            timings: meter.timings().cloned(),
        })
    }
}

/// One plain exchange on a connection of its own: the body of a successful answer.
///
/// # Errors
/// As for [`Client::ask`].
pub(crate) async fn exchange(
    method: Method,
    target: &Target,
    body: String,
    timeout: Span,
) -> Result<Bytes, String> {
    let exchanged = async {
        let mut connection = connect(target).await?;
        let failed = |error: hyper::Error| format!("{target}: {error}");
        let request = request(method.clone(), target, body.into());
        let response = connection.sender.send_request(request).await.map_err(failed)?;
        if !response.status().is_success() {
            let (status, body) = (response.status(), response.into_body());
            return Err(refusal(target, method, status, body).await);
        }
        Ok(response.into_body().collect().await.map_err(failed)?.to_bytes())
    };
    let timed = tokio::time::timeout(timeout.into(), exchanged).await;
    timed.unwrap_or_else(|_| Err(format!("{target}: no answer within {timeout}")))
}

async fn connect(target: &Target) -> Result<Connection, String> {
    let place = (target.host.as_str(), target.port);
    let made = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(place)).await;
    let stream = match made {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return Err(format!("can't reach {target}: {error}; is the server running?"));
        }
        Err(_) => {
            return Err(format!("can't reach {target}: no connection within {CONNECT_MAX:?}"));
        }
    };
    // Nothing may wait for a second packet.
    let _ = stream.set_nodelay(true);
    let (stream, last_read) = stamped(stream);
    let shaken = handshake(TokioIo::new(stream)).await;
    let (sender, driver) = shaken.map_err(|error| format!("{target}: {error}"))?;
    tokio::spawn(async move {
        // A broken connection shows where its answer is read.
        let _ = driver.await;
    });
    Ok(Connection { sender, last_read })
}

fn request(method: Method, target: &Target, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::builder()
        .method(method)
        .uri(target.path.as_str())
        .header(header::HOST, target.authority())
        .header(header::USER_AGENT, concat!("everwarm/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT, "*/*");
    if !body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    request.body(Full::new(body)).expect("a parsed address makes a valid request")
}

/// A status that is no success, with what the server says of it.
async fn refusal(
    target: &Target,
    method: Method,
    status: StatusCode,
    body: hyper::body::Incoming,
) -> String {
    let bytes = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(_) => Bytes::new(),
    };
    let told = serde_json::from_slice(&bytes).ok().and_then(|v: serde_json::Value| message(&v));
    let text = told.unwrap_or_else(|| String::from_utf8_lossy(&bytes).into_owned());
    let short: String = text.trim().chars().take(EXCERPT).collect();
    let said = if short.is_empty() { "without a word".to_owned() } else { short };
    format!("{method} {target}: status {status}: {said}")
}

/// `{"error": {"message": …}}`, `{"error": …}` or `{"message": …}`.
fn message(body: &serde_json::Value) -> Option<String> {
    let error = &body["error"];
    let text = [&error["message"], error, &body["message"], &body["detail"]];
    text.into_iter().find_map(|t| t.as_str().map(str::to_owned))
}
