//! One request: to the upstream, and the response back.

use crate::body::{
    Gate, GateKey, Idle, Lease, REPLAY_MAX, Replay, RequestBody, ResponseBody, TakeIn,
};
use crate::client::Client;
use crate::config::{Limits, Upstream};
use crate::error::UpstreamFailure;
use crate::events::{self, KeepAlive};
use crate::exchange::{Exchange, expects};
use crate::headers::{
    Upgrading, connection_has, end_to_end, join_cookies, keep_alive_timeout, replace_host,
    upgrades_to_http2, without, x_forwarded,
};
use crate::metrics::Metrics;
use crate::pool::{Connection, Pool};
use crate::route::Route;
use bytes::Bytes;
use everwarm_hold::Handle as Warmer;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header, request};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) type Out = Either<ResponseBody, Full<Bytes>>;

/// Everything that requests share.
pub(crate) struct Shared {
    pub(crate) upstream: Upstream,
    pub(crate) keep_host: bool,
    pub(crate) x_forwarded: bool,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) take_in: Option<usize>,
    pub(crate) limits: Limits,
    pub(crate) pool: Arc<Pool>,
    pub(crate) warmer: Warmer,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tunnels: TaskTracker,
    pub(crate) kill: CancellationToken,
}

/// A reused connection that the server was closing shows within a round trip; one that ends later
/// ended for another reason, and the server may have begun to work.
const RETRY_WITHIN: Duration = Duration::from_secs(1);

/// Serves one request of `client`.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Result<Response<Out>, Infallible> {
    let (mut head, body) = request.into_parts();
    let mut exchange = Exchange::begin(&shared.warmer, &shared.metrics, &head);
    let client_upgrade = head.extensions.remove::<OnUpgrade>();
    let mut outgoing = Outgoing::new(&shared, &client, head, body);
    if let Some(limit) = shared.take_in
        && let Err(refused) = outgoing.take_in(limit).await
    {
        return Ok(instead(&client, &outgoing, bad_request_body(refused)).await);
    }
    let answered = match client.route {
        Some(route) if shared.pool.routes.contains(route) => Err(UpstreamFailure::Loop),
        _ => shared.answer(&outgoing, &exchange).await,
    };
    match answered.and_then(|answer| asked_for(answer, client_upgrade.is_some())) {
        Ok((response, connection)) => {
            shared.metrics.response(response.status());
            let answer = Answer { response, connection, outgoing, exchange, client };
            Ok(answer.pass_on(&shared, client_upgrade))
        }
        Err(_) if outgoing.body.failed() => {
            Ok(instead(&client, &outgoing, bad_request_body(TakeIn::Broken)).await)
        }
        Err(failure) => {
            exchange.failed();
            shared.metrics.failure(failure.kind());
            tracing::warn!("{}", failure.why(&shared.upstream));
            let response = failure.response(&shared.upstream).map(Either::Right);
            Ok(instead(&client, &outgoing, response).await)
        }
    }
}

/// How long an answer of our own waits for the rest of a request's body: a small one is on its way.
const REST_WITHIN: Duration = Duration::from_millis(100);

/// An answer of our own. It takes the rest of the request's body first, if that is short; else the
/// connection can't be used again, and the client must know before it sends another request on it.
async fn instead(
    client: &Client,
    outgoing: &Outgoing,
    mut response: Response<Out>,
) -> Response<Out> {
    // Asking for a body that waits for a 100 would send one.
    if !outgoing.expects && !outgoing.body.complete() {
        let _ = tokio::time::timeout(REST_WITHIN, outgoing.body.take_in(REPLAY_MAX)).await;
    }
    if !outgoing.body.complete() {
        client.body_left_unread();
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(header::CONNECTION, close);
    }
    response
}

/// Refuses a switch of protocols that the client did not ask for and could not follow.
fn asked_for<T>(
    answer: (Response<T>, Connection),
    upgrade: bool,
) -> Result<(Response<T>, Connection), UpstreamFailure> {
    match answer.0.status() {
        StatusCode::SWITCHING_PROTOCOLS if !upgrade => {
            Err(UpstreamFailure::Protocol("a switch of protocols that nobody asked for".to_owned()))
        }
        _ => Ok(answer),
    }
}

impl Shared {
    /// The upstream's own name.
    fn host(&self) -> HeaderValue {
        let host = HeaderValue::from_str(self.upstream.authority());
        host.expect("a URL's authority is visible ASCII")
    }

    /// Sends the request, on a second connection if the first was closing, until there is a head.
    async fn answer(
        &self,
        outgoing: &Outgoing,
        exchange: &Exchange,
    ) -> Result<(Response<Incoming>, Connection), UpstreamFailure> {
        let mut connection = match self.pool.take().await {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        exchange.forwarded();
        loop {
            let (reused, began) = (connection.reused(), Instant::now());
            let before = connection.read.load(Ordering::Relaxed);
            let error = match self.send(&mut connection, outgoing).await {
                Ok(response) => return Ok((response, connection)),
                Err(Sent::Failed(error)) => error,
                Err(Sent::TooLate(limit)) => return Err(UpstreamFailure::HeadTimeout(limit)),
            };
            let silent = connection.read.load(Ordering::Relaxed) == before;
            let again = reused
                && silent
                && began.elapsed() < RETRY_WITHIN
                && outgoing.body.replayable()
                && !error.is_parse();
            if !again {
                return Err(failure(&error, silent));
            }
            self.metrics.retries.inc();
            connection = self.connect().await?;
        }
    }

    async fn connect(&self) -> Result<Connection, UpstreamFailure> {
        let connection = self.pool.connect().await?;
        self.metrics.connects.inc();
        Ok(connection)
    }

    async fn send(
        &self,
        connection: &mut Connection,
        outgoing: &Outgoing,
    ) -> Result<Response<Incoming>, Sent> {
        let (request, key) = outgoing.request(self.limits.expect_wait);
        let answer = connection.sender.send_request(request);
        let answer = match self.limits.head {
            None => answer.await,
            Some(limit) => match tokio::time::timeout(limit, answer).await {
                Ok(answer) => answer,
                Err(_) => return Err(Sent::TooLate(limit)),
            },
        };
        if let Some(key) = key {
            key.shut();
        }
        answer.map_err(Sent::Failed)
    }
}

enum Sent {
    Failed(hyper::Error),
    TooLate(Duration),
}

fn failure(error: &hyper::Error, silent: bool) -> UpstreamFailure {
    let mut text = error.to_string();
    if let Some(source) = std::error::Error::source(error) {
        text = format!("{text}: {source}");
    }
    if error.is_parse() || !silent {
        UpstreamFailure::Protocol(text)
    } else {
        UpstreamFailure::Closed(text)
    }
}

fn bad_request_body(refused: TakeIn) -> Response<Out> {
    let (status, why) = match refused {
        TakeIn::Broken => {
            (StatusCode::BAD_REQUEST, "the request body could not be read to its end")
        }
        TakeIn::TooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the request body is too large to be taken in")
        }
    };
    let body = serde_json::json!({
        "error": {
            "message": format!("everwarm proxy: {why}"),
            "type": "invalid_request_error",
            "code": status.as_u16(),
        }
    });
    let mut response = Response::new(Either::Right(Full::new(Bytes::from(format!("{body}\n")))));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// A request as it goes upstream, as often as it must.
struct Outgoing {
    head: request::Parts,
    body: Replay,
    expects: bool,
    client_version: Version,
}

impl Outgoing {
    fn new(shared: &Shared, client: &Client, mut head: request::Parts, body: Incoming) -> Self {
        let client_version = head.version;
        let chunked = chunked(&head, &body);
        let upgrades = connection_has(&head.headers, "upgrade");
        let upgrading = match upgrades && !upgrades_to_http2(&head.headers) {
            true => Upgrading::Yes,
            false => Upgrading::No,
        };
        let host = asked_host(&head);
        let mut headers = end_to_end(&head.headers, upgrading);
        if shared.x_forwarded {
            x_forwarded(&mut headers, client.route.map(Route::peer), host.as_ref());
        }
        let host = host.filter(|_| shared.keep_host).unwrap_or_else(|| shared.host());
        headers = replace_host(headers, host);
        if client_version == Version::HTTP_2 {
            join_cookies(&mut headers);
        }
        if chunked {
            // The body is framed anew in the same way, whatever the method.
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        head.headers = headers;
        head.uri = target(&head.uri, shared.upstream.prefix());
        head.version = Version::HTTP_11;
        let expects = expects(&head.headers) && client_version == Version::HTTP_11;
        Outgoing { head, body: Replay::new(body), expects, client_version }
    }

    /// Replaces a body of unknown length by one of known length.
    async fn take_in(&mut self, limit: usize) -> Result<(), TakeIn> {
        if !self.head.headers.contains_key(header::TRANSFER_ENCODING) {
            return Ok(());
        }
        let length = self.body.take_in(limit).await?;
        let headers = without(&self.head.headers, &header::TRANSFER_ENCODING);
        // Taking it in has answered the client's question.
        self.head.headers = without(&headers, &header::EXPECT);
        self.head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        self.expects = false;
        Ok(())
    }

    fn request(&self, expect_wait: Duration) -> (Request<RequestBody>, Option<GateKey>) {
        if !self.expects || self.body.complete() {
            return (Request::from_parts(self.head.clone(), self.body.body(None)), None);
        }
        let (gate, key) = Gate::new(expect_wait);
        let mut request = Request::from_parts(self.head.clone(), self.body.body(Some(gate)));
        let opens = key.clone();
        hyper::ext::on_informational(&mut request, move |response| {
            if response.status() == StatusCode::CONTINUE {
                opens.open();
            }
        });
        (request, Some(key))
    }
}

/// True for a body that is to be sent in chunks, as it came: HTTP/2 has no need to say so.
fn chunked(head: &request::Parts, body: &Incoming) -> bool {
    match head.version {
        Version::HTTP_2 => {
            !head.headers.contains_key(header::CONTENT_LENGTH) && !body.is_end_stream()
        }
        _ => head.headers.contains_key(header::TRANSFER_ENCODING),
    }
}

/// Whom the client means: a whole URL, or HTTP/2's `:authority`, before `Host` (RFC 9112 3.2.2).
fn asked_host(head: &request::Parts) -> Option<HeaderValue> {
    let authority = head.uri.authority().and_then(|a| HeaderValue::from_str(a.as_str()).ok());
    authority.or_else(|| head.headers.get(header::HOST).cloned())
}

/// The request target in the form that an origin server takes.
fn target(uri: &Uri, prefix: &str) -> Uri {
    let Some(path) = uri.path_and_query() else { return uri.clone() };
    if path.as_str() == "*" {
        return uri.clone();
    }
    let joined = format!("{prefix}{path}");
    joined.parse().unwrap_or_else(|_| Uri::from(path.clone()))
}

/// A response with all that belongs to it.
struct Answer {
    response: Response<Incoming>,
    connection: Connection,
    outgoing: Outgoing,
    exchange: Exchange,
    client: Arc<Client>,
}

impl Answer {
    fn pass_on(mut self, shared: &Arc<Shared>, client: Option<OnUpgrade>) -> Response<Out> {
        let status = self.response.status();
        let tunnel = status == StatusCode::SWITCHING_PROTOCOLS
            || (self.outgoing.head.method == Method::CONNECT && status.is_success());
        match (tunnel, client) {
            (true, Some(client)) => {
                let upstream = hyper::upgrade::on(&mut self.response);
                self.into_tunnel(shared, client, upstream)
            }
            _ => self.into_stream(shared),
        }
    }

    fn into_stream(self, shared: &Shared) -> Response<Out> {
        let Answer { response, mut connection, outgoing, exchange, client } = self;
        let (mut head, incoming) = response.into_parts();
        if let Some(told) = keep_alive_timeout(&head.headers) {
            // The margin of the defaults: 3.5 s where a server says 5.
            connection.idle_max = connection.idle_max.min(told.mul_f64(0.7));
        }
        let chunked = head.headers.contains_key(header::TRANSFER_ENCODING);
        head.headers = end_to_end(&head.headers, Upgrading::No);
        if chunked && head.headers.contains_key(header::CONTENT_LENGTH) {
            // The length is not the body's (RFC 9112 6.3): passing it on would cut or stretch it.
            head.headers = without(&head.headers, &header::CONTENT_LENGTH);
        }
        if events::is_stream(&head.headers) {
            events::mark(&mut head.headers);
        }
        head.version = Version::HTTP_11;
        if !outgoing.body.complete() {
            client.body_left_unread();
        }
        let sized = head.headers.contains_key(header::CONTENT_LENGTH);
        let body = ResponseBody {
            tap: exchange.tap(&head.headers),
            keep_alive: shared.keep_alive.and_then(|every| KeepAlive::of(&head.headers, every)),
            incoming,
            lease: Some(Lease {
                connection,
                pool: Arc::clone(&shared.pool),
                request: outgoing.body.clone(),
            }),
            exchange,
            client,
            ends_by_close: !sized && outgoing.client_version == Version::HTTP_10,
            idle: shared.limits.idle.map(Idle::new),
        };
        Response::from_parts(head, Either::Left(body))
    }

    fn into_tunnel(
        self,
        shared: &Arc<Shared>,
        client: OnUpgrade,
        upstream: OnUpgrade,
    ) -> Response<Out> {
        let Answer { response, connection, mut exchange, client: socket, outgoing } = self;
        let (mut head, _) = response.into_parts();
        head.headers = end_to_end(&head.headers, Upgrading::Yes);
        head.version = Version::HTTP_11;
        let kill = shared.kill.clone();
        shared.tunnels.spawn(async move {
            // Its task hands the socket over, so the connection must live until then.
            let _connection = connection;
            let copied = async {
                let (client, upstream) = tokio::try_join!(client, upstream)?;
                let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
                tokio::io::copy_bidirectional(&mut client, &mut upstream).await?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            };
            tokio::select! {
                done = copied => match done {
                    Ok(()) => exchange.complete(),
                    Err(error) => {
                        tracing::debug!(%error, "a tunnel broke");
                        if !socket.was_reset() {
                            exchange.cut();
                            socket.cut_short(outgoing.client_version);
                        }
                    }
                },
                () = kill.cancelled() => {}
            }
        });
        Response::from_parts(head, Either::Right(Full::new(Bytes::new())))
    }
}
