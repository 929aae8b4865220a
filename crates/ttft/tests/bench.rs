//! The bench against a made-up server and proxy in one: it is slow when nothing came just before.

use everwarm_ttft::{Bench, Condition, Config, Label, Plan, Progress, Results};
use everwarm_units::Span;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How the made-up server behaves.
#[derive(Clone, Default)]
struct Server {
    /// Tokens that it adds to the words.
    template: usize,
    /// Every such request is said to have been simulated late; 0: none.
    late_every: usize,
    /// Status of every answer, if not 200.
    status: Option<&'static str>,
    /// Leaves out all content.
    silent: bool,
    /// Goes away after so many answers.
    answers_max: Option<usize>,
}

#[derive(Default)]
struct State {
    last_work: Option<Instant>,
    policy: String,
    policies: Vec<String>,
    hints: usize,
    prompts: Vec<String>,
}

const COLD_AFTER: Duration = Duration::from_millis(150);
const PENALTY: Duration = Duration::from_millis(100);
const WARM: Duration = Duration::from_millis(5);

fn start(server: Server) -> (String, Arc<Mutex<State>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let state = Arc::new(Mutex::new(State::default()));
    let shared = Arc::clone(&state);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (server, state) = (server.clone(), Arc::clone(&shared));
            thread::spawn(move || serve(stream, &server, &state));
        }
    });
    (url, state)
}

fn serve(stream: TcpStream, server: &Server, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut writer = stream;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1).and_then(|r| r.split("\r\n").next());
        let mut body = vec![0; length.map_or(0, |n| n.parse().unwrap())];
        reader.read_exact(&mut body).ok()?;
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        match head.split(' ').nth(1)? {
            "/hint" => {
                let mut state = state.lock().unwrap();
                state.hints += 1;
                state.last_work = Some(Instant::now());
                reply(&mut writer, "200 OK", "{}")?;
            }
            "/policy" => {
                let mut state = state.lock().unwrap();
                state.policy = body["policy"].as_str()?.to_owned();
                let policy = state.policy.clone();
                state.policies.push(policy);
                reply(&mut writer, "200 OK", "{}")?;
            }
            "/status" => reply(&mut writer, "200 OK", STATUS)?,
            "/v1/chat/completions" => chat(&mut writer, server, state, &body)?,
            _ => reply(&mut writer, "404 Not Found", r#"{"error":{"message":"no such path"}}"#)?,
        }
    }
}

/// Of a proxy that has no device.
const STATUS: &str = r#"{"last_prewarm":null,"hold_for_s":60.0,"warm":{"why":"no device"}}"#;

fn reply(to: &mut TcpStream, status: &str, body: &str) -> Option<()> {
    let length = body.len();
    write!(to, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").ok()
}

fn chat(
    to: &mut TcpStream,
    server: &Server,
    state: &Mutex<State>,
    body: &serde_json::Value,
) -> Option<()> {
    if let Some(status) = server.status {
        return reply(to, status, r#"{"error":{"message":"the model is not loaded"}}"#);
    }
    let prompt = body["messages"][0]["content"].as_str()?.to_owned();
    let (number, cold) = {
        let mut state = state.lock().unwrap();
        let cold = state.last_work.is_none_or(|at| at.elapsed() > COLD_AFTER);
        state.prompts.push(prompt.clone());
        (state.prompts.len(), cold)
    };
    if server.answers_max.is_some_and(|max| number > max) {
        return None; // the connection closes without an answer
    }
    thread::sleep(if cold { WARM + PENALTY } else { WARM });
    let tokens = prompt.split(' ').count() + server.template;
    let late = server.late_every > 0 && number % server.late_every == 0;
    let late = if late { 9.0 } else { 0.1 };
    let mut events =
        r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#.to_owned();
    if !server.silent {
        events += "\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}";
    }
    events += &format!(
        "\n\ndata: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{tokens},\"completion_tokens\":1}},\
         \"timings\":{{\"late_max_ms\":{late},\"late_p99_ms\":{late},\"prompt_ms\":5}}}}\n\n\
         data: [DONE]\n\n"
    );
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream";
    write!(to, "{head}\r\nContent-Length: {}\r\n\r\n{events}", events.len()).ok()?;
    state.lock().unwrap().last_work = Some(Instant::now());
    Some(())
}

fn plan(conditions: &[Condition]) -> Plan {
    Plan {
        rounds: vec![(16, 3)],
        conditions: conditions.to_vec(),
        idle: Span::ms(250),
        hint_lead: Span::ms(10),
        overhead_max: Span::s(60), // the machine that runs tests may be busy
        ..Plan::default()
    }
}

fn config(url: &str) -> Config {
    Config {
        url: url.to_owned(),
        admin: Some(url.to_owned()),
        device: None,
        hold: None,
        model: None,
        api_key: None,
        keep_alive: false,
        timeout: Span::s(20),
    }
}

fn run(plan: Plan, config: Config) -> Result<Results, String> {
    let bench = Bench::new(plan, config).map_err(|e| e.to_string())?;
    bench.run(|_| {}).map_err(|e| e.to_string())
}

#[test]
fn conditions_differ_and_nothing_is_lost() {
    let (url, state) = start(Server { template: 7, ..Server::default() });
    let conditions = [Condition::Idle, Condition::Busy, Condition::PreWarmHint];
    let bench = Bench::new(plan(&conditions), config(&url)).unwrap();
    let mut seen = 0;
    let results = bench.run(|p| seen += usize::from(matches!(p, Progress::Done(_)))).unwrap();
    assert_eq!((seen, results.samples.len()), (9, 9));
    let rows = results.rows();
    let [idle, busy, hint] = &rows[..] else { panic!("{rows:?}") };
    // Orders, not times: the machine may be busy.
    assert!(idle.ttft_ms.median > busy.ttft_ms.median, "{rows:?}");
    assert!(hint.penalty_removed.is_some_and(|share| share > 0.2), "{rows:?}");
    assert_eq!((idle.penalty_removed, busy.penalty_removed), (Some(0.0), Some(1.0)));
    assert!(rows.iter().all(|row| row.prompt_tokens == 16 && row.samples == 3), "{rows:?}");
    let state = state.lock().unwrap();
    assert_eq!(state.hints, 3);
    assert!(state.policies.windows(2).all(|w| w[0] != w[1]), "{:?}", state.policies);
    let firsts: std::collections::BTreeSet<_> =
        state.prompts.iter().map(|p| p.split(' ').next().unwrap()).collect();
    assert_eq!(firsts.len(), state.prompts.len());
    let json = results.to_json();
    assert_eq!(json["rows"][0]["condition"], "idle");
    assert!(json["rows"][0]["ttft_ms"]["median"].is_f64());
    assert_eq!(json["samples"].as_array().unwrap().len(), 9);
    assert!(json["proxy_remark"].as_str().is_some_and(|r| r.contains("nothing (no device)")));
    assert!(results.without_penalty().is_empty(), "{rows:?}");
}

#[test]
fn late_samples_are_repeated_and_too_many_make_no_number() {
    let some = Server { late_every: 4, ..Server::default() };
    let results = run(plan(&[Condition::Idle]), config(&start(some).0)).unwrap();
    let late = results.samples.iter().filter(|s| s.labels == [Label::Late]).count();
    assert_eq!((results.samples.len() - late, late), (3, 1));
    assert!(results.is_valid());
    assert_eq!(results.lateness().unwrap().max_ms, 9.0);

    let all = Server { late_every: 1, ..Server::default() };
    let results = run(plan(&[Condition::Idle]), config(&start(all).0)).unwrap();
    assert_eq!(results.samples.len(), 3 + 3, "three repeats are the bound");
    let row = &results.rows()[0];
    assert!(!row.valid && row.ttft_ms.median.is_none());
    assert!(row.why.as_deref().unwrap().contains("too busy to keep time"), "{:?}", row.why);
    assert!(everwarm_ttft::table(&results.rows()).contains("not valid: 0 valid of 6 samples"));
}

#[test]
fn a_client_that_waits_elsewhere_is_late_too() {
    // The made-up server says 5 ms of a prefill that takes 105.
    let strict = Plan { overhead_max: Span::ms(50), ..plan(&[Condition::Idle]) };
    let results = run(strict, config(&start(Server::default()).0)).unwrap();
    assert!(results.samples.iter().all(|s| s.labels == [Label::Late]), "{:?}", results.samples);
    assert!(results.samples.iter().all(|s| s.overhead_ms.is_some_and(|ms| ms > 90.0)));
}

#[test]
fn kept_connections_serve_too() {
    let (url, _) = start(Server::default());
    let kept = Config { keep_alive: true, ..config(&url) };
    let results = run(plan(&[Condition::Idle]), kept).unwrap();
    assert!(results.is_valid(), "{:?}", results.samples);
}

#[test]
fn servers_that_cannot_be_measured_say_why() {
    let check = |server: Server, expected: &str| {
        let error = run(plan(&[Condition::Idle]), config(&start(server).0)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    let status = |status| Server { status: Some(status), ..Server::default() };
    check(status("500 Oops"), "/v1/chat/completions: status 500 Internal Server Error: the model");
    check(status("404 Not Found"), "status 404 Not Found: the model is not loaded");
    check(Server { silent: true, ..Server::default() }, "the answer has no content (status 200");
    let going = Server { answers_max: Some(2), ..Server::default() };
    check(going, "3 requests in a row failed");

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = run(
        plan(&[Condition::Idle]),
        Config { admin: None, ..config(&format!("http://{nobody}")) },
    );
    let error = error.unwrap_err();
    assert!(error.contains("can't reach http://127.0.0.1") && error.contains("refused"), "{error}");
}

#[test]
fn conditions_without_what_they_need_are_refused() {
    let check = |condition, expected: &str| {
        let bare = Config { admin: None, ..config("http://127.0.0.1:9") };
        let error = run(plan(&[condition]), bare).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check(Condition::PreWarmHint, "pre-warm-hint needs the proxy's admin port");
    check(Condition::BusyHold, "busy-hold needs the GPU that is to be held; expected --device");
    let virtual_time = Config { device: Some("sim:m2".to_owned()), ..config("http://127.0.0.1:9") };
    let error = run(plan(&[Condition::Idle]), virtual_time).unwrap_err();
    assert!(error.contains("virtual time"), "{error}");
}
