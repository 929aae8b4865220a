//! The proxy's own log of requests as a trace.

use crate::trace::{Request, Start, Trace};
use everwarm_governor::{Ending, Session};
use everwarm_record::traffic::{self, Entry};
use everwarm_units::Span;
use std::collections::HashMap;

/// A log that is no trace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A line that can't be read.
    #[error("{0}")]
    Line(#[from] everwarm_record::Error),
    /// A time that is none.
    #[error("request {0}: `at_s` is {1}; expected seconds")]
    Time(usize, f64),
}

/// Reads a log; requests are put in the order in which they came. Where a line does not say how many
/// tokens there were, it has `tokens` (prompt, answer). A last line that was cut off is left out.
///
/// # Errors
/// [`Error`] names the line or request.
pub fn log(name: &str, bytes: &[u8], tokens: (u32, u32)) -> Result<Trace, Error> {
    let (mut entries, _) = traffic::read(bytes)?;
    if let Some((n, bad)) = entries.iter().enumerate().find(|(_, e)| !e.at_s.is_finite()) {
        return Err(Error::Time(n + 1, bad.at_s));
    }
    entries.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    let first = entries.first().map_or(0.0, |entry| entry.at_s);
    let mut sessions: HashMap<String, u64> = HashMap::new();
    let mut request = |entry: Entry| {
        let session = entry.session.map(|word| {
            let next = sessions.len() as u64;
            Session(*sessions.entry(word).or_insert(next))
        });
        let count = |told: Option<u64>, else_: u32| {
            told.map_or(else_, |n| u32::try_from(n).unwrap_or(u32::MAX))
        };
        Request {
            start: Start::At(Span::from_secs(entry.at_s - first)),
            session,
            prompt_tokens: count(entry.prompt_tokens, tokens.0),
            generated_tokens: count(entry.generated_tokens, tokens.1),
            ending: match entry.ending {
                traffic::Ending::Turn => Ending::Turn,
                traffic::Ending::ToolCalls => Ending::ToolCalls,
                traffic::Ending::Unknown => Ending::Unknown,
            },
        }
    };
    let requests = entries.into_iter().map(&mut request).collect();
    Ok(Trace { name: name.to_owned(), requests })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_requests_in_the_order_of_their_time() {
        let text = "{\"at_s\":12.5,\"session\":\"b\",\"ending\":\"turn\"}\n\
                    {\"at_s\":10,\"session\":\"a\",\"prompt_tokens\":7,\"ending\":\"tool_calls\"}\n{\"at";
        let trace = log("t", text.as_bytes(), (100, 50)).unwrap();
        let [a, b] = trace.requests.as_slice() else { panic!("{trace:?}") };
        assert_eq!((a.start, a.prompt_tokens), (Start::At(Span::ZERO), 7));
        assert_eq!((b.start, b.prompt_tokens), (Start::At(Span::ms(2500)), 100));
        assert_ne!(a.session, b.session);
        assert_eq!((a.ending, b.ending), (Ending::ToolCalls, Ending::Turn));
        assert!(log("t", b"{\"at_s\":1e999}\n", (1, 1)).is_err());
    }
}
