//! `everwarm proxy` in front of a real mlx_lm.server, which speaks HTTP/1.0 and ends streams by
//! closing.

mod common;

use std::time::Duration;

use common::{Behind, ask, curl, openai};
use everwarm_real_servers::{Request, lateness, mlx_server};

fn behind() -> Behind {
    Behind::new(mlx_server().expect("mlx_lm.server starts"), "")
}

#[test]
#[ignore = "needs mlx_lm.server: cargo xtask test"]
fn mlx_answers_pass_unchanged() {
    let behind = behind();
    let unknown = ask(8, false).replace("{\"messages\"", "{\"model\": \"no-such\", \"messages\"");
    let asked = [
        Request::new("GET", "/health"),
        Request::new("HEAD", "/health"),
        Request::new("GET", "/v1/models"),
        Request::new("GET", "/no/such/path"),
        Request::new("OPTIONS", "/v1/chat/completions").header("Origin", "http://desk.test"),
        Request::post("/v1/chat/completions", &ask(8, false)),
        Request::post("/v1/chat/completions", "{\"messages\": ["),
        Request::post("/v1/chat/completions", "{}"),
        Request::post("/v1/chat/completions", &unknown),
        Request::post("/no/such/path", "{}"),
    ];
    for request in asked {
        behind.passes_unchanged(&request);
    }
}

#[test]
#[ignore = "needs mlx_lm.server: cargo xtask test"]
fn mlx_streams_end_when_the_server_ends_them() {
    let behind = behind();
    for tokens in [1, 300] {
        let request = Request::post("/v1/chat/completions", &ask(tokens, true));
        let (got, sent) = behind.passes_unchanged(&request);
        assert!(sent.head.start.starts_with("HTTP/1.0 200"), "{}", sent.head.start);
        assert!(got.text().ends_with("data: [DONE]\n\n"), "{}", got.text());
        let late = lateness(&got, &sent).expect("all came");
        assert!(late < Duration::from_millis(100), "{tokens} tokens: {late:?} late");
    }
}

#[test]
#[ignore = "needs mlx_lm.server: cargo xtask test"]
fn mlx_refuses_a_request_in_chunks_by_itself() {
    let behind = behind();
    let request = Request::post("/v1/chat/completions", &ask(4, false)).in_chunks();
    let (got, _) = behind.passes_unchanged(&request);
    assert_eq!(got.head.status(), 411, "{}", got.text());
}

#[test]
#[ignore = "needs mlx_lm.server: cargo xtask test"]
fn mlx_serves_the_openai_client_and_curl() {
    let behind = behind();
    openai(&behind);
    curl(&behind);
}

#[test]
#[ignore = "needs mlx_lm.server: cargo xtask test"]
fn mlx_client_that_leaves_is_gone_upstream() {
    let behind = behind();
    for by_reset in [false, true] {
        let stream = Request::post("/v1/chat/completions", &ask(2000, true));
        behind.leaves(&stream, Some(400), by_reset);
        let whole = Request::post("/v1/chat/completions", &ask(2000, false));
        behind.leaves(&whole, None, by_reset);
    }
}
