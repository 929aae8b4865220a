//! Azure's public traces of LLM services: `TIMESTAMP,ContextTokens,GeneratedTokens`.

use crate::trace::{Request, Start, Trace};
use chrono::NaiveDateTime;
use everwarm_governor::Ending;
use everwarm_units::Span;

/// A line that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; expected {EXPECTED}")]
pub struct Error {
    /// From 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

const HEAD: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";
const EXPECTED: &str = "a line such as `2023-11-16 18:17:03.9799600,4808,10` below \
    `TIMESTAMP,ContextTokens,GeneratedTokens`";

/// Reads a trace. Requests need not stand in order.
///
/// # Errors
/// The first line that can't be read.
pub fn azure(name: &str, text: &str) -> Result<Trace, Error> {
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let wrong = |line, what: String| Error { line, what };
    match lines.next() {
        Some((_, head)) if head.trim_start_matches('\u{feff}') == HEAD => {}
        other => return Err(wrong(1, format!("`{}`", other.map_or("", |(_, line)| line)))),
    }
    let mut rows = Vec::new();
    for (line, text) in lines.filter(|(_, text)| !text.is_empty()) {
        let mut fields = text.split(',');
        let mut field =
            |name| fields.next().ok_or_else(|| wrong(line, format!("`{text}` has no {name}")));
        let time = field("time")?;
        let tokens = |text: &str| {
            text.parse::<u32>().map_err(|_| wrong(line, format!("`{text}` is no number of tokens")))
        };
        let prompt_tokens = tokens(field("context tokens")?)?;
        let generated_tokens = tokens(field("generated tokens")?)?;
        let at = NaiveDateTime::parse_from_str(time, "%Y-%m-%d %H:%M:%S%.f")
            .map_err(|error| wrong(line, format!("`{time}` is no time ({error})")))?;
        if let Some(more) = fields.next() {
            return Err(wrong(line, format!("`{more}` is a field too much")));
        }
        rows.push((at, prompt_tokens, generated_tokens));
    }
    rows.sort_by_key(|(at, ..)| *at);
    let first = rows.first().map(|(at, ..)| *at);
    let request = |(at, prompt_tokens, generated_tokens): (NaiveDateTime, u32, u32)| {
        let since = at.signed_duration_since(first.expect("there is a row"));
        Request {
            start: Start::At(
                since.to_std().map_or(Span::ZERO, |d| Span::from_secs(d.as_secs_f64())),
            ),
            session: None,
            prompt_tokens,
            generated_tokens,
            ending: Ending::Unknown,
        }
    };
    Ok(Trace { name: name.to_owned(), requests: rows.into_iter().map(request).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_count_from_the_first() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
                    2023-11-16 18:17:04.0319600,3180,8\r\n2023-11-16 18:17:03.9799600,4808,10";
        let trace = azure("t", text).unwrap();
        let short: Vec<_> = trace.requests.iter().map(|r| (r.start, r.prompt_tokens)).collect();
        assert_eq!(short, [(Start::At(Span::ZERO), 4808), (Start::At(Span::ms(52)), 3180)]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let check = |row: &str, expected: &str| {
            let error = azure("t", &format!("{HEAD}\n\n{row}\n")).unwrap_err();
            assert_eq!((error.line, error.what.as_str()), (3, expected));
        };
        check("2023-11-16 18:17:03,1", "`2023-11-16 18:17:03,1` has no generated tokens");
        check("2023-11-16 18:17:03,1,-2", "`-2` is no number of tokens");
        check("2023-11-16 18:17:03,1,2,3", "`3` is a field too much");
        assert!(azure("t", &format!("{HEAD}\nnow,1,2")).unwrap_err().what.contains("no time"));
        assert_eq!(azure("t", "").unwrap_err().line, 1);
    }
}
