//! Reading a quantity from text: one number, optional space, one unit.

/// Why a text is not a quantity. The message names the value and the units that are known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// The text has no number in front.
    #[error("`{text}` does not start with a number; expected {kind} such as `{example}`")]
    NoNumber {
        /// The text as given.
        text: String,
        /// What was expected ("a duration").
        kind: &'static str,
        /// A valid value.
        example: &'static str,
    },
    /// The number is there, but not its unit.
    #[error("`{text}` has {found}; expected {kind} in one of {units}, such as `{example}`")]
    Unit {
        /// The text as given.
        text: String,
        /// "no unit" or "the unknown unit `x`".
        found: String,
        /// What was expected.
        kind: &'static str,
        /// The known units.
        units: String,
        /// A valid value.
        example: &'static str,
    },
    /// Number and unit are fine, the value is out of range.
    #[error("`{text}` is {why}; expected {kind} such as `{example}`")]
    Range {
        /// The text as given.
        text: String,
        /// "negative", "not finite" or "too large".
        why: &'static str,
        /// What was expected.
        kind: &'static str,
        /// A valid value.
        example: &'static str,
    },
}

/// One kind of quantity as text: its name, an example and its units in SI.
pub(crate) struct Kind {
    pub name: &'static str,
    pub example: &'static str,
    /// Unit and its size in the base unit, smallest first.
    pub units: &'static [(&'static str, f64)],
}

impl Kind {
    /// The value of `text` in the base unit.
    pub(crate) fn parse(&self, text: &str) -> Result<f64, ParseError> {
        let trimmed = text.trim();
        let (number, unit) = split_number(trimmed);
        let value: f64 = number.parse().map_err(|_| ParseError::NoNumber {
            text: text.to_owned(),
            kind: self.name,
            example: self.example,
        })?;
        let scale = self.units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        let scale = scale.ok_or_else(|| ParseError::Unit {
            text: text.to_owned(),
            found: match unit {
                "" => "no unit".to_owned(),
                other => format!("the unknown unit `{other}`"),
            },
            kind: self.name,
            units: self.units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            example: self.example,
        })?;
        if !value.is_finite() {
            return Err(self.range(text, "not finite"));
        }
        let scaled = value * scale;
        if scaled.is_finite() { Ok(scaled) } else { Err(self.range(text, "too large")) }
    }

    pub(crate) fn range(&self, text: &str, why: &'static str) -> ParseError {
        ParseError::Range { text: text.to_owned(), why, kind: self.name, example: self.example }
    }

    /// `value` (base unit) in the unit that leaves the fewest leading zeros.
    pub(crate) fn format(&self, value: f64, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = value.abs();
        let fitting = self.units.iter().rev().find(|(_, scale)| size >= *scale);
        let (unit, scale) = match fitting {
            Some(found) => found,
            None if value == 0.0 => {
                self.units.iter().find(|u| u.1 == 1.0).unwrap_or(&self.units[0])
            }
            None => &self.units[0],
        };
        let scaled = value / scale;
        match f.precision() {
            Some(digits) => write!(f, "{scaled:.digits$} {unit}"),
            // Beyond what anybody would write out.
            None if scaled.abs() >= 1e15 || (scaled != 0.0 && scaled.abs() < 1e-6) => {
                write!(f, "{scaled:e} {unit}")
            }
            None => write!(f, "{} {unit}", (scaled * 1e6).round() / 1e6),
        }
    }
}

/// The longest prefix that reads as a number, and the rest without leading space.
fn split_number(text: &str) -> (&str, &str) {
    let mut end = 0;
    let bytes = text.as_bytes();
    while end < bytes.len() {
        let in_number = match bytes[end] {
            b'0'..=b'9' | b'.' => true,
            b'+' | b'-' => end == 0 || matches!(bytes[end - 1], b'e' | b'E'),
            b'e' | b'E' => {
                let exponent = |b: &u8| b.is_ascii_digit() || matches!(b, b'+' | b'-');
                end > 0 && bytes.get(end + 1).is_some_and(exponent)
            }
            _ => false,
        };
        if !in_number {
            break;
        }
        end += 1;
    }
    (&text[..end], text[end..].trim_start())
}
