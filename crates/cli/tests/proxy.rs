//! `everwarm proxy` as a process: its ready line, its end, and clear errors.

mod common;

use common::{Guard, everwarm, ready, signal};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

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
fn the_ready_line_promises_no_warming_that_does_not_happen() {
    let check = |device: &str, expected: &[&str]| {
        let words = "proxy --upstream http://127.0.0.1:9 --listen 127.0.0.1:0 --admin off";
        let mut command = everwarm(&words.split_whitespace().collect::<Vec<_>>());
        command.args(["--exit-with-parent", "--device", device]);
        let pipes = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Guard(pipes.spawn().unwrap());
        let mut said = String::new();
        BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        signal(&child.0, "TERM");
        child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        for part in expected {
            assert!(said.contains(part), "{device}: no `{part}` in {said}");
        }
    };
    check("none", &["warming nothing"]);
    check("sim:/nowhere/gpu.sock", &["not warming sim:/nowhere/gpu.sock yet", "warning: "]);
    check("sim:m2", &["nothing real", "simulated in this process alone"]);
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
    check(&[&upstream[..], &["--device", "gpu"]].concat(), &["`gpu`", "there are ", "sim:m2"]);
    // A port that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let own = ["--upstream", &format!("http://{free}"), "--listen", &free];
    check(&[&own[..], &["--admin", "off"]].concat(), &["the proxy itself"]);
}

/// The share of `span` that a shared simulated GPU spends switched off, as another client sees it.
fn off(gpu: &mut dyn everwarm_gpu::Backend, span: Duration) -> f64 {
    let spent = |gpu: &mut dyn everwarm_gpu::Backend| gpu.counters().unwrap().residency.unwrap();
    let before = spent(gpu);
    std::thread::sleep(span);
    let after = spent(gpu);
    let passed =
        after.iter().zip(&before).map(|(after, before)| after.as_secs() - before.as_secs());
    let all: Vec<f64> = passed.collect();
    all[0] / all.iter().sum::<f64>()
}

#[test]
fn a_killed_proxy_leaves_no_hold_behind() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gpu");
    let server = ["sim-server", "--listen", "127.0.0.1:0", "--json", "--socket"];
    let _gpu = ready(&[&server[..], &[socket.to_str().unwrap()]].concat());
    let device = format!("sim:{}", socket.display());
    let mut watcher = everwarm_gpu::open(&device).unwrap();
    let words = "proxy --upstream http://127.0.0.1:9 --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
                 --policy always --ignore-power --json --device";
    let words: Vec<&str> = words.split_whitespace().chain([device.as_str()]).collect();
    let (mut proxy, _) = ready(&words);
    let short = Duration::from_millis(300);
    let began = Instant::now();
    while off(&mut *watcher, short) > 0.1 {
        assert!(began.elapsed() < Duration::from_secs(20), "it never held");
    }
    signal(&proxy.0, "KILL");
    proxy.0.wait().unwrap();
    // Its last kernels run out, and the GPU falls asleep.
    std::thread::sleep(Duration::from_secs(1));
    let asleep = off(&mut *watcher, short);
    assert!(asleep > 0.99, "switched off for {asleep} of the time only");
}
