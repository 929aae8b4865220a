//! Where requests go: an `http://` address.

use crate::Error;

/// An `http://` address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Host as it is connected to (an IPv6 address without its brackets).
    pub host: String,
    /// Port; 80 where none is given.
    pub port: u16,
    /// Path and query, beginning with `/`.
    pub path: String,
    authority: String,
}

impl Target {
    /// Reads `text`; `what` names it in errors (`--url`).
    ///
    /// # Errors
    /// [`Error::Address`] says what is missing, with an example.
    pub fn parse(what: &str, text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| {
            let example = "expected something like http://127.0.0.1:8080";
            Error::Address(format!("{what} `{text}` {why}; {example}"))
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("has no scheme"));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => return Err(wrong("wants TLS, which this client does not speak")),
            _ => return Err(wrong(&format!("has the unknown scheme `{scheme}`"))),
        }
        let uri: http::Uri = text.parse().map_err(|e| wrong(&format!("is no address ({e})")))?;
        let authority = uri.authority().filter(|a| !a.host().is_empty());
        let authority = authority.ok_or_else(|| wrong("has no host"))?;
        let after_host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let port = match after_host.rsplit_once(':') {
            // The colons of `[::1]` are no port's.
            Some((_, digits)) if !digits.contains(']') => {
                digits.parse().map_err(|_| wrong(&format!("has the port `{digits}`")))?
            }
            _ => 80,
        };
        Ok(Target {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port,
            path: uri.path_and_query().map_or("/", |p| p.as_str()).to_owned(),
            authority: authority.as_str().to_owned(),
        })
    }

    /// The same host with another path.
    pub fn with_path(&self, path: &str) -> Self {
        Target { path: path.to_owned(), ..self.clone() }
    }

    /// The value of a `Host` header.
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let check = |text: &str, host: &str, port: u16, path: &str| {
            let target = Target::parse("--url", text).unwrap();
            assert_eq!(
                (target.host.as_str(), target.port, target.path.as_str()),
                (host, port, path)
            );
        };
        check("http://127.0.0.1:8080", "127.0.0.1", 8080, "/");
        check("http://localhost/v1", "localhost", 80, "/v1");
        check("HTTP://[::1]:81/a?b=c", "::1", 81, "/a?b=c");
        check("http://[::1]", "::1", 80, "/");
    }

    #[test]
    fn what_is_no_address_is_explained() {
        let check = |text: &str, expected: &str| {
            let error = Target::parse("--url", text).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(text), "{error}");
        };
        check("127.0.0.1:8080", "has no scheme; expected something like http://127.0.0.1:8080");
        check("localhost:8080/v1", "has no scheme");
        check("https://a", "wants TLS");
        check("ftp://a", "unknown scheme `ftp`");
        check("http://", "--url `http://`");
        check("http://a:99999", "has the port `99999`");
        check("http://a:b", "--url `http://a:b`");
    }
}
