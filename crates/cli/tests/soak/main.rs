//! A soak: thousands of requests through the proxy's process while everything around it fails.
//!
//! A scripted upstream, a process of its own, answers in every framing, cuts, resets, falls silent, and
//! is killed and started again; clients read slowly or leave. What each request comes to is known from
//! its number ([`script`]), so that nobody has to report. At the end nothing may be left: no request in
//! flight, no connection, no memory, no descriptor.
//!
//! `cargo xtask soak` runs it with 100,000 requests; as an ordinary test it has a few.

#[path = "../common/mod.rs"]
mod common;

mod client;
mod script;
mod upstream;
mod wire;

use client::{Client, Outcome};
use common::{Guard, ready};
use script::{Plan, SILENCE};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

/// Clients at once.
const CLIENTS: usize = 16;
/// The upstream is killed each time that so many requests have been begun.
const KILL_EVERY: u64 = 400;
/// How many requests the ordinary test makes.
const FEW: u64 = 2_000;
/// A client waits so long after a 502, or a dead upstream would use the requests up.
const BACK_OFF: Duration = Duration::from_millis(20);
/// Set in the upstream's process: its address, and the seed.
const ROLE: &str = "EVERWARM_SOAK_UPSTREAM";

fn number(variable: &str, otherwise: u64) -> u64 {
    let text = std::env::var(variable);
    text.map_or(otherwise, |text| text.parse().unwrap_or_else(|e| panic!("{variable}: {e}")))
}

/// Without a proxy between them, client and upstream agree on every script; so what a soak finds is
/// the proxy's doing. In the process that a soak starts, this is the upstream.
#[test]
fn upstream_and_judge_agree() {
    if let Ok(role) = std::env::var(ROLE) {
        let (address, seed) = role.split_once(' ').unwrap();
        let listener = TcpListener::bind(address).unwrap();
        println!("{}", listener.local_addr().unwrap());
        upstream::serve(&listener, seed.parse().unwrap());
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || upstream::serve(&listener, 1));
    let mut told = BTreeMap::new();
    for id in 0..300 {
        let plan = Plan::of(1, id);
        // What the proxy alone makes of these: a 502, an end of silence, another try.
        let proxys =
            matches!(plan.fault, Some(script::Fault::NoHead | script::Fault::Stall { .. }));
        if !proxys {
            // A connection each: who reuses one that closes has nobody here who tries again.
            let outcome = Client::of(address).run(&plan, || false);
            *told.entry(format!("{outcome:?}")).or_insert(0) += 1;
        }
    }
    assert!(["Whole", "Cut", "Left"].iter().all(|outcome| told[*outcome] > 3), "{told:?}");
}

/// The upstream's process, at an address that stays.
struct Upstream {
    address: SocketAddr,
    seed: u64,
    process: Option<Guard>,
    /// When it was, or may have been, down.
    down: RwLock<Vec<(Instant, Instant)>>,
}

impl Upstream {
    fn start(seed: u64) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let down = RwLock::new(Vec::new());
        let mut upstream = Upstream { address: free, seed, process: None, down };
        upstream.process = Some(upstream.spawn());
        upstream
    }

    /// Returns when it listens.
    fn spawn(&self) -> Guard {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["upstream_and_judge_agree", "--exact", "--nocapture"]);
        command.env(ROLE, format!("{} {}", self.address, self.seed));
        let mut guard = Guard(command.stdout(Stdio::piped()).spawn().unwrap());
        let out = BufReader::new(guard.0.stdout.as_mut().unwrap());
        let address = self.address.to_string();
        assert!(out.lines().map_while(Result::ok).any(|line| line.ends_with(&address)));
        guard
    }
}

/// Whether the upstream may have been down since `begun`.
fn was_down(down: &RwLock<Vec<(Instant, Instant)>>, begun: Instant) -> bool {
    down.read().unwrap().iter().any(|(_, up)| *up >= begun)
}

/// What a process holds, where the system tells.
#[derive(Clone, Copy, Debug)]
struct Held {
    rss_kib: u64,
    descriptors: usize,
}

fn held(pid: u32) -> Option<Held> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let rss_kib = rss.trim().trim_end_matches(" kB").parse().ok()?;
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
    Some(Held { rss_kib, descriptors })
}

fn ask(admin: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(admin).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn metric(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or("0").parse().unwrap_or_else(|_| panic!("{name} in {text}"))
}

#[test]
fn no_byte_is_lost_or_invented() {
    let requests = number("EVERWARM_SOAK_REQUESTS", FEW);
    let seed = number("EVERWARM_SOAK_SEED", 1);
    let began = Instant::now();
    let mut upstream = Upstream::start(seed);
    let url = format!("http://{}", upstream.address);
    let silence = format!("{} s", SILENCE.as_secs());
    let words = ["proxy", "--upstream", &url, "--device", "sim:m2", "--hold-for", "1 s"];
    let more = ["--idle-timeout", &silence, "--ignore-power", "--exit-with-parent", "--json"];
    let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let (proxy, line) = ready(&[&words[..], &more, &ports].concat());
    let address = |key: &str| -> SocketAddr {
        line[key].as_str().unwrap().strip_prefix("http://").unwrap().parse().unwrap()
    };
    let (listens, admin) = (address("url"), address("admin"));
    let pid = proxy.0.id();

    let next = AtomicU64::new(0);
    let tally: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let bytes = AtomicU64::new(0);
    let mut memory: Vec<Held> = held(pid).into_iter().collect();
    std::thread::scope(|scope| {
        let down = &upstream.down;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::of(listens);
                    loop {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        if id >= requests {
                            return;
                        }
                        let (plan, begun) = (Plan::of(seed, id), Instant::now());
                        let outcome = client.run(&plan, || was_down(down, begun));
                        if outcome == Outcome::NoAnswer {
                            std::thread::sleep(BACK_OFF);
                        }
                        *tally.lock().unwrap().entry(format!("{outcome:?}")).or_default() += 1;
                        bytes.fetch_add(plan.body.len() as u64, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for number in (KILL_EVERY..requests).step_by(KILL_EVERY as usize) {
            while next.load(Ordering::Relaxed) < number {
                assert!(clients.iter().any(|c| !c.is_finished()), "all clients have failed");
                std::thread::sleep(Duration::from_millis(5));
            }
            if number % (requests / 10).next_multiple_of(KILL_EVERY) == 0 {
                memory.extend(held(pid));
            }
            // Told before and after: whoever looks between the two sees that it is down.
            let killed = Instant::now();
            let far = killed + Duration::from_secs(3600);
            down.write().unwrap().push((killed, far));
            // Dropping the guard sends SIGKILL.
            drop(upstream.process.take());
            std::thread::sleep(Duration::from_millis(20));
            upstream.process = Some(upstream.spawn());
            down.write().unwrap().last_mut().unwrap().1 = Instant::now();
        }
    });
    let tally = tally.into_inner().unwrap();
    let waited = Instant::now();
    let (metrics, status) = loop {
        let (metrics, status) = (ask(admin, "/metrics"), ask(admin, "/status"));
        let still = metric(&metrics, "everwarm_requests_in_flight")
            + metric(&metrics, "everwarm_connections_open");
        // A hold that is over shows that the policy, too, knows of no request.
        if still == 0 && status.contains("\"state\":\"resting\"") {
            break (metrics, status);
        }
        assert!(waited.elapsed() < SILENCE * 4, "never came to rest: {status}\n{metrics}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let count = |outcome: &str| {
        metric(&metrics, &format!("everwarm_requests_total{{outcome=\"{outcome}\"}}"))
    };
    println!(
        "{requests} requests, seed {seed}, {:.1} s, {} MB of answers: {tally:?}; the proxy counted \
         complete {}, client_abort {}, upstream_cut {}, upstream_failure {}, retries {}",
        began.elapsed().as_secs_f64(),
        bytes.into_inner() / 1_000_000,
        count("complete"),
        count("client_abort"),
        count("upstream_cut"),
        count("upstream_failure"),
        metric(&metrics, "everwarm_upstream_retries_total"),
    );
    println!("held by the proxy at the start, meanwhile, and at the end: {memory:?}");
    println!("status at the end: {}", status.lines().last().unwrap_or_default());

    let energy = status.lines().last().unwrap_or_default();
    let energy: serde_json::Value = serde_json::from_str(energy).unwrap();
    let joules = |key: &str| energy["energy"][key].as_f64().unwrap();
    let (told, capped) = (joules("total_j"), joules("used_24h_j"));
    assert!((told - capped).abs() <= 0.01 * told, "the cap counts {capped} J of {told} J");
    assert_eq!(tally.values().sum::<u64>(), requests);
    for outcome in ["Whole", "Cut", "NoAnswer", "Left"] {
        assert!(tally.contains_key(outcome), "no request was {outcome}: {tally:?}");
    }
    let all: u64 =
        ["complete", "client_abort", "upstream_cut", "upstream_failure"].map(count).iter().sum();
    assert!(all <= requests && all >= requests - tally["Left"], "{all} of {requests} are counted");
    assert!(count("complete") >= tally["Whole"], "{metrics}");
    if let [_, settled, .., end] = memory[..] {
        let allowed = settled.rss_kib + settled.rss_kib / 4 + 4096;
        assert!(end.rss_kib <= allowed, "memory grew: {memory:?}");
        assert!(end.descriptors <= settled.descriptors + CLIENTS, "{memory:?}");
    }
}
