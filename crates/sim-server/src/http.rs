//! The OpenAI-compatible API over HTTP/1.
//!
//! A request becomes a job of the engine; its answer is written as the job's events come. A client
//! that goes away drops the answer, at any moment, and dropping it cancels the job. How late each
//! token was handed to the connection counts among the samples of lateness.

use crate::answer::Answer;
use crate::ask::{self, Kind, Refusal};
use crate::engine::{Command, Inbox};
use crate::lateness::Lateness;
use crate::slot::{Job, JobEvent};
use bytes::Bytes;
use everwarm_gpu::Monotonic;
use everwarm_units::Instant;
use everwarm_workload::Head;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The longest body of a request. Unit: B.
const BODY_MAX: usize = 16 << 20;

type Reply = Response<BoxBody<Bytes, Infallible>>;

/// What every request needs.
pub(crate) struct Api {
    pub inbox: Inbox,
    /// The model's name in `/v1/models`.
    pub model: String,
    /// When a stream's head goes out.
    pub head: Head,
    /// Tokens of a prompt and its answer together.
    pub context: u32,
}

/// Serves one connection until it ends.
pub(crate) async fn serve(stream: tokio::net::TcpStream, api: Arc<Api>) {
    // Tokens are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request| {
        let api = Arc::clone(&api);
        async move { Ok::<_, Infallible>(respond(request, &api).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(hyper_util::rt::TokioTimer::new())
        .serve_connection(hyper_util::rt::TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!("a connection ended early: {error}");
    }
}

async fn respond(request: Request<Incoming>, api: &Api) -> Reply {
    let mut reply = route(request, api).await;
    let headers = reply.headers_mut();
    headers.insert(header::SERVER, HeaderValue::from_static("everwarm-sim-server"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    reply
}

async fn route(request: Request<Incoming>, api: &Api) -> Reply {
    let path = request.uri().path().trim_end_matches('/').to_owned();
    let allowed: &[Method] = match path.strip_prefix("/v1").unwrap_or(&path) {
        "/chat/completions" | "/completions" => &[Method::POST],
        "/models" | "/health" => &[Method::GET, Method::HEAD],
        _ => &[],
    };
    if request.method() == Method::OPTIONS {
        return preflight();
    }
    if allowed.is_empty() {
        return refused(&Refusal {
            status: 404,
            kind: "not_found_error",
            message: format!(
                "there is no {}; there are /v1/chat/completions, /v1/completions, /v1/models, /health",
                request.uri().path()
            ),
        });
    }
    if !allowed.contains(request.method()) {
        return wrong_method(request.method(), &path, allowed);
    }
    match path.strip_prefix("/v1").unwrap_or(&path) {
        "/models" => whole(StatusCode::OK, &models(api)),
        "/health" => whole(StatusCode::OK, &health(api)),
        "/chat/completions" => ask(Kind::Chat, request, api).await,
        _ => ask(Kind::Completion, request, api).await,
    }
}

async fn ask(kind: Kind, request: Request<Incoming>, api: &Api) -> Reply {
    let body = match Limited::new(request.into_body(), BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return unreadable(error.as_ref()),
    };
    let arrived = Monotonic::now();
    let ask = match ask::parse(kind, &body, api.context) {
        Ok(ask) => ask,
        Err(refusal) => return refused(&refusal),
    };
    let stream = ask.stream;
    let mut pending = match Pending::submit(Answer::new(ask, &api.model), arrived, api) {
        Ok(pending) => pending,
        Err(refusal) => return refused(&refusal),
    };
    let answered = match stream {
        true => pending.started(api.head).await.map(|()| streamed(pending)),
        false => pending.finished().await.map(|answer| whole(StatusCode::OK, &answer)),
    };
    answered.unwrap_or_else(|refusal| refused(&refusal))
}

/// A job of the engine whose answer is being written; dropping it cancels the job.
struct Pending {
    answer: Answer,
    job: u64,
    inbox: Inbox,
    events: UnboundedReceiver<JobEvent>,
    /// How late tokens were handed to the connection.
    delivery: Lateness,
    tokens: u32,
    opening: Opening,
    ended: bool,
}

/// When the event goes out that opens a chat's stream.
#[derive(Clone, Copy, PartialEq)]
enum Opening {
    WithHead,
    WithToken,
    Sent,
}

impl Pending {
    fn submit(answer: Answer, arrived: Monotonic, api: &Api) -> Result<Self, Refusal> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (sender, events) = unbounded_channel();
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let job = Job {
            id,
            prompt_tokens: answer.ask().prompt_tokens,
            answer_tokens: answer.ask().answer_tokens,
            events: sender,
        };
        api.inbox.send(arrived, Command::Submit(job)).map_err(|_| ending())?;
        Ok(Pending {
            answer,
            job: id,
            inbox: api.inbox.clone(),
            events,
            delivery: Lateness::default(),
            tokens: 0,
            opening: Opening::WithHead,
            ended: false,
        })
    }

    /// Waits until the response head of a stream may go out.
    async fn started(&mut self, head: Head) -> Result<(), Refusal> {
        match head {
            Head::AtOnce => Ok(()),
            Head::AtStart => {
                self.opening = Opening::WithToken;
                self.events.recv().await.map(|_started| ()).ok_or_else(ending)
            }
        }
    }

    /// Waits for the whole answer.
    async fn finished(&mut self) -> Result<Value, Refusal> {
        while let Some(event) = self.events.recv().await {
            if let Some(timings) = self.timings(&event) {
                self.ended = true;
                return Ok(self.answer.whole(timings));
            }
        }
        Err(ending())
    }

    /// The events of the stream for `event`; none for some.
    fn events_for(&mut self, event: &JobEvent) -> Vec<u8> {
        match event {
            JobEvent::Started => Vec::new(),
            JobEvent::Token { .. } => {
                self.timings(event);
                let mut events = match std::mem::replace(&mut self.opening, Opening::Sent) {
                    Opening::WithToken => self.answer.opening(),
                    Opening::WithHead | Opening::Sent => Vec::new(),
                };
                events.extend(self.answer.token(self.tokens));
                self.tokens += 1;
                events
            }
            JobEvent::Finished(_) => {
                self.ended = true;
                self.timings(event).map(|timings| self.answer.ending(timings)).unwrap_or_default()
            }
        }
    }

    /// Notes how late a token is, and makes the timings at the end.
    fn timings(&mut self, event: &JobEvent) -> Option<Value> {
        match event {
            JobEvent::Started => None,
            JobEvent::Token { at } => {
                self.delivery.note(late(*at, &self.inbox));
                None
            }
            JobEvent::Finished(summary) => {
                let mut all = summary.lateness.clone();
                all.add(&self.delivery);
                Some(self.answer.timings(summary, &all, self.inbox.epoch()))
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.ended {
            // An engine that has ended needs no cancelling.
            let _ = self.inbox.send(Monotonic::now(), Command::Cancel(self.job));
        }
    }
}

fn late(at: Instant, inbox: &Inbox) -> everwarm_units::Span {
    Monotonic::now().since(inbox.epoch().at(at))
}

/// The body of a stream.
struct Stream(Pending);

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let pending = &mut self.0;
        if pending.opening == Opening::WithHead {
            pending.opening = Opening::Sent;
            let opening = pending.answer.opening();
            if !opening.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(opening.into()))));
            }
        }
        loop {
            if pending.ended {
                return Poll::Ready(None);
            }
            let bytes = match ready!(pending.events.poll_recv(cx)) {
                Some(event) => pending.events_for(&event),
                None => {
                    pending.ended = true;
                    error_event(&ending())
                }
            };
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes.into()))));
            }
        }
    }
}

fn streamed(pending: Pending) -> Reply {
    let mut reply = Response::new(BodyExt::boxed(Stream(pending)));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    reply
}

fn whole(status: StatusCode, value: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(value.to_string())).boxed());
    *reply.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, json);
    reply
}

fn refused(refusal: &Refusal) -> Reply {
    let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    whole(status, &error_value(refusal))
}

fn error_value(refusal: &Refusal) -> Value {
    json!({"error": {
        "code": refusal.status,
        "type": refusal.kind,
        "message": refusal.message,
    }})
}

fn error_event(refusal: &Refusal) -> Vec<u8> {
    format!("data: {}\n\n", error_value(refusal)).into_bytes()
}

fn ending() -> Refusal {
    Refusal { status: 503, kind: "unavailable_error", message: "the server is ending".into() }
}

fn unreadable(error: &(dyn std::error::Error + 'static)) -> Reply {
    refused(&match error.is::<LengthLimitError>() {
        true => Refusal {
            status: 413,
            kind: "invalid_request_error",
            message: format!("the body is longer than {BODY_MAX} bytes"),
        },
        false => Refusal {
            status: 400,
            kind: "invalid_request_error",
            message: format!("the body can't be read: {error}"),
        },
    })
}

fn wrong_method(method: &Method, path: &str, allowed: &[Method]) -> Reply {
    let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let mut reply = refused(&Refusal {
        status: 405,
        kind: "invalid_request_error",
        message: format!("{method} is not for {path}; expected {allowed}"),
    });
    let allow = HeaderValue::from_str(&allowed).expect("method names are plain ASCII");
    reply.headers_mut().insert(header::ALLOW, allow);
    reply
}

fn preflight() -> Reply {
    let mut reply = Response::new(Full::default().boxed());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    let headers = reply.headers_mut();
    let methods = HeaderValue::from_static("GET, HEAD, POST, OPTIONS");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("*"));
    reply
}

fn models(api: &Api) -> Value {
    json!({"object": "list", "data": [{
        "id": api.model,
        "object": "model",
        "created": 0,
        "owned_by": "everwarm",
        "meta": {"n_ctx": api.context},
    }]})
}

fn health(api: &Api) -> Value {
    let late = api.inbox.lateness();
    json!({
        "status": "ok",
        "late_p99_ms": late.p99().as_ms(),
        "late_max_ms": late.max().as_ms(),
    })
}
