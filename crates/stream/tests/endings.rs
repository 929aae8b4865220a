//! How answers end, in every shape, streamed and whole, in any pieces.

use everwarm_stream::{End, Ending, Framing, Meter};
use everwarm_units::Instant;
use proptest::prelude::*;

const NOW: Instant = Instant::ZERO;

fn read<'a>(framing: Framing, end: End, pieces: impl Iterator<Item = &'a [u8]>) -> Ending {
    let mut meter = Meter::new(NOW, framing);
    for piece in pieces {
        meter.on_bytes(NOW, piece);
    }
    meter.on_end(NOW, end);
    meter.ending()
}

/// An event stream of `data`, each also named by its type, as the APIs that have types do.
fn events(data: &[&str]) -> String {
    data.iter().map(|data| format!("event: x\ndata: {data}\n\n")).collect()
}

/// A name, how it is framed, the bytes, the ending.
fn answers() -> Vec<(&'static str, Framing, String, Ending)> {
    use Ending::{ToolCalls, Turn, Unknown};
    use Framing::{Events, Json, JsonLines};
    let lines = |data: &[&str]| data.iter().map(|line| format!("{line}\n")).collect::<String>();
    let call = r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]}"#;
    let finish =
        |reason: &str| format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"{reason}"}}]}}"#);
    let (says_tools, says_stop, says_length) =
        (finish("tool_calls"), finish("stop"), finish("length"));
    let function_call = r#"{"choices":[{"delta":{"function_call":{"name":"f","arguments":"{"}}}]}"#;
    let text = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    let usage = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}"#;
    let item = r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"f","arguments":""}}"#;
    let search = r#"{"type":"response.output_item.done","item":{"type":"web_search_call","status":"completed"}}"#;
    let arguments = r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#;
    let done = r#"{"type":"response.completed","response":{"object":"response","id":"resp_1","status":"completed","output":[]}}"#;
    let done_call = r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message"},{"type":"function_call","name":"f"}]}}"#;
    let failed =
        r#"{"type":"response.failed","response":{"status":"failed","error":{"message":"m"}}}"#;
    let block = r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","name":"f","input":{}}}"#;
    let server_block = r#"{"type":"content_block_start","content_block":{"type":"server_tool_use","name":"web_search"}}"#;
    let stop_reason = |reason: &str| {
        format!(
            r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{{"output_tokens":1}}}}"#
        )
    };
    let (uses, ends, cut) =
        (stop_reason("tool_use"), stop_reason("end_turn"), stop_reason("max_tokens"));
    let pauses = stop_reason("pause_turn");
    let stop = r#"{"type":"message_stop"}"#;
    let ollama = r#"{"message":{"role":"assistant","content":"a"},"done":false}"#;
    let ollama_call = r#"{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"done":false}"#;
    let ollama_done = r#"{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","eval_count":3}"#;
    let ollama_load =
        r#"{"message":{"role":"assistant","content":""},"done":true,"done_reason":"load"}"#;
    vec![
        ("chat, text", Events, events(&[text, &says_stop, usage, "[DONE]"]), Turn),
        ("chat, tools", Events, events(&[text, call, &says_tools, usage, "[DONE]"]), ToolCalls),
        ("chat, tools and stop", Events, events(&[call, &says_stop, "[DONE]"]), ToolCalls),
        ("chat, a call broken off", Events, events(&[call, &says_length]), Turn),
        ("chat, function", Events, events(&[function_call, &finish("function_call")]), ToolCalls),
        ("chat, function and stop", Events, events(&[function_call, &says_stop]), ToolCalls),
        ("chat, no reason", Events, events(&[text, "[DONE]"]), Turn),
        ("chat, no reason, a call", Events, events(&[call, "[DONE]"]), ToolCalls),
        ("chat, an error", Events, events(&[text, r#"{"error":{"message":"m"}}"#]), Unknown),
        ("chat, nothing", Events, events(&["[DONE]"]), Unknown),
        ("chat, whole, text", Json, r#"{"choices":[{"message":{"content":"a","tool_calls":[]},"finish_reason":"stop"}]}"#.into(), Turn),
        ("chat, whole, tools", Json, r#"{"choices":[{"message":{"content":null,"tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}"#.into(), ToolCalls),
        ("chat, whole, stop", Json, r#"{"choices":[{"message":{"tool_calls":[{"function":{"name":"f"}}]},"finish_reason":"stop"}]}"#.into(), ToolCalls),
        ("text completion", Json, r#"{"choices":[{"text":"a","finish_reason":"stop"}]}"#.into(), Turn),
        ("embeddings", Json, r#"{"object":"list","data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":3}}"#.into(), Unknown),
        ("responses, text", Events, events(&[r#"{"type":"response.output_text.delta","delta":"a"}"#, done]), Turn),
        ("responses, an item", Events, events(&[item, arguments, done]), ToolCalls),
        ("responses, at the end", Events, events(&[done_call]), ToolCalls),
        ("responses, the server's tool", Events, events(&[search, done]), Turn),
        ("responses, failed", Events, events(&[item, failed]), Unknown),
        ("responses, whole", Json, r#"{"object":"response","id":"resp_1","status":"completed","output":[{"type":"function_call","name":"f"}]}"#.into(), ToolCalls),
        ("responses, whole, text", Json, r#"{"object":"response","status":"completed","output":[{"type":"message","content":[{"text":"a"}]}]}"#.into(), Turn),
        ("responses, queued", Json, r#"{"object":"response","status":"queued","output":[]}"#.into(), Unknown),
        ("messages, text", Events, events(&[&ends, stop]), Turn),
        ("messages, tools", Events, events(&[block, &uses, stop]), ToolCalls),
        ("messages, tools and end_turn", Events, events(&[block, &ends, stop]), ToolCalls),
        ("messages, a call broken off", Events, events(&[block, &cut, stop]), Turn),
        ("messages, paused", Events, events(&[server_block, &pauses, stop]), ToolCalls),
        ("messages, the server's tool", Events, events(&[server_block, &ends, stop]), Turn),
        ("messages, whole", Json, r#"{"type":"message","content":[{"type":"tool_use","name":"f","input":{}}],"stop_reason":"tool_use"}"#.into(), ToolCalls),
        ("messages, whole, text", Json, r#"{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn"}"#.into(), Turn),
        ("Ollama, text", JsonLines, lines(&[ollama, ollama_done]), Turn),
        ("Ollama, tools", JsonLines, lines(&[ollama_call, ollama_done]), ToolCalls),
        ("Ollama, whole, tools", Json, ollama_call.replace("false", "true"), ToolCalls),
        ("Ollama, whole, text", Json, ollama.replace("false", "true"), Turn),
        ("Ollama, a model loaded", Json, ollama_load.into(), Unknown),
        ("Ollama, generate", JsonLines, lines(&[r#"{"response":"a","done":false}"#, r#"{"response":"","done":true,"done_reason":"stop"}"#]), Turn),
        ("llama.cpp", Events, events(&[r#"{"content":"a","stop":false}"#, r#"{"content":"","stop":true,"stop_type":"eos"}"#]), Turn),
        ("compressed", Framing::of(Some("text/event-stream"), Some("gzip")), events(&[call, &says_tools]), Unknown),
        ("an image", Framing::of(Some("image/png"), None), events(&[text, &says_stop]), Unknown),
    ]
}

#[test]
fn every_shape_ends_as_it_says_at_every_split() {
    for (name, framing, text, expected) in answers() {
        let bytes = text.as_bytes();
        for split in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(split);
            let got = read(framing, End::Complete, [head, tail].into_iter());
            assert_eq!(got, expected, "{name}, split at {split}");
        }
    }
}

#[test]
fn what_is_cut_before_its_reason_has_no_ending() {
    for (name, framing, text, _) in answers() {
        let at = text.find("finish_reason").or(text.find("stop_reason")).or(text.find("status"));
        let Some(at) = at else { continue };
        let got = read(framing, End::Cut, [&text.as_bytes()[..at]].into_iter());
        assert_eq!(got, Ending::Unknown, "{name}");
    }
}

/// An answer whose reason was read has ended, even if its client closes without the rest.
#[test]
fn a_reason_counts_whatever_comes_after_it() {
    let text = events(&[r#"{"choices":[{"delta":{},"finish_reason":"tool_calls"}]}"#, "[DO"]);
    let got = read(Framing::Events, End::Cut, [text.as_bytes()].into_iter());
    assert_eq!(got, Ending::ToolCalls);
}

#[test]
fn an_end_too_large_to_be_read_is_told_by_what_came_before() {
    let call = r#"{"type":"response.output_item.done","item":{"type":"function_call","name":"f"}}"#;
    let delta = r#"{"type":"response.function_call_arguments.delta","delta":"{}"}"#;
    let large =
        format!(r#"{{"type":"response.completed","response":{{"x":"{}"}}}}"#, "y".repeat(1 << 21));
    let text = events(&[call, delta, &large]);
    let pieces = || text.as_bytes().chunks(64 * 1024);
    assert_eq!(read(Framing::Events, End::Complete, pieces()), Ending::ToolCalls);
}

proptest! {
    #[test]
    fn any_split_gives_the_same_ending(
        which in 0..answers().len(),
        cuts in prop::collection::vec(0.0..1.0f64, 0..12),
        crlf in any::<bool>(),
    ) {
        let (name, framing, text, expected) = answers().swap_remove(which);
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let mut cuts: Vec<usize> = cuts.iter().map(|c| (c * text.len() as f64) as usize).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]);
        prop_assert_eq!(read(framing, End::Complete, pieces), expected, "{}", name);
    }

    /// Any bytes at all, in any pieces, as anything: no panic, and one ending.
    #[test]
    fn noise_ends_one_way_in_any_pieces(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        size in 1usize..50,
        framing in prop::sample::select(vec![Framing::Events, Framing::JsonLines, Framing::Json]),
    ) {
        let whole = read(framing, End::Complete, [&bytes[..]].into_iter());
        prop_assert_eq!(read(framing, End::Complete, bytes.chunks(size)), whole);
    }
}
