//! What a proxy is given.

use http::Uri;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

/// What a proxy is given.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where requests go.
    pub upstream: Upstream,
    /// Where clients connect; port 0 = any.
    pub listen: SocketAddr,
    /// Where status and metrics are served and hints are taken; `None` = nowhere.
    pub admin: Option<SocketAddr>,
    /// What is warmed, and when.
    pub warmer: everwarm_hold::Config,
    /// Pass the client's `Host` on instead of the upstream's.
    pub keep_host: bool,
    /// Say who asked, in `X-Forwarded-For`, `-Host` and `-Proto`.
    pub x_forwarded: bool,
    /// Send a comment into an event stream that has been silent for so long; `None` = never.
    pub keep_alive: Option<Duration>,
    /// Take in request bodies without a length, at most so many bytes of them, and send them with
    /// one: for servers that refuse what is chunked. `None` = pass on as it comes.
    pub take_in: Option<usize>,
    /// Time limits and pool sizes.
    pub limits: Limits,
}

/// Time limits and pool sizes. A prefill or a model's loading may take minutes: what is optional
/// is off unless somebody wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a connection to the upstream; `None` = the system's own.
    pub connect: Option<Duration>,
    /// From the request sent to the upstream's head.
    pub head: Option<Duration>,
    /// Between two pieces of a response body.
    pub idle: Option<Duration>,
    /// How long running responses may go on after a shutdown began.
    pub drain: Duration,
    /// How long an upstream that refuses connections is tried again.
    pub upstream_wait: Duration,
    /// How long a body waits for an upstream that does not answer `Expect: 100-continue`.
    pub expect_wait: Duration,
    /// An idle upstream connection is dropped after this; 0 = none is kept.
    pub pool_idle: Duration,
    /// Requests over one upstream connection.
    pub pool_requests: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: Some(Duration::from_secs(10)),
            head: None,
            idle: None,
            drain: Duration::from_secs(30),
            upstream_wait: Duration::ZERO,
            // As curl does it itself.
            expect_wait: Duration::from_secs(1),
            // llama-server and uvicorn drop theirs at 5 s, llama-server after 100 requests.
            pool_idle: Duration::from_millis(3500),
            pool_requests: 90,
        }
    }
}

/// The upstream's URL: `http://HOST[:PORT][/PREFIX]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    host: String,
    port: u16,
    authority: String,
    prefix: String,
}

/// Why a text is not an upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstream `{text}` {why}; expected a URL such as http://127.0.0.1:8080")]
pub struct UpstreamError {
    text: String,
    why: String,
}

impl Upstream {
    /// What is connected to: a name or an address, and a port.
    pub fn target(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The value of `Host` in requests to it.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// What stands before the path of every request; empty, or `/…` without a last slash.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl std::fmt::Display for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.prefix)
    }
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let wrong = |why: &str| UpstreamError { text: text.to_owned(), why: why.to_owned() };
        let trimmed = text.trim();
        let Some((scheme, _)) = trimmed.split_once("://") else {
            return Err(wrong("has no scheme"));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => return Err(wrong("is https, which is not spoken to upstreams")),
            other => return Err(wrong(&format!("has the unknown scheme `{other}`"))),
        }
        let uri: Uri = trimmed.parse().map_err(|e| wrong(&format!("is not a URL ({e})")))?;
        let authority = uri.authority().ok_or_else(|| wrong("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong("has a user name, which would be sent to nobody"));
        }
        if uri.query().is_some() || trimmed.contains('#') {
            return Err(wrong("has a query or a fragment"));
        }
        if authority.host().is_empty() {
            return Err(wrong("has no host"));
        }
        // What the library takes for no port at all may be one that is out of range.
        let port = match &authority.as_str()[authority.host().len()..] {
            "" => 80,
            text => match text.trim_start_matches(':').parse::<u16>() {
                Ok(port) if port > 0 => port,
                _ => return Err(wrong("has a port that is not from 1 to 65535")),
            },
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Upstream { host, port, authority: authority.to_string(), prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let check = |text: &str, target: (&str, u16), shown: &str| {
            let upstream: Upstream = text.parse().unwrap();
            assert_eq!(upstream.target(), target);
            assert_eq!(upstream.to_string(), shown);
        };
        check("http://127.0.0.1:8080", ("127.0.0.1", 8080), "http://127.0.0.1:8080");
        check("HTTP://localhost/", ("localhost", 80), "http://localhost");
        check("http://[::1]:1/v2/", ("::1", 1), "http://[::1]:1/v2");
    }

    #[test]
    fn what_is_no_url_is_told_why() {
        let check = |text: &str, why: &str| {
            let error = text.parse::<Upstream>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&format!("`{text}`")), "{error}");
            assert!(error.contains("http://127.0.0.1:8080"), "{error}");
        };
        check("127.0.0.1:8080", "has no scheme");
        check("localhost", "has no scheme");
        check("", "has no scheme");
        check("https://a", "is https");
        check("ftp://a", "unknown scheme `ftp`");
        check("http://", "is not a URL");
        check("http://a:99999", "port");
        check("http://a:x", "port that is not from 1");
        check("http://u@a", "user name");
        check("http://a/?x=1", "query");
    }
}
