//! The admin port: status, metrics, hints, policy. Never on the port that clients use.

use crate::forward::Shared;
use bytes::Bytes;
use everwarm_governor::{Event, HintSource};
use everwarm_units::Span;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::net::TcpListener;

/// A hint has a few dozen bytes. Unit: B.
const BODY_MAX: usize = 4096;

const HELP: &str = "everwarm proxy, admin port\n\
    GET  /status   what the warmer is doing, as JSON\n\
    GET  /metrics  for Prometheus\n\
    POST /hint     a request is expected; JSON, all optional: {\"source\": \"key-stroke\", \
    \"expected_ms\": 300, \"confidence\": 0.9}\n\
    PUT  /policy   {\"policy\": \"study\"}\n";

pub(crate) async fn run(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.kill.cancelled() => return,
        };
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let kill = shared.kill.clone();
            let service = service_fn(|request| answer(Arc::clone(&shared), request));
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                _ = served => {}
                () = kill.cancelled() => {}
            }
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let response = match (head.method.as_str(), head.uri.path()) {
        ("GET" | "HEAD", "/") => plain(StatusCode::OK, HELP),
        ("GET" | "HEAD", "/status") => json(StatusCode::OK, &shared.warmer.status()),
        ("GET" | "HEAD", "/metrics") => metrics(&shared),
        ("POST", "/hint") => open_to_pages(hint(&shared, body).await),
        ("OPTIONS", "/hint") => open_to_pages(Response::new(Full::default())),
        ("PUT", "/policy") => policy(&shared, body).await,
        (_, "/" | "/status" | "/metrics" | "/hint" | "/policy") => {
            refuse(StatusCode::METHOD_NOT_ALLOWED, &not_so(&head.method, head.uri.path()))
        }
        (_, path) => refuse(StatusCode::NOT_FOUND, &format!("there is no `{path}`\n{HELP}")),
    };
    Ok(response)
}

fn not_so(method: &Method, path: &str) -> String {
    format!("`{path}` does not take {method}\n{HELP}")
}

fn metrics(shared: &Shared) -> Response<Full<Bytes>> {
    let mut response = plain(StatusCode::OK, &shared.metrics.text());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

async fn hint(shared: &Shared, body: Incoming) -> Response<Full<Bytes>> {
    let hint = match read(body).await.and_then(|text| crate::hint::parse(&text)) {
        Ok(hint) => hint,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    let (source, name) = match hint.source.as_deref() {
        Some("key-stroke" | "keystroke" | "key_stroke") => (HintSource::KeyStroke, "key-stroke"),
        Some("schedule") => (HintSource::Schedule, "schedule"),
        // Any other name is welcome, but labels without end are not.
        _ => (HintSource::Other, "other"),
    };
    shared.warmer.tell(Event::Hint {
        source,
        expected: hint.expected_ms.map(Span::from_ms),
        confidence: hint.confidence.unwrap_or(1.0),
        session: None,
    });
    shared.metrics.hint(name);
    json(StatusCode::ACCEPTED, &serde_json::json!({ "accepted": true }))
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    policy: String,
}

async fn policy(shared: &Shared, body: Incoming) -> Response<Full<Bytes>> {
    let wanted = read(body).await.and_then(|text| {
        let wanted = serde_json::from_slice::<Policy>(&text);
        wanted.map_err(|e| format!("not a policy: {e}; expected {{\"policy\": \"study\"}}"))
    });
    let followed = wanted.and_then(|w| shared.warmer.follow(&w.policy).map_err(|e| e.to_string()));
    match followed {
        Ok(()) => json(StatusCode::OK, &shared.warmer.status()),
        Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
    }
}

async fn read(body: Incoming) -> Result<Bytes, String> {
    let collected = Limited::new(body, BODY_MAX).collect().await;
    collected
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| format!("the body can't be read ({error}); at most {BODY_MAX} bytes are"))
}

/// A page may send key strokes from wherever it was served; hints can do no more than warm, and
/// that under a cap.
fn open_to_pages(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("access-control-allow-methods", "POST"),
        ("access-control-allow-headers", "content-type"),
        ("access-control-allow-private-network", "true"),
        ("access-control-max-age", "86400"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.to_owned())));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    // What is sent here are numbers and strings: it serialises.
    let text = serde_json::to_string(value).unwrap_or_default();
    let mut response = plain(status, &(text + "\n"));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn refuse(status: StatusCode, why: &str) -> Response<Full<Bytes>> {
    json(status, &serde_json::json!({ "error": { "message": why, "code": status.as_u16() } }))
}
