//! `everwarm proxy` as a process: its ready line, its end, and clear errors.

mod common;

use common::{everwarm, ready, signal};
use std::net::TcpListener;

#[test]
fn it_is_ready_and_ends_on_a_signal() {
    let words = "proxy --upstream http://127.0.0.1:9 --device none --listen 127.0.0.1:0 \
                 --admin 127.0.0.1:0 --json";
    for name in ["TERM", "INT"] {
        let (mut child, line) = ready(&words.split_whitespace().collect::<Vec<_>>());
        for url in [&line["url"], &line["admin"]] {
            let address = url.as_str().unwrap().strip_prefix("http://").unwrap();
            std::net::TcpStream::connect(address).unwrap();
        }
        signal(&child.0, name);
        assert_eq!(child.0.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn what_cannot_start_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let upstream = ["--upstream", "http://127.0.0.1:9"];
    let check = |words: &[&str], expected: &[&str]| {
        let output = everwarm(&[&["proxy"], words].concat()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{words:?} started");
        for part in expected {
            assert!(err.contains(part), "{words:?}: no `{part}` in {err}");
        }
    };
    check(&["--upstream", "127.0.0.1:8080"], &["`127.0.0.1:8080` has no scheme", "http://"]);
    let busy = [&upstream[..], &["--device", "none", "--listen", &taken]].concat();
    check(&busy, &[&taken, "--listen", "another program uses port"]);
    let policy = [&upstream[..], &["--policy", "sometimes"]].concat();
    check(&policy, &["sometimes", "study", "never", "always"]);
    check(&[&upstream[..], &["--hold-for", "60"]].concat(), &["`60` has no unit"]);
    check(&[&upstream[..], &["--admin", "on"]].concat(), &["`on`".trim_matches('`'), "off"]);
    // A device that may come later is no reason; these never will.
    check(&[&upstream[..], &["--device", "sim:m9"]].concat(), &["`sim:m9`", "m2, m1"]);
    check(&[&upstream[..], &["--device", "gpu"]].concat(), &["`gpu`", "there are sim:m2"]);
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let own = ["--upstream", &format!("http://{free}"), "--listen", &free];
    check(&[&own[..], &["--admin", "off"]].concat(), &["the proxy itself"]);
}
