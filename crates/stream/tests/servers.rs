//! Streams in the shapes of the servers we know, at every split point.

use everwarm_stream::{End, Framing, Meter};
use everwarm_units::{Instant, Span};
use proptest::prelude::*;

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::ms(ms)
}

/// `pieces` seen at 10, 20, 30 … ms, as "ttft contents finish prompt/completion error".
fn summary(framing: Framing, pieces: &[&[u8]]) -> String {
    let mut meter = Meter::new(at(0), framing);
    let mut now = 0;
    for piece in pieces {
        now += 10;
        meter.on_bytes(at(now), piece);
    }
    meter.on_end(at(now), End::Complete);
    let or = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
    format!(
        "{} {} {} {}/{} {}",
        meter.ttft().map_or("-".to_owned(), |t| format!("{}ms", t.as_ms())),
        meter.contents(),
        meter.finish_reason().unwrap_or("-"),
        or(meter.prompt_tokens()),
        or(meter.completion_tokens()),
        meter.error().unwrap_or("-"),
    )
}

/// A summary without its TTFT.
fn timeless(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(_, rest)| rest)
}

/// In its own pieces it sums up as `expected`; split anywhere it says the same but for the times.
fn check(framing: Framing, pieces: &[&str], expected: &str) {
    let whole: Vec<&[u8]> = pieces.iter().map(|p| p.as_bytes()).collect();
    assert_eq!(summary(framing, &whole), expected);
    let bytes = whole.concat();
    for split in 0..=bytes.len() {
        let (head, tail) = bytes.split_at(split);
        let got = summary(framing, &[head, tail]);
        assert_eq!(timeless(&got), timeless(expected), "split at {split}");
    }
    let ones: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(timeless(&summary(framing, &ones)), timeless(expected), "byte by byte");
}

#[test]
fn chat_with_a_role_first_and_usage_last() {
    check(
        Framing::Events,
        &[
            ":\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"水\"},\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"content\":\"\u{1F469}\u{200D}\u{1F680}\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n",
            "data: [DONE]\n\n",
        ],
        "30ms 2 stop 7/3 -",
    );
}

#[test]
fn chat_with_role_and_content_at_once_and_keep_alives() {
    check(
        Framing::Events,
        &[
            ": keepalive 2048/4096\r\n\r\n",
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n",
            "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}]}\r\n\r\n",
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}],\
             \"timings\":{\"cache_n\":4,\"prompt_n\":3,\"predicted_n\":1}}\r\n\r\n",
        ],
        "30ms 1 length 7/1 -",
    );
}

#[test]
fn reasoning_and_tool_calls_are_content() {
    check(
        Framing::Events,
        &[
            "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\
             \"arguments\":\"\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":\
             {\"arguments\":\"{}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
        ],
        "10ms 3 tool_calls -/- -",
    );
}

#[test]
fn text_completions_and_llama_native() {
    check(
        Framing::Events,
        &[
            "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n",
            "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n",
        ],
        "10ms 1 stop -/- -",
    );
    check(
        Framing::Events,
        &[
            "data: {\"index\":0,\"content\":\"a\",\"stop\":false,\"tokens_evaluated\":3}\n\n",
            "data: {\"content\":\"\",\"stop\":true,\"stop_type\":\"limit\",\"tokens_predicted\":1,\
             \"tokens_evaluated\":3,\"timings\":{\"prompt_n\":3}}\n\n",
        ],
        "10ms 1 limit 3/1 -",
    );
}

#[test]
fn responses_and_messages() {
    check(
        Framing::Events,
        &[
            "event: response.created\ndata: {\"type\":\"response.created\",\"response\":\
             {\"status\":\"in_progress\"}}\n\n",
            "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\
             \"part\":{\"text\":\"\"}}\n\n",
            "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\
             \"delta\":\"a\"}\n\n",
            "event: response.output_text.done\ndata: {\"type\":\"response.output_text.done\",\
             \"text\":\"a\"}\n\n",
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":\
             {\"object\":\"response\",\"status\":\"completed\",\"usage\":{\"input_tokens\":16,\
             \"output_tokens\":1}}}\n\n",
        ],
        "30ms 1 completed 16/1 -",
    );
    check(
        Framing::Events,
        &[
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"role\":\
             \"assistant\",\"content\":[],\"usage\":{\"input_tokens\":9,\"output_tokens\":0}}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\
             \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":\
             {\"type\":\"text_delta\",\"text\":\"é\"}}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\
             \"max_tokens\"},\"usage\":{\"output_tokens\":1}}\n\n",
        ],
        "40ms 1 max_tokens 9/1 -",
    );
}

#[test]
fn ollama_lines() {
    check(
        Framing::JsonLines,
        &[
            "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n",
            "{\"message\":{\"role\":\"assistant\",\"content\":\"水\"},\"done\":false}\n",
            "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\
             \"prompt_eval_count\":26,\"eval_count\":1}\n",
        ],
        "20ms 1 stop 26/1 -",
    );
    check(
        Framing::JsonLines,
        &["{\"response\":\"a\",\"done\":false}\n", "{\"done\":true,\"done_reason\":\"length\"}"],
        "10ms 1 length -/- -",
    );
}

#[test]
fn whole_answers_count_at_their_last_byte() {
    check(
        Framing::Json,
        &[
            "{\"choices\":[{\"message\":{\"content\":\"hel",
            "lo\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":4,\
             \"completion_tokens\":2}}",
        ],
        "20ms 1 stop 4/2 -",
    );
}

#[test]
fn an_error_inside_the_stream_is_told() {
    let broken = "data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n";
    let said = summary(Framing::Events, &[broken.as_bytes()]);
    assert_eq!(said, "- 0 - -/- out of memory");
    let said = summary(Framing::Json, &[b"{\"error\":\"no messages\"}"]);
    assert_eq!(said, "- 0 - -/- no messages");
}

#[test]
fn times_between_tokens() {
    let token = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let mut meter = Meter::new(at(5), Framing::Events);
    assert_eq!(meter.tpot(), None);
    for ms in [105, 125, 155] {
        assert_eq!(meter.on_bytes(at(ms), token), ms == 105);
    }
    assert_eq!(meter.ttft(), Some(Span::ms(100)));
    assert_eq!(meter.gaps().collect::<Vec<_>>(), [Span::ms(20), Span::ms(30)]);
    assert_eq!(meter.tpot(), Some(Span::ms(25)));
    // Five tokens in three events.
    meter.on_bytes(at(160), b"data: {\"choices\":[],\"usage\":{\"completion_tokens\":6}}\n\n");
    assert_eq!(meter.tpot(), Some(Span::ms(10)));
}

#[test]
fn framing_by_content_type() {
    let check = |kind, encoding, expected| assert_eq!(Framing::of(kind, encoding), expected);
    check(Some("text/event-stream; charset=utf-8"), None, Framing::Events);
    check(Some("Text/Event-Stream"), Some("identity"), Framing::Events);
    check(Some("text/event-stream"), Some("gzip"), Framing::Opaque);
    check(Some("application/x-ndjson"), None, Framing::JsonLines);
    check(Some("application/json"), None, Framing::Json);
    check(None, None, Framing::Opaque);
}

proptest! {
    /// Any bytes in any framing: no panic, and what is seen does not depend on the pieces.
    #[test]
    fn rubbish_is_survived(bytes in prop::collection::vec(
        prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b'd'), Just(b'{'), any::<u8>()],
        0..200,
    ), step in 1usize..20) {
        for framing in [Framing::Events, Framing::JsonLines, Framing::Json, Framing::Opaque] {
            let pieces: Vec<&[u8]> = bytes.chunks(step).collect();
            let whole = summary(framing, &[&bytes]);
            let split = summary(framing, &pieces);
            prop_assert_eq!(timeless(&split), timeless(&whole));
        }
    }
}
