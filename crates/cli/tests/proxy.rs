//! `everwarm proxy` as a process: its ready line, its end, and clear errors.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

const EVERWARM: &str = env!("CARGO_BIN_EXE_everwarm");

fn proxy(words: &[&str]) -> Command {
    let mut command = Command::new(EVERWARM);
    command.arg("proxy").args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts one on free ports and reads its ready line.
fn ready(words: &[&str]) -> (Child, serde_json::Value) {
    let mut all = vec!["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--json"];
    all.extend(words);
    let mut child = proxy(&all).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, serde_json::from_str(&line).unwrap())
}

#[test]
fn it_is_ready_and_ends_on_a_signal() {
    let words = ["--upstream", "http://127.0.0.1:9", "--device", "none", "--hold-for", "0 s"];
    for name in ["TERM", "INT"] {
        let (mut child, line) = ready(&words);
        for url in [&line["url"], &line["admin"]] {
            let address = url.as_str().unwrap().strip_prefix("http://").unwrap();
            std::net::TcpStream::connect(address).unwrap();
        }
        let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn what_cannot_start_says_why() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let upstream = ["--upstream", "http://127.0.0.1:9"];
    let check = |words: &[&str], expected: &[&str]| {
        let output = proxy(words).output().unwrap();
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
    let own = ["--upstream", "http://127.0.0.1:18999", "--listen", "127.0.0.1:18999"];
    check(&[&own[..], &["--admin", "off"]].concat(), &["the proxy itself"]);
}
