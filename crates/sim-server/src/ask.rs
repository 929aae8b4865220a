//! What a request's body asks for, and how its tokens are counted.
//!
//! **Tokens.** A word (what lies between white space) of up to 16 bytes is one token, a longer one
//! a token for every 16 bytes begun. A chat adds its template: [`PER_MESSAGE`] tokens a message
//! and [`PER_CHAT`] for the start of the answer, so one message of w short words is w + 4 tokens.
//! A completion's prompt has no template. An empty prompt is one token.
//!
//! It knows nothing of time or of the GPU.

use serde_json::{Map, Value};

/// Tokens that the template adds to each message of a chat: its start, its role and its end.
const PER_MESSAGE: u32 = 3;
/// Tokens that the template adds to a chat: the start of the answer.
const PER_CHAT: u32 = 1;
/// Bytes of a long word that make one token.
const BYTES_PER_TOKEN: usize = 16;
/// Tokens of an answer whose length nobody asked for; it ends by itself after them.
const ANSWER_DEFAULT: u32 = 64;

/// Which of the two answers is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Chat,
    Completion,
}

/// A request that was understood.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ask {
    pub kind: Kind,
    /// As the client named it.
    pub model: Option<String>,
    pub prompt_tokens: u32,
    pub answer_tokens: u32,
    /// True if the answer ends by itself, false if at the client's limit.
    pub ends_by_itself: bool,
    pub stream: bool,
    pub include_usage: bool,
}

/// Why a request can't be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: u16,
    /// OpenAI's word for the kind of error.
    pub kind: &'static str,
    pub message: String,
}

impl Refusal {
    fn bad(message: impl Into<String>) -> Self {
        Refusal { status: 400, kind: "invalid_request_error", message: message.into() }
    }
}

/// Tokens of a text, without any template.
fn count_tokens(text: &str) -> u32 {
    let words = text.split_whitespace().map(|word| word.len().div_ceil(BYTES_PER_TOKEN));
    u32::try_from(words.sum::<usize>()).unwrap_or(u32::MAX)
}

/// Reads a body; a prompt and its answer may have `context` tokens together.
pub(crate) fn parse(kind: Kind, body: &[u8], context: u32) -> Result<Ask, Refusal> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| Refusal::bad(format!("the body is not JSON: {error}")))?;
    let Value::Object(body) = value else {
        return Err(Refusal::bad(format!("the body is {}; expected an object", name(&value))));
    };
    let prompt_tokens = match kind {
        Kind::Chat => chat_tokens(&body)?,
        Kind::Completion => prompt_tokens(&body)?,
    }
    .max(1);
    if prompt_tokens >= context {
        return Err(Refusal {
            kind: "exceed_context_size_error",
            ..Refusal::bad(format!("the prompt has {prompt_tokens} tokens, the context {context}"))
        });
    }
    if let Some(n) = whole(&body, "n", 1)?.filter(|n| *n != 1) {
        return Err(Refusal::bad(format!("`n` is {n}; only 1 answer a request is served")));
    }
    let asked = match whole(&body, "max_completion_tokens", 1)? {
        Some(asked) => Some(asked),
        None => whole(&body, "max_tokens", 1)?,
    };
    let options = match body.get("stream_options") {
        None | Some(Value::Null) => None,
        Some(Value::Object(options)) => Some(options),
        Some(other) => return Err(wrong("stream_options", other, "an object")),
    };
    Ok(Ask {
        kind,
        model: text(&body, "model")?.map(str::to_owned),
        prompt_tokens,
        answer_tokens: asked.unwrap_or(ANSWER_DEFAULT).min(context - prompt_tokens),
        ends_by_itself: asked.is_none(),
        stream: flag(&body, "stream")?,
        include_usage: options.map_or(Ok(false), |options| flag(options, "include_usage"))?,
    })
}

fn chat_tokens(body: &Map<String, Value>) -> Result<u32, Refusal> {
    let messages = match body.get("messages") {
        None => return Err(Refusal::bad("`messages` is missing; expected an array of messages")),
        Some(Value::Array(messages)) if messages.is_empty() => {
            return Err(Refusal::bad("`messages` is empty; expected at least one message"));
        }
        Some(Value::Array(messages)) => messages,
        Some(other) => return Err(wrong("messages", other, "an array")),
    };
    let tokens = messages.iter().enumerate().map(|(index, message)| {
        let Value::Object(fields) = message else {
            return Err(wrong(&format!("messages[{index}]"), message, "an object"));
        };
        if text(fields, "role")?.is_none() {
            return Err(Refusal::bad(format!("`messages[{index}].role` is missing")));
        }
        Ok(content_tokens(index, fields.get("content"))?.saturating_add(PER_MESSAGE))
    });
    tokens.sum::<Result<u32, Refusal>>().map(|tokens| tokens.saturating_add(PER_CHAT))
}

/// A message's content: a text, an array of parts of which the texts count, or nothing.
fn content_tokens(index: usize, content: Option<&Value>) -> Result<u32, Refusal> {
    match content {
        None | Some(Value::Null) => Ok(0),
        Some(Value::String(text)) => Ok(count_tokens(text)),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            Ok(texts.map(count_tokens).fold(0, u32::saturating_add))
        }
        Some(other) => {
            Err(wrong(&format!("messages[{index}].content"), other, "a text or an array of parts"))
        }
    }
}

/// A completion's prompt: a text, or its tokens as numbers.
fn prompt_tokens(body: &Map<String, Value>) -> Result<u32, Refusal> {
    match body.get("prompt") {
        None | Some(Value::Null) => Err(Refusal::bad("`prompt` is missing; expected a text")),
        Some(Value::String(text)) => Ok(count_tokens(text)),
        Some(Value::Array(tokens)) if tokens.iter().all(Value::is_u64) => {
            Ok(u32::try_from(tokens.len()).unwrap_or(u32::MAX))
        }
        Some(Value::Array(texts)) if texts.len() == 1 && texts[0].is_string() => {
            Ok(count_tokens(texts[0].as_str().unwrap_or_default()))
        }
        Some(other) => Err(wrong("prompt", other, "one text, or its tokens as numbers")),
    }
}

fn whole(body: &Map<String, Value>, key: &str, least: u32) -> Result<Option<u32>, Refusal> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64().and_then(|n| u32::try_from(n).ok()) {
            Some(n) if n >= least => Ok(Some(n)),
            _ => Err(wrong(key, value, &format!("a whole number from {least}"))),
        },
    }
}

fn flag(body: &Map<String, Value>, key: &str) -> Result<bool, Refusal> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(other) => Err(wrong(key, other, "true or false")),
    }
}

fn text<'a>(body: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, Refusal> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong(key, other, "a text")),
    }
}

fn wrong(key: &str, value: &Value, expected: &str) -> Refusal {
    Refusal::bad(format!("`{key}` is {}; expected {expected}", name(value)))
}

/// A value for an error: short ones as they are.
fn name(value: &Value) -> String {
    match value {
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
        short => short.to_string().chars().take(40).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_words_and_a_template() {
        let check = |kind, body: &str, tokens| {
            assert_eq!(parse(kind, body.as_bytes(), 100).unwrap().prompt_tokens, tokens, "{body}");
        };
        check(Kind::Chat, r#"{"messages": [{"role": "user", "content": "one two  three"}]}"#, 7);
        check(
            Kind::Chat,
            r#"{"messages": [{"role": "system", "content": "a"}, {"role": "user", "content":
                [{"type": "text", "text": "b c"}, {"type": "image_url"}]}]}"#,
            10,
        );
        check(Kind::Completion, r#"{"prompt": "12345678901234567 a"}"#, 3);
        check(Kind::Completion, r#"{"prompt": [5, 6, 7, 8]}"#, 4);
        check(Kind::Completion, r#"{"prompt": ""}"#, 1);
    }

    #[test]
    fn lengths_are_kept_and_bounded() {
        let ask = |rest: &str| {
            parse(Kind::Completion, format!(r#"{{"prompt": "a b"{rest}}}"#).as_bytes(), 100)
        };
        assert_eq!(ask("").unwrap().answer_tokens, ANSWER_DEFAULT);
        assert!(ask("").unwrap().ends_by_itself);
        assert_eq!(ask(r#", "max_tokens": 5"#).unwrap().answer_tokens, 5);
        assert_eq!(ask(r#", "max_tokens": 5000"#).unwrap().answer_tokens, 98);
        let ask = ask(r#", "max_completion_tokens": 7, "max_tokens": 5"#).unwrap();
        assert_eq!((ask.answer_tokens, ask.ends_by_itself), (7, false));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |kind, body: &str, expected: &str| {
            let refusal = parse(kind, body.as_bytes(), 10).unwrap_err();
            assert_eq!(refusal.status, 400);
            assert!(refusal.message.contains(expected), "{}", refusal.message);
        };
        let chat = |body, expected| check(Kind::Chat, body, expected);
        chat("", "not JSON");
        chat("[1]", "the body is an array; expected an object");
        chat("{}", "`messages` is missing");
        chat(r#"{"messages": []}"#, "`messages` is empty");
        chat(r#"{"messages": "hi"}"#, "`messages` is \"hi\"; expected an array");
        chat(r#"{"messages": [5]}"#, "`messages[0]` is 5; expected an object");
        chat(r#"{"messages": [{"content": "a"}]}"#, "`messages[0].role` is missing");
        chat(r#"{"messages": [{"role": "user", "content": 5}]}"#, "`messages[0].content` is 5");
        let completion = |body, expected| check(Kind::Completion, body, expected);
        completion("{}", "`prompt` is missing");
        completion(r#"{"prompt": "a", "max_tokens": 0}"#, "`max_tokens` is 0; expected a whole");
        completion(r#"{"prompt": "a", "max_tokens": "9"}"#, "`max_tokens` is \"9\"");
        completion(r#"{"prompt": "a", "stream": "yes"}"#, "expected true or false");
        completion(r#"{"prompt": "a", "n": 2}"#, "`n` is 2");
        completion(r#"{"prompt": "a a a a a a a a a a"}"#, "10 tokens, the context 10");
    }
}
