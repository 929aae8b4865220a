//! Headers on their way through: hop-by-hop ones are dropped, everything else stays as it is.
//!
//! A map is rebuilt instead of removed from, because removal changes the order of what stays.
//! Repeated names keep their values' order; they come out next to each other.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use std::net::IpAddr;

/// Hop-by-hop by definition. Source: RFC 9110 7.6.1, and RFC 2616 13.5.1 for the proxy's own
/// authentication; `trailer` stays because trailers do.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Whether a message asks for, or grants, another protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upgrading {
    /// `Upgrade` and what `Connection` says of it pass.
    Yes,
    /// They are hop-by-hop like the others.
    No,
}

/// `headers` without the hop-by-hop ones and those that `Connection` names.
pub(crate) fn end_to_end(headers: &HeaderMap, upgrading: Upgrading) -> HeaderMap {
    let named = named_by_connection(headers);
    let hop = |name: &HeaderName| HOP_BY_HOP.contains(&name.as_str()) || named.contains(name);
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if upgrading == Upgrading::Yes && *name == header::UPGRADE {
            kept.append(name.clone(), value.clone());
        } else if upgrading == Upgrading::Yes && *name == header::CONNECTION {
            kept.insert(name.clone(), HeaderValue::from_static("Upgrade"));
        } else if !hop(name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// `headers` without the one called `name`, the others in their order.
pub(crate) fn without(headers: &HeaderMap, name: &HeaderName) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (other, value) in headers.iter().filter(|(other, _)| *other != name) {
        kept.append(other.clone(), value.clone());
    }
    kept
}

/// The names in `Connection`; but never one that the message can't do without.
fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lists = headers.get_all(header::CONNECTION).iter();
    let names = lists.flat_map(|v| v.as_bytes().split(|b| *b == b','));
    let names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    names.filter(|n| *n != header::HOST && *n != header::CONTENT_LENGTH).collect()
}

/// True if `Connection` has the option `name`.
pub(crate) fn connection_has(headers: &HeaderMap, name: &str) -> bool {
    named_by_connection(headers).iter().any(|n| n.as_str() == name)
}

/// Puts `value` where `Host` stands, or in front where there is none.
pub(crate) fn replace_host(headers: HeaderMap, value: HeaderValue) -> HeaderMap {
    let mut replaced = HeaderMap::with_capacity(headers.len() + 1);
    if !headers.contains_key(header::HOST) {
        replaced.append(header::HOST, value.clone());
    }
    for (name, old) in &headers {
        if *name != header::HOST {
            replaced.append(name.clone(), old.clone());
        } else if !replaced.contains_key(header::HOST) {
            replaced.append(header::HOST, value.clone());
        }
    }
    replaced
}

/// Says who asked for what: `peer`, for `host`, over plain HTTP. What a proxy in front has said of
/// the host and the protocol stays, and its list of addresses goes on.
pub(crate) fn x_forwarded(
    headers: &mut HeaderMap,
    peer: Option<IpAddr>,
    host: Option<&HeaderValue>,
) {
    if let Some(peer) = peer {
        let before = headers.get_all(FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
        let peer = peer.to_string();
        let list = before.chain([peer.as_bytes()]).collect::<Vec<_>>().join(b", ".as_slice());
        let list = HeaderValue::from_bytes(&list).expect("made of values and an address");
        headers.insert(FORWARDED_FOR, list);
    }
    if let Some(host) = host {
        headers.entry(FORWARDED_HOST).or_insert_with(|| host.clone());
    }
    headers.entry(FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
}

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// HTTP/2 cuts a list of cookies into fields of its own; before it there is one (RFC 9113 8.2.3).
pub(crate) fn join_cookies(headers: &mut HeaderMap) {
    let cookies = headers.get_all(header::COOKIE).iter();
    let cookies: Vec<&[u8]> = cookies.map(HeaderValue::as_bytes).collect();
    if cookies.len() > 1 {
        let joined = HeaderValue::from_bytes(&cookies.join(b"; ".as_slice()));
        headers.insert(header::COOKIE, joined.expect("made of values"));
    }
}

/// True for a request that would go on in HTTP/2: no protocol of its own, and so not to be passed on.
pub(crate) fn upgrades_to_http2(headers: &HeaderMap) -> bool {
    let value = headers.get(header::UPGRADE).map(HeaderValue::as_bytes);
    value.is_some_and(|v| v.trim_ascii().eq_ignore_ascii_case(b"h2c"))
}

/// How long the upstream says that it keeps an idle connection (`Keep-Alive: timeout=5`).
pub(crate) fn keep_alive_timeout(headers: &HeaderMap) -> Option<std::time::Duration> {
    let value = headers.get("keep-alive")?.to_str().ok()?;
    let parameters = value.split(',').filter_map(|p| p.trim().split_once('='));
    let (_, seconds) = { parameters }.find(|(k, _)| k.trim().eq_ignore_ascii_case("timeout"))?;
    seconds.trim().parse().ok().map(std::time::Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(n, v): &(&'static str, &'static str)| {
            (HeaderName::from_static(n), HeaderValue::from_static(v))
        };
        let mut map = HeaderMap::new();
        lines.iter().map(pair).for_each(|(n, v)| {
            map.append(n, v);
        });
        map
    }

    #[test]
    fn hop_by_hop_goes_and_order_stays() {
        let all = [
            ("host", "a"),
            ("connection", "close, x-once"),
            ("b", "1"),
            ("x-once", "gone"),
            ("a", "2"),
            ("keep-alive", "timeout=5"),
            ("a", "3"),
            ("te", "trailers"),
            ("z", ""),
        ];
        let kept = map(&[("host", "a"), ("b", "1"), ("a", "2"), ("a", "3"), ("z", "")]);
        let order =
            |m: &HeaderMap| m.iter().map(|(n, v)| (n.clone(), v.clone())).collect::<Vec<_>>();
        assert_eq!(order(&end_to_end(&map(&all), Upgrading::No)), order(&kept));
        let host = map(&[("host", "u"), ("b", "1"), ("a", "2"), ("a", "3"), ("z", "")]);
        let replaced = replace_host(kept, HeaderValue::from_static("u"));
        assert_eq!(order(&replaced), order(&host));
    }

    #[test]
    fn connection_cannot_name_what_is_needed() {
        let kept = end_to_end(
            &map(&[("connection", "host, Content-Length"), ("host", "a")]),
            Upgrading::No,
        );
        assert!(kept.contains_key("host"));
        assert!(connection_has(&map(&[("connection", "keep-alive, Upgrade")]), "upgrade"));
    }

    #[test]
    fn who_asked_is_added_to_what_is_known() {
        let check = |before: &[_], expected: &[_]| {
            let mut headers = map(before);
            let host = HeaderValue::from_static("desk");
            x_forwarded(&mut headers, Some([127, 0, 0, 1].into()), Some(&host));
            assert_eq!(headers, map(expected));
        };
        let (host, proto) = (("x-forwarded-host", "desk"), ("x-forwarded-proto", "http"));
        check(&[], &[("x-forwarded-for", "127.0.0.1"), host, proto]);
        check(
            &[
                ("x-forwarded-for", "1.2.3.4"),
                ("x-forwarded-for", "::1, a"),
                ("x-forwarded-proto", "https"),
            ],
            &[
                ("x-forwarded-for", "1.2.3.4, ::1, a, 127.0.0.1"),
                ("x-forwarded-proto", "https"),
                host,
            ],
        );
    }

    #[test]
    fn cookies_are_one_field() {
        let mut headers = map(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")]);
        join_cookies(&mut headers);
        assert_eq!(headers, map(&[("cookie", "a=1; b=2"), ("x", "y")]));
    }

    #[test]
    fn keep_alive_limits() {
        let check = |value, expected: Option<u64>| {
            let got = keep_alive_timeout(&map(&[("keep-alive", value)]));
            assert_eq!(got, expected.map(std::time::Duration::from_secs));
        };
        check("timeout=5, max=100", Some(5));
        check("max=3,Timeout = 2", Some(2));
        check("max=3", None);
    }
}
