//! The stream tap: lines, events, and the meter over them, in pieces of any size.
//!
//! The first three bytes of an input say how to read the rest: which framing, how long a line or
//! event may be, and how it is cut. The second readers here see all bytes at once, so they can be
//! written as the standard puts it.

use crate::pieces;
use everwarm_stream::{End, Framing, Line, Lines, Meter, Sse, read};
use everwarm_units::Instant;

/// An event: its name and its data.
type Event = (Vec<u8>, Vec<u8>);

pub fn check(data: &[u8]) {
    let [how, limit, cut, body @ ..] = data else { return };
    let limit = usize::from(*limit) + 1;
    // Facts are read from one event's data whatever surrounds it.
    read(body);
    lines(body, limit, *cut);
    events(body, limit, *cut);
    let framings = [Framing::Events, Framing::JsonLines, Framing::Json, Framing::Opaque];
    meter(body, framings[usize::from(*how) % framings.len()], *cut);
}

fn lines(body: &[u8], limit: usize, cut: u8) {
    for cr_ends in [false, true] {
        let mut reader = if cr_ends { Lines::of_events(limit) } else { Lines::of_json(limit) };
        let mut got = Vec::new();
        let mut keep = |line: Line<'_>| match line {
            Line::Whole(bytes) => got.push(Some(bytes.to_vec())),
            Line::TooLong => got.push(None),
        };
        pieces::of(body, cut).for_each(|piece| reader.push(piece, &mut keep));
        reader.finish(&mut keep);
        assert_eq!(got, simple_lines(body, limit, cr_ends), "cr_ends {cr_ends}");
    }
}

/// Every line of `body`, `None` for one of more than `limit` bytes; the last one may lack its end.
fn simple_lines(body: &[u8], limit: usize, cr_ends: bool) -> Vec<Option<Vec<u8>>> {
    let mut lines = vec![Vec::new()];
    let mut bytes = body.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' if cr_ends => drop(bytes.next_if_eq(&b'\n')),
            b'\n' => {}
            other => {
                lines.last_mut().expect("there is a line").push(other);
                continue;
            }
        }
        lines.push(Vec::new());
    }
    lines.pop_if(|last| last.is_empty());
    lines.into_iter().map(|line| (line.len() <= limit).then_some(line)).collect()
}

fn events(body: &[u8], limit: usize, cut: u8) {
    let parsed = |seed: Option<u8>| {
        let mut sse = Sse::new(limit);
        let mut all: Vec<Event> = Vec::new();
        let mut keep = |event: everwarm_stream::Event<'_>| {
            all.push((event.name.to_vec(), event.data.to_vec()));
        };
        match seed {
            Some(seed) => pieces::of(body, seed).for_each(|piece| sse.push(piece, &mut keep)),
            None => sse.push(body, &mut keep),
        }
        all
    };
    assert_eq!(parsed(Some(cut)), parsed(None));
    assert_eq!(parsed(None), simple_events(body, limit));
}

/// Events as the HTML standard interprets an event stream, given up where the contract says so: a
/// line or the joined data is longer than the limit.
fn simple_events(body: &[u8], limit: usize) -> Vec<Event> {
    let mut all = Vec::new();
    let (mut name, mut data, mut given_up) = (Vec::new(), Vec::<Vec<u8>>::new(), false);
    let mut lines = simple_lines(body, limit, true);
    if !body.ends_with(b"\n") && !body.ends_with(b"\r") {
        // A line without its end is not a line yet.
        lines.pop();
    }
    for (number, line) in lines.into_iter().enumerate() {
        let Some(mut line) = line else {
            given_up = true;
            continue;
        };
        if number == 0 && line.starts_with("\u{feff}".as_bytes()) {
            line.drain(..3);
        }
        if line.is_empty() {
            if !given_up && !data.is_empty() {
                all.push((name.clone(), data.join(&b'\n')));
            }
            (name, data, given_up) = (Vec::new(), Vec::new(), false);
            continue;
        }
        let colon = line.iter().position(|b| *b == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
        match field {
            b"data" => {
                let joined: usize = data.iter().map(|line| line.len() + 1).sum();
                given_up |= joined.saturating_sub(1) + value.len() + 1 > limit;
                data.push(value);
            }
            b"event" => name = value,
            _ => {}
        }
    }
    all
}

/// Everything that a meter can say.
fn meter(body: &[u8], framing: Framing, cut: u8) {
    let said = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let mut meter = Meter::new(Instant::ZERO, framing);
        let mut firsts = 0;
        let mut seen = 0;
        for piece in pieces {
            seen += 1;
            firsts += u32::from(meter.on_bytes(Instant::from_nanos(seen), piece));
        }
        meter.on_end(Instant::from_nanos(seen + 1), End::Complete);
        assert!(firsts <= 1, "the first content comes once");
        assert_eq!(meter.ttft().is_some(), meter.contents() > 0);
        assert_eq!(meter.first_byte().is_some(), !body.is_empty());
        assert!(meter.gaps().count() as u64 <= meter.contents());
        let _ = meter.tpot();
        (
            meter.contents(),
            meter.finish_reason().map(str::to_owned),
            meter.ending(),
            meter.response_id().map(str::to_owned),
            meter.prompt_tokens(),
            meter.completion_tokens(),
            meter.error().map(str::to_owned),
            meter.timings().cloned(),
        )
    };
    assert_eq!(said(&mut pieces::of(body, cut)), said(&mut std::iter::once(body)));
}

pub fn seeds() -> Vec<Vec<u8>> {
    let events = [
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\r\n\r\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1}}\n\ndata: [DONE]\n\n",
        "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]},\"finish_reason\":\"tool_calls\"}],\"timings\":{\"prompt_n\":3,\"cache_n\":4,\"predicted_n\":5}}\n\n",
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":9}}\n\n",
        "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\nevent: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"output\":[{\"type\":\"function_call\",\"name\":\"f\"}],\"usage\":{\"input_tokens\":1,\"output_tokens\":2}}}\n\n",
        "\u{feff}: ping\n\nid: 7\nretry: 9\ndata: {\"content\":\"a\",\"stop\":true,\"stop_type\":\"eos\",\"tokens_evaluated\":1,\"tokens_predicted\":2}\n\n",
        "data: {\"error\":{\"message\":\"no\"}}\n\ndata: {\"type\":\"error\",\"code\":\"x\"}\n\n",
    ];
    let lines = "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":1,\"eval_count\":2}\n";
    let whole = "{\"object\":\"response\",\"status\":\"completed\",\"output\":[{\"content\":[{\"text\":\"a\"}]}]}";
    let message =
        "{\"type\":\"message\",\"content\":[{\"text\":\"a\"}],\"stop_reason\":\"end_turn\"}";
    let with = |framing: u8, text: &str| [[framing, 255, 0].as_slice(), text.as_bytes()].concat();
    let mut all: Vec<_> = events.map(|text| with(0, text)).into();
    all.extend([with(1, lines), with(2, whole), with(2, message), with(3, lines)]);
    all
}
