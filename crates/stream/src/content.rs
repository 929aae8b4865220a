//! What one event of an inference server says.
//!
//! Events are recognised by their shape: chat and text completions, responses and messages, the
//! native streams of llama.cpp and Ollama. Whole (not streamed) answers have the same members and
//! are read alike. Unknown members are nobody's fault.

use serde_json::Value;

/// What one event, or a whole answer, says; what it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// It carries text of the answer: spoken, thought, or a tool call's arguments; not empty.
    pub content: bool,
    /// It carries a call, or a piece of one, of a tool that the client runs.
    pub calls: bool,
    /// Why the answer ended, as the server words it.
    pub finish: Option<String>,
    /// The name that a later request may continue this answer by (`previous_response_id`).
    pub response: Option<String>,
    /// Tokens of the prompt.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    pub completion_tokens: Option<u64>,
    /// The server's own error, in a stream that had begun well.
    pub error: Option<String>,
    /// The server's own timings (llama.cpp, the simulated server), as they are.
    pub timings: Option<Value>,
}

/// Reads one event's data; `None` if it is not a JSON object (`[DONE]`, say).
pub fn read(data: &[u8]) -> Option<Facts> {
    let value: Value = serde_json::from_slice(data).ok()?;
    let top = value.as_object()?;
    let mut facts = Facts::default();
    for choice in array(&value["choices"]) {
        facts.choice(choice);
    }
    facts.native(&value);
    facts.typed(&value);
    // Usage stands at the top, or in the object that an event is about.
    for holder in [&value, &value["message"], &value["response"]] {
        facts.usage(&holder["usage"]);
    }
    for about in [&value["response"], &value] {
        if let Some(id) = about["id"].as_str().filter(|_| about["object"] == "response") {
            facts.response = Some(id.to_owned());
        }
    }
    facts.timed(&value["timings"]);
    facts.timings = top.get("timings").filter(|t| t.is_object()).cloned();
    facts.error = top.get("error").filter(|e| !e.is_null()).map(error_text);
    if facts.error.is_none() && !value["response"]["error"].is_null() {
        facts.error = Some(error_text(&value["response"]["error"]));
    }
    Some(facts)
}

impl Facts {
    /// A choice of a chat or text completion, streamed (`delta`) or whole (`message`).
    fn choice(&mut self, choice: &Value) {
        self.content |= text(&choice["text"]);
        for said in [&choice["delta"], &choice["message"]] {
            let spoken = ["content", "reasoning_content", "reasoning", "refusal"];
            self.content |= spoken.iter().any(|member| spoken_in(&said[*member]));
            self.tools(&said["tool_calls"]);
            self.content |= called(&said["function_call"]);
            self.calls |= said["function_call"].is_object();
        }
        self.finish(&choice["finish_reason"]);
    }

    /// The native streams of llama.cpp (`content`, `stop`) and Ollama (`message`, `response`,
    /// `done`).
    fn native(&mut self, value: &Value) {
        self.content |= text(&value["content"]) || text(&value["response"]);
        self.content |= text(&value["thinking"]);
        if value["done"].is_boolean() {
            let said = &value["message"];
            self.content |= text(&said["content"]) || text(&said["thinking"]);
            self.tools(&said["tool_calls"]);
            if value["done"] == Value::Bool(true) {
                // Versions before 0.1.39 give no reason.
                self.finish(&value["done_reason"]);
                self.finish.get_or_insert_with(|| "stop".to_owned());
            }
            self.count(&value["prompt_eval_count"], &value["eval_count"]);
        }
        if value["stop"] == Value::Bool(true) {
            self.finish(&value["stop_type"]);
            self.finish.get_or_insert_with(|| "stop".to_owned());
            self.count(&value["tokens_evaluated"], &value["tokens_predicted"]);
        }
    }

    /// Events with a `type`: responses and messages; and their whole answers.
    fn typed(&mut self, value: &Value) {
        match value["type"].as_str().unwrap_or_default() {
            "content_block_start" => self.calls |= value["content_block"]["type"] == "tool_use",
            "content_block_delta" => {
                let delta = &value["delta"];
                let spoken = ["text", "thinking", "partial_json"];
                self.content |= spoken.iter().any(|member| text(&delta[*member]));
            }
            "message_delta" => self.finish(&value["delta"]["stop_reason"]),
            "message" => {
                self.content |= array(&value["content"]).any(|block| text(&block["text"]));
                let called = array(&value["content"]).any(|block| block["type"] == "tool_use");
                self.called(called);
                self.finish(&value["stop_reason"]);
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                self.calls |= array(&value["response"]["output"]).any(for_client);
                self.finish(&value["response"]["status"]);
            }
            "response.output_item.added" | "response.output_item.done" => {
                self.calls |= for_client(&value["item"]);
            }
            "error" if value["error"].is_null() => {
                self.finish(&value["code"]);
                self.finish.get_or_insert_with(|| "error".to_owned());
            }
            kind if kind.ends_with(".delta") => self.content |= text(&value["delta"]),
            _ => {}
        }
        if value["object"] == "response" {
            self.called(array(&value["output"]).any(for_client));
            let blocks = array(&value["output"]).flat_map(|item| array(&item["content"]));
            self.content |= { blocks }.any(|block| text(&block["text"]));
            self.finish(&value["status"]);
        }
    }

    /// Calls of tools in the form of chat completions.
    fn tools(&mut self, calls: &Value) {
        self.content |= array(calls).any(|call| called(&call["function"]));
        self.calls |= array(calls).next().is_some();
    }

    /// Calls of tools in a whole answer, which are its content.
    fn called(&mut self, called: bool) {
        self.calls |= called;
        self.content |= called;
    }

    /// llama.cpp's timings count tokens, too: a prompt's are those it worked on and those it had.
    fn timed(&mut self, timings: &Value) {
        if let (None, Some(new)) = (self.prompt_tokens, timings["prompt_n"].as_u64()) {
            self.prompt_tokens = Some(new + timings["cache_n"].as_u64().unwrap_or(0));
        }
        self.completion_tokens = self.completion_tokens.or(timings["predicted_n"].as_u64());
    }

    fn usage(&mut self, usage: &Value) {
        self.count(&usage["prompt_tokens"], &usage["completion_tokens"]);
        self.count(&usage["input_tokens"], &usage["output_tokens"]);
    }

    fn count(&mut self, prompt: &Value, completion: &Value) {
        self.prompt_tokens = prompt.as_u64().or(self.prompt_tokens);
        self.completion_tokens = completion.as_u64().or(self.completion_tokens);
    }

    fn finish(&mut self, reason: &Value) {
        if let Some(reason) = reason.as_str().filter(|r| !r.is_empty()) {
            self.finish = Some(reason.to_owned());
        }
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> bool {
    value.as_str().is_some_and(|s| !s.is_empty())
}

/// A string, or parts with a `text`.
fn spoken_in(value: &Value) -> bool {
    text(value) || array(value).any(|part| text(&part["text"]))
}

/// A tool's name or arguments: whatever of the call the model has said so far.
fn called(function: &Value) -> bool {
    let arguments = &function["arguments"];
    text(&function["name"]) || text(arguments) || arguments.as_object().is_some()
}

/// An output item of the responses API that calls what the client runs; a search, say, is a call
/// that the server runs itself.
fn for_client(item: &Value) -> bool {
    const RUN_BY_CLIENTS: [&str; 6] = [
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "computer_call",
    ];
    item["type"].as_str().is_some_and(|kind| RUN_BY_CLIENTS.contains(&kind))
}

fn error_text(error: &Value) -> String {
    let said = error["message"].as_str().or(error.as_str());
    said.map_or_else(|| error.to_string(), str::to_owned)
}
