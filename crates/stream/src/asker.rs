//! Whose a request is, by its body: what it names, and how its conversation begins.
//!
//! Read from a copy of the body's beginning, which may break off anywhere: what was whole before the
//! cut counts. Members are recognised by name and shape, never by a route: chat completions,
//! responses, messages, Ollama's chat. Texts are kept up to [`TEXT_MAX`] bytes, to be told apart and
//! forgotten; they are content and belong into no log.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// What is kept of a text. Unit: B. Source: guess; conversations that begin alike for longer are
/// taken for one.
pub const TEXT_MAX: usize = 4096;

/// What a request's body says of whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asker {
    named: [String; NAMES.len()],
    /// The answer that it continues (`previous_response_id`).
    pub continues: Option<String>,
    /// What the model is told before the conversation.
    pub system: String,
    /// The first thing that the user says.
    pub first: String,
    /// The user's first message has been seen.
    begun: bool,
}

/// Members that name a conversation, a client or a user: the narrower one goes first.
const NAMES: [&str; 8] = [
    "session_id",
    "conversation",
    "conversation_id",
    "chat_id",
    "prompt_cache_key",
    "user_id",
    "safety_identifier",
    "user",
];

impl Asker {
    /// Reads the beginning of a body.
    pub fn read(beginning: &[u8]) -> Self {
        let mut asker = Asker::default();
        let closed = closed(beginning);
        let mut json = serde_json::Deserializer::from_slice(&closed);
        // What is no JSON, or breaks off, has told what it has told.
        let _ = json.deserialize_map(Members(&mut asker));
        asker
    }

    /// The name that the request gives itself, the narrowest there is.
    pub fn name(&self) -> Option<&str> {
        self.named.iter().find(|name| !name.is_empty()).map(String::as_str)
    }

    fn message(&mut self, role: &str, content: &str) {
        match role {
            "system" | "developer" => push(&mut self.system, content),
            "user" | "" if !self.begun => {
                self.begun = true;
                push(&mut self.first, content);
            }
            _ => {}
        }
    }
}

/// `beginning`, with the string closed that it breaks off in.
fn closed(beginning: &[u8]) -> Vec<u8> {
    let mut inside = false;
    // Where an escape begins whose end is not there yet.
    let mut escape = None;
    let mut at = 0;
    while at < beginning.len() {
        match beginning[at] {
            b'"' => inside = !inside,
            b'\\' if inside => {
                let length = if beginning.get(at + 1) == Some(&b'u') { 6 } else { 2 };
                if at + length > beginning.len() {
                    escape = Some(at);
                }
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
    let mut kept = &beginning[..escape.unwrap_or(beginning.len())];
    if !inside {
        return kept.to_vec();
    }
    if let Err(error) = std::str::from_utf8(kept)
        && error.error_len().is_none()
    {
        kept = &kept[..error.valid_up_to()];
    }
    [kept, b"\""].concat()
}

/// Appends as much of `text` as there is room for.
fn push(into: &mut String, text: &str) {
    let room = TEXT_MAX.saturating_sub(into.len());
    into.push_str(&text[..text.floor_char_boundary(room)]);
}

/// The members of the body.
struct Members<'a>(&'a mut Asker);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let name = NAMES.iter().position(|name| *name == key);
            match (key.as_str(), name) {
                (_, Some(index)) => map.next_value_seed(Text(&mut self.0.named[index]))?,
                ("metadata", _) => map.next_value_seed(Object(Members(self.0)))?,
                ("previous_response_id", _) => {
                    let mut id = String::new();
                    map.next_value_seed(Text(&mut id))?;
                    self.0.continues = Some(id).filter(|id| !id.is_empty());
                }
                ("system" | "instructions", _) => {
                    map.next_value_seed(Text(&mut self.0.system))?;
                }
                ("messages" | "input", _) => map.next_value_seed(Messages(self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// An object that is read by a visitor, where anything else is passed over.
struct Object<'a>(Members<'a>);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

/// The parts of JSON that say nothing here.
macro_rules! nothing_in {
    ($($visit:ident($type:ty)),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<(), E> {
            Ok(())
        }
    )*};
}

/// A list is read to its end, so that what follows it can be.
fn pass_over<'de, A: SeqAccess<'de>>(mut list: A) -> Result<(), A::Error> {
    while list.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    nothing_in!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), visit_str(&str));

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        pass_over(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.0.visit_map(map)
    }
}

/// The text of a value: a string or number itself, parts with a `text`, an object with an `id`.
struct Text<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    nothing_in!(visit_bool(bool), visit_f64(f64));

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        push(self.0, &number.to_string());
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        push(self.0, &number.to_string());
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        push(self.0, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element_seed(Text(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "text" | "id" => map.next_value_seed(Text(self.0))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// A list of messages, or one alone; or a text, which is the user's.
struct Messages<'a>(&'a mut Asker);

impl<'de> DeserializeSeed<'de> for Messages<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    nothing_in!(visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64));

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.message("user", text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while !self.0.begun {
            if list.next_element_seed(Messages(self.0))?.is_none() {
                return Ok(());
            }
        }
        pass_over(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut role, mut content) = (String::new(), String::new());
        let read = members_of_message(&mut map, &mut role, &mut content);
        if read.is_ok() || !role.is_empty() {
            self.0.message(&role, &content);
        }
        read
    }
}

fn members_of_message<'de, A: MapAccess<'de>>(
    map: &mut A,
    role: &mut String,
    content: &mut String,
) -> Result<(), A::Error> {
    while let Some(key) = map.next_key::<String>()? {
        match key.as_str() {
            "role" => map.next_value_seed(Text(role))?,
            "content" => map.next_value_seed(Text(content))?,
            _ => {
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(body: &str, name: Option<&str>, system: &str, first: &str) {
        let asker = Asker::read(body.as_bytes());
        assert_eq!(asker.name(), name, "{body}");
        assert_eq!((asker.system.as_str(), asker.first.as_str()), (system, first), "{body}");
    }

    const CHAT: &str = r#"{"model":"m","messages":[{"role":"system","content":"be \"kind\""},
        {"content":[{"type":"text","text":"hé\ud83d\ude00"},{"type":"image","image":{"url":"x"}}],"role":"user"},
        {"role":"assistant","content":"no"},{"role":"user","content":"later"}],"user":"u"}"#;

    #[test]
    fn every_shape() {
        check(CHAT, Some("u"), "be \"kind\"", "hé😀");
        check(r#"{"input":"hello","instructions":"s"}"#, None, "s", "hello");
        check(
            r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"a"}]}]}"#,
            None,
            "",
            "a",
        );
        check(
            r#"{"messages":[{"role":"user","content":"a"}],"system":[{"type":"text","text":"s"}]}"#,
            None,
            "s",
            "a",
        );
        check(r#"{"metadata":{"user_id":"me","x":[1]},"messages":null}"#, Some("me"), "", "");
        check(r#"{"user":7,"session_id":"s","metadata":3}"#, Some("s"), "", "");
        check(r#"{"conversation":{"id":"c"},"user":null}"#, Some("c"), "", "");
        check(r#"{"prompt":"x","n":1.5,"stream":true}"#, None, "", "");
        for nothing in ["", "[]", "{", "grant_type=x", "\u{0}"] {
            check(nothing, None, "", "");
        }
        let continues = Asker::read(br#"{"previous_response_id":"resp_1","input":"a"}"#).continues;
        assert_eq!(continues.as_deref(), Some("resp_1"));
    }

    #[test]
    fn what_the_client_marks_and_what_comes_later_change_nothing() {
        let plain = Asker::read(br#"{"messages":[{"role":"user","content":"a"}]}"#);
        let marked = Asker::read(
            br#"{"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"a",
            "cache_control":{"type":"ephemeral"}}]},{"role":"assistant","content":"b"}]}"#,
        );
        assert_eq!((plain.system, plain.first), (marked.system, marked.first));
    }

    #[test]
    fn a_long_text_counts_up_to_its_limit_wherever_the_body_is_cut() {
        let text = "é".repeat(TEXT_MAX);
        let body = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
        let whole = Asker::read(body.as_bytes());
        assert_eq!(whole.first.len(), TEXT_MAX);
        for cut in TEXT_MAX + 50..TEXT_MAX + 60 {
            assert_eq!(Asker::read(&body.as_bytes()[..cut]).first, whole.first, "{cut}");
        }
    }

    #[test]
    fn what_was_whole_before_the_cut_counts() {
        for cut in 0..CHAT.len() {
            let asker = Asker::read(&CHAT.as_bytes()[..cut]);
            assert!("be \"kind\"".starts_with(&asker.system), "{cut}: {asker:?}");
            assert!("hé😀".starts_with(&asker.first), "{cut}: {asker:?}");
            let begun = cut > CHAT.find("be ").unwrap();
            assert_eq!(!asker.system.is_empty(), begun, "{cut}: {asker:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let asker = Asker::read(&bytes);
            prop_assert!(asker.first.len() <= TEXT_MAX && asker.system.len() <= TEXT_MAX);
        }
    }
}
