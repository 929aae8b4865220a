//! The OpenAI-compatible API, over real connections and in real time.

use crate::common::{chat, request, serve};
use everwarm_gpu::Backend;
use everwarm_sim_server::{Config, Error, Handle, spawn};
use everwarm_units::Span;
use everwarm_workload::Runtime;
use serde_json::Value;
use std::time::Instant;

fn post(server: &Handle, body: &str) -> crate::common::Response {
    request(server, "POST", "/v1/chat/completions", body)
}

fn ms(timings: &Value, key: &str) -> f64 {
    timings[key].as_f64().unwrap_or_else(|| panic!("no {key} in {timings}"))
}

#[test]
fn a_whole_answer_has_its_tokens_and_its_times() {
    let (server, _folder) = serve("mlx");
    let answer = post(&server, &chat(12, r#", "max_tokens": 3"#)).json();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(choice["message"]["content"].as_str().unwrap().split(' ').count(), 3);
    assert_eq!(answer["usage"]["prompt_tokens"], 16);
    assert_eq!(answer["usage"]["completion_tokens"], 3);
    let timings = &answer["timings"];
    assert_eq!((&timings["prompt_n"], &timings["predicted_n"]), (&16.into(), &3.into()));
    assert!((100.0..200.0).contains(&ms(timings, "prompt_ms")), "{timings}");
    assert!((40.0..80.0).contains(&ms(timings, "predicted_ms")), "{timings}");
    let runtime = Runtime::built_in("mlx").unwrap();
    assert_eq!(ms(timings, "tokenize_ms"), runtime.tokenize(16).as_ms());
    assert!(ms(timings, "late_p99_ms") <= ms(timings, "late_max_ms"));
    let text = r#"{"prompt": "one two three", "max_tokens": 2}"#;
    let answer = request(&server, "POST", "/v1/completions", text).json();
    assert_eq!(answer["usage"]["total_tokens"], 5);
    assert_eq!(answer["choices"][0]["text"].as_str().unwrap().split(' ').count(), 2);
}

#[test]
fn a_stream_is_role_contents_finish_usage_and_done() {
    for runtime in ["mlx", "llamacpp"] {
        let (server, _folder) = serve(runtime);
        let rest =
            r#", "max_tokens": 2, "stream": true, "stream_options": {"include_usage": true}"#;
        let mut response = post(&server, &chat(12, rest));
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some("text/event-stream"));
        let mut events = Vec::new();
        while let Some((_, data)) = response.event() {
            events.push(data);
        }
        assert_eq!(events.pop().as_deref(), Some("[DONE]"));
        let events: Vec<Value> =
            events.iter().map(|data| serde_json::from_str(data).unwrap()).collect();
        let [role, first, second, finish, usage] = &events[..] else { panic!("{events:?}") };
        let delta = |event: &Value| event["choices"][0]["delta"].clone();
        assert_eq!(delta(role)["role"], "assistant");
        assert_eq!(delta(role)["content"], "", "the role comes before any token");
        assert!(delta(first)["content"].as_str().is_some_and(|text| !text.is_empty()));
        assert!(delta(second)["content"].as_str().is_some_and(|text| text.starts_with(' ')));
        assert_eq!(finish["choices"][0]["finish_reason"], "length");
        assert!(finish.get("timings").is_none());
        assert_eq!(usage["choices"], Value::Array(vec![]));
        assert_eq!(usage["usage"]["completion_tokens"], 2);
        assert_eq!(usage["timings"]["prompt_n"], 16);
    }
}

#[test]
fn the_first_token_comes_when_the_simulation_has_it() {
    let (server, _folder) = serve("mlx");
    // A machine that is too busy to keep time says so, and can't be judged by the wall clock.
    let mut judged = Vec::new();
    for _ in 0..8 {
        let sent = Instant::now();
        let mut response = post(&server, &chat(12, r#", "max_tokens": 1, "stream": true"#));
        let (mut first, mut timings) = (None, Value::Null);
        while let Some((at, data)) = response.event() {
            let event: Value = serde_json::from_str(&data).unwrap_or_default();
            let content = event["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
            if !content.is_empty() {
                first.get_or_insert(at);
            }
            if let Some(found) = event.get("timings") {
                timings = found.clone();
            }
        }
        let ttft = (first.expect("a token") - sent).as_secs_f64() * 1e3;
        let simulated = ms(&timings, "tokenize_ms") + ms(&timings, "prompt_ms");
        assert!(ttft > simulated, "{ttft} ms by the clock, {simulated} ms simulated");
        if ms(&timings, "late_max_ms") < 1.0 {
            judged.push(ttft - simulated);
            if judged.last().is_some_and(|over| *over < 3.0) {
                return;
            }
        }
    }
    assert!(judged.is_empty(), "on time, yet over by {judged:?} ms");
    eprintln!("not judged: the machine was too busy to keep time");
}

/// For how long the GPU is still busy after `leave` has been called.
fn busy_after(server: &Handle, leave: impl FnOnce()) -> Span {
    let mut gpu = everwarm_gpu::open(&server.device()).unwrap();
    let busy = |gpu: &mut dyn Backend| {
        let counters = gpu.counters().unwrap();
        Span::from_secs(counters.busy.unwrap() * counters.at.as_ms() / 1e3)
    };
    let before = busy(gpu.as_mut());
    leave();
    let later = gpu.now() + Span::ms(400);
    gpu.sleep_until(later);
    busy(gpu.as_mut()).saturating_sub(before)
}

#[test]
fn a_client_that_leaves_frees_the_gpu() {
    let (server, _folder) = serve("mlx");
    // In the middle of a stream.
    let mut stream = post(&server, &chat(12, r#", "max_tokens": 4000, "stream": true"#));
    (0..4).for_each(|_| drop(stream.event().unwrap()));
    let busy = busy_after(&server, move || drop(stream));
    assert!(busy < Span::ms(150), "busy for {busy} after the client left its stream");
    // During a prefill of several seconds, before any answer.
    let address = server.url().replace("http://", "");
    let waiting = std::net::TcpStream::connect(&address).unwrap();
    let body = chat(2000, "");
    let head =
        format!("POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {}", body.len());
    std::io::Write::write_all(&mut &waiting, format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    let busy = busy_after(&server, move || drop(waiting));
    assert!(busy < Span::ms(150), "busy for {busy} after the client left its prefill");
}

#[test]
fn requests_wait_for_each_other() {
    let (server, _folder) = serve("llamacpp");
    let first = post(&server, &chat(12, r#", "max_tokens": 8, "stream": true"#));
    // (The head of a llama.cpp-like stream comes when the request leaves the queue, so the first
    // has begun.)
    let second = post(&server, &chat(12, r#", "max_tokens": 1"#)).json();
    let queued = ms(&second["timings"], "queue_ms");
    assert!(queued > 100.0, "it waited {queued} ms for 8 tokens of another");
    drop(first);
    let first = post(&server, &chat(12, r#", "max_tokens": 8, "stream": true"#));
    let asked = Instant::now();
    let second = post(&server, &chat(12, r#", "max_tokens": 1, "stream": true"#));
    let head = asked.elapsed().as_millis();
    assert!(head > 100, "the head came after {head} ms, while the other had the slot");
    drop((first, second));
}

#[test]
fn what_is_wrong_gets_a_code_and_a_reason() {
    let (server, _folder) = serve("mlx");
    let check = |method, path, body: &str, status, reason: &str| {
        let response = request(&server, method, path, body);
        assert_eq!(response.status, status, "{method} {path} {body}");
        assert_eq!(response.header("access-control-allow-origin"), Some("*"));
        let error = response.json()["error"].clone();
        assert_eq!(error["code"], status);
        assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
    };
    check("POST", "/v1/chat/completions", "{", 400, "not JSON");
    check("POST", "/v1/chat/completions", "{}", 400, "`messages` is missing");
    check("POST", "/v1/completions", r#"{"prompt": 5}"#, 400, "`prompt` is 5");
    check("POST", "/v1/chat/completions", &chat(8189, ""), 400, "the context 8192");
    check("GET", "/v1/chat/completions", "", 405, "expected POST");
    check("DELETE", "/health", "", 405, "expected GET");
    check("POST", "/v1/embeddings", "{}", 404, "/v1/embeddings");
    let options = request(&server, "OPTIONS", "/v1/chat/completions", "");
    assert_eq!(options.status, 204);
    assert_eq!(options.header("access-control-allow-headers"), Some("*"));
    assert_eq!(request(&server, "GET", "/health", "").json()["status"], "ok");
    let models = request(&server, "GET", "/v1/models", "").json();
    assert!(models["data"][0]["id"].is_string(), "{models}");
}

#[test]
fn a_busy_port_is_named() {
    let (server, folder) = serve("mlx");
    let mut config = Config::new("sim:m2", Runtime::built_in("mlx").unwrap());
    config.socket = Some(folder.path().join("other"));
    config.listen = server.url().replace("http://", "").parse().unwrap();
    let error = spawn(config).map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Listen { .. }));
    assert!(error.to_string().contains("something else listens there"), "{error}");
    assert!(!folder.path().join("other").exists());
}
