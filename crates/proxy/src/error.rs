//! What can go wrong, on which side, and what the client is told.

use crate::config::Upstream;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use std::net::SocketAddr;

/// Why a proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listening socket could not be had.
    #[error("can't listen on {address} ({flag}): {why}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The option that says where.
        flag: &'static str,
        /// In words.
        why: String,
    },
    /// No policy has that name.
    #[error(transparent)]
    Policy(#[from] everwarm_governor::UnknownPolicy),
    /// The proxy would be its own upstream.
    #[error("the upstream {upstream} is the proxy itself; choose another port with --listen")]
    Loop {
        /// The upstream's URL.
        upstream: String,
    },
}

impl StartError {
    pub(crate) fn listen(address: SocketAddr, flag: &'static str, error: &std::io::Error) -> Self {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("another program uses port {}; choose another one", address.port())
            }
            _ => error.to_string(),
        };
        StartError::Listen { address, flag, why }
    }
}

/// What the upstream did instead of answering.
#[derive(Debug)]
pub(crate) enum UpstreamFailure {
    /// No connection; with what was tried.
    Connect(String),
    /// None in time.
    ConnectTimeout(std::time::Duration),
    /// No head in time.
    HeadTimeout(std::time::Duration),
    /// The connection ended before any answer.
    Closed(String),
    /// What came is not HTTP.
    Protocol(String),
    /// The upstream is the proxy itself.
    Loop,
}

impl UpstreamFailure {
    /// A short name for metrics and clients.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            UpstreamFailure::Connect(_) => "connect",
            UpstreamFailure::ConnectTimeout(_) => "connect_timeout",
            UpstreamFailure::HeadTimeout(_) => "head_timeout",
            UpstreamFailure::Closed(_) => "closed",
            UpstreamFailure::Protocol(_) => "protocol",
            UpstreamFailure::Loop => "loop",
        }
    }

    fn status(&self) -> StatusCode {
        match self {
            UpstreamFailure::ConnectTimeout(_) | UpstreamFailure::HeadTimeout(_) => {
                StatusCode::GATEWAY_TIMEOUT
            }
            UpstreamFailure::Loop => StatusCode::LOOP_DETECTED,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    /// A sentence for clients and the log.
    pub(crate) fn why(&self, upstream: &Upstream) -> String {
        match self {
            UpstreamFailure::Connect(tried) => {
                format!("can't connect to the upstream {upstream}: {tried}. Is the server running?")
            }
            UpstreamFailure::ConnectTimeout(limit) => {
                format!("no connection to the upstream {upstream} within {limit:?}")
            }
            UpstreamFailure::HeadTimeout(limit) => {
                format!("the upstream {upstream} sent no response head within {limit:?}")
            }
            UpstreamFailure::Closed(how) => {
                format!("the upstream {upstream} ended the connection without an answer ({how})")
            }
            UpstreamFailure::Protocol(what) => {
                format!("the upstream {upstream} did not answer in HTTP ({what})")
            }
            UpstreamFailure::Loop => {
                format!(
                    "the upstream {upstream} leads back to this proxy; give it the server's address"
                )
            }
        }
    }

    /// The answer in the upstream's place: JSON in the form that the clients of these servers read.
    pub(crate) fn response(&self, upstream: &Upstream) -> Response<Full<Bytes>> {
        let status = self.status();
        let body = serde_json::json!({
            "error": {
                "message": format!("everwarm proxy: {}", self.why(upstream)),
                "type": format!("upstream_{}", self.kind()),
                "code": status.as_u16(),
                "upstream": upstream.to_string(),
            }
        });
        let mut response = Response::new(Full::new(Bytes::from(format!("{body}\n"))));
        *response.status_mut() = status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}
