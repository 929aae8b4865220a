//! What an answer leaves its client to do, by its finish reason and by the calls it carries.
//!
//! It knows the words of chat completions, responses, messages, Ollama and llama.cpp. A word that it
//! does not know is an ordinary end.

/// What an answer leaves its client to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Can't be told: no end was seen, the body can't be read, or the server failed.
    #[default]
    Unknown,
    /// It read the answer to its end: somebody reads and may ask again.
    Turn,
    /// The answer calls tools: the client runs them and comes back by itself.
    ToolCalls,
}

/// By the reason `finish` (empty: none was given), where the answer does or doesn't have `calls`.
pub(crate) fn ending(finish: &str, calls: bool) -> Ending {
    match finish {
        // A paused turn calls no tool of the client's, but is sent back at once.
        "tool_calls" | "function_call" | "tool_use" | "pause_turn" => Ending::ToolCalls,
        // Broken off: a call in it lacks its end, so there is nothing to run.
        "length"
        | "limit"
        | "max_tokens"
        | "max_output_tokens"
        | "model_context_window_exceeded"
        | "content_filter"
        | "refusal"
        | "incomplete" => Ending::Turn,
        // No answer was given, or none yet.
        "failed" | "cancelled" | "error" | "queued" | "in_progress" | "load" | "unload" => {
            Ending::Unknown
        }
        // Some servers say `stop` of an answer that calls tools.
        _ if calls => Ending::ToolCalls,
        _ => Ending::Turn,
    }
}
