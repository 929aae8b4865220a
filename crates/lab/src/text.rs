//! Where a mistake stands in a text that a person wrote: file, line, column, and the line itself.

use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// A mistake in a scenario or claims file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}\n{excerpt}")]
pub struct BadInput {
    /// The file as it was named.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The value and what was expected.
    pub message: String,
    /// The line, with the place marked.
    pub excerpt: String,
}

/// A text and the name that its errors carry.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// A path, or "built-in scenario `ramp`".
    pub file: &'a str,
    /// The whole text; spans count its bytes.
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// The document's top table, each value with its place.
    pub fn parse(self) -> Result<Spanned<DeTable<'a>>, BadInput> {
        DeTable::parse(self.text).map_err(|error| self.toml_error(&error, 0..0))
    }

    /// `value` as a table; `what` says what was expected where it is none.
    pub fn table(
        self,
        value: Spanned<DeValue<'a>>,
        what: &str,
    ) -> Result<Spanned<DeTable<'a>>, BadInput> {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Spanned::new(span, table)),
            _ => Err(self.error(span, format!("expected {what}"))),
        }
    }

    /// Reads `value` into `T`.
    pub fn decode<T: DeserializeOwned>(self, value: Spanned<DeValue<'a>>) -> Result<T, BadInput> {
        let span = value.span();
        T::deserialize(ValueDeserializer::from(value)).map_err(|e| self.toml_error(&e, span))
    }

    fn toml_error(self, error: &toml::de::Error, otherwise: Range<usize>) -> BadInput {
        self.error(error.span().unwrap_or(otherwise), error.message())
    }

    /// The error `message` at `span`.
    pub fn error(self, span: Range<usize>, message: impl Into<String>) -> BadInput {
        let start = span.start.min(self.text.len());
        let before = &self.text[..start];
        let line = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let shown = self.text[line_start..].lines().next().unwrap_or("");
        let column = self.text[line_start..start].chars().count() + 1;
        let end = span.end.clamp(start, line_start + shown.len().max(start - line_start));
        let width = self.text[start..end].chars().count().max(1);
        let margin = line.to_string().len();
        let excerpt = format!(
            "{:margin$} |\n{line} | {shown}\n{:margin$} | {:skip$}{}",
            "",
            "",
            "",
            "^".repeat(width),
            skip = column - 1,
        );
        let (file, message) = (self.file.to_owned(), message.into());
        BadInput { file, line, column, message, excerpt }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_place() {
        let source = Source { file: "a.toml", text: "rounds = 3\nsleep = \"-1 ms\"\n" };
        let error = source.error(19..26, "no");
        assert_eq!(
            error.to_string(),
            "a.toml:2:9: no\n  |\n2 | sleep = \"-1 ms\"\n  |         ^^^^^^^"
        );
        assert_eq!(source.error(99..200, "end").line, 3);
    }
}
