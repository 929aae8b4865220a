//! What a hint may say: one JSON object, all of whose members may be left out.
//!
//! Contract: whatever bytes come in, what comes out is within the limits that are named here, or an
//! error that shows a hint that would do. It knows nothing of HTTP and of what becomes of a hint.

use serde::Deserialize;

/// A day: longer than anybody can mean, and far from what a clock can't hold. Unit: ms.
const EXPECTED_MAX_MS: f64 = 86_400_000.0;

const EXPECTED: &str = "expected a JSON object such as {\"source\": \"key-stroke\", \
    \"expected_ms\": 300, \"confidence\": 0.9}; every member may be left out";

/// What somebody knows of a request to come.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hint {
    /// What told of it.
    pub source: Option<String>,
    /// When it is expected, from now. Unit: ms, 0 to a day.
    pub expected_ms: Option<f64>,
    /// How sure that is, 0 to 1.
    pub confidence: Option<f64>,
}

/// Reads a hint; nothing at all is one, too.
///
/// # Errors
/// What is wrong, and what was expected.
pub fn parse(text: &[u8]) -> Result<Hint, String> {
    if text.trim_ascii().is_empty() {
        return Ok(Hint::default());
    }
    let hint: Hint =
        serde_json::from_slice(text).map_err(|error| format!("not a hint: {error}; {EXPECTED}"))?;
    if let Some(ms) = hint.expected_ms.filter(|ms| !(0.0..=EXPECTED_MAX_MS).contains(ms)) {
        return Err(format!(
            "expected_ms is {ms}, not from 0 to {EXPECTED_MAX_MS} (a day); {EXPECTED}"
        ));
    }
    if let Some(c) = hint.confidence.filter(|c| !(0.0..=1.0).contains(c)) {
        return Err(format!("confidence is {c}, not from 0 to 1; {EXPECTED}"));
    }
    Ok(hint)
}
