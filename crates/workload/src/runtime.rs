//! How an inference runtime turns a prompt into command buffers: data, one file a runtime.

use crate::Model;
use crate::Program;
use crate::transformer::{Pass, Transformer};
use everwarm_units::Span;
use serde::Deserialize;

/// A runtime's way of submitting a transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Runtime {
    /// What it stands for: "MLX-like".
    pub name: String,
    /// The model it serves.
    pub model: Model,
    /// It keeps the model's memory wired through idle times.
    pub keeps_memory_wired: bool,
    /// What an HTTP server built on it does around the model.
    pub serving: Serving,
    /// Submission of a prompt.
    pub prefill: Phase,
    /// Submission of one new token.
    pub decode: Phase,
}

/// What an HTTP server built on a runtime does around the model.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serving {
    /// When the response head of a stream goes out.
    pub head: Head,
    /// Host time from the request's body to the first command buffer, of any prompt.
    pub tokenize_base: Span,
    /// The same, for each token of the prompt.
    pub tokenize_per_token: Span,
}

/// When the response head of a stream goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Head {
    /// As soon as the request is understood.
    AtOnce,
    /// When the request leaves the queue.
    AtStart,
}

/// How one phase of a transformer is submitted.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phase {
    /// Tokens of one pass at most.
    #[serde(default = "one")]
    pub chunk: u32,
    /// Rows that a matrix product is padded to.
    #[serde(default = "one")]
    pub tile: u32,
    /// Share of the device's peak that a matrix product reaches.
    pub efficiency: f64,
    /// Weights' traffic that arithmetic does not hide, over the weights' size.
    pub weight_traffic: f64,
    /// Command buffers of one block, at least.
    pub buffers_per_layer: u32,
    /// Arithmetic of one command buffer at most; a block with more is cut into more buffers.
    ///
    /// Unit: Gflop at the device's peak rate.
    #[serde(default = "unlimited")]
    pub buffer_gflop: f64,
    /// Command buffers kept in flight; 1 waits for each.
    pub in_flight: u32,
    /// Host time of a pass before its first commit, when nothing of it runs yet.
    #[serde(default)]
    pub prepare: Span,
    /// Host time before each commit, beside the buffers in flight.
    pub encode: Span,
    /// Host time between a free place in flight and the commit that takes it.
    #[serde(default)]
    pub turnaround: Span,
    /// Host time from the last buffer's end to the token.
    pub finish: Span,
}

fn one() -> u32 {
    1
}

fn unlimited() -> f64 {
    f64::INFINITY
}

/// Why a model or runtime can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// No built-in one of that name.
    #[error("no {kind} `{name}`; there are {known}")]
    Unknown {
        /// "runtime" or "model".
        kind: &'static str,
        /// As asked.
        name: String,
        /// The built-in ones.
        known: String,
    },
    /// A file's text is wrong.
    #[error("{0}")]
    Invalid(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    model: ModelDoc,
    keeps_memory_wired: bool,
    serving: Serving,
    prefill: Phase,
    decode: Phase,
}

/// A built-in model's name, or a model of the runtime's own.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected the name of a built-in model, or a table `[model]`")]
enum ModelDoc {
    Name(String),
    Own(toml::Table),
}

impl ModelDoc {
    fn model(self) -> Result<Model, Error> {
        match self {
            ModelDoc::Name(name) => Model::built_in(&name),
            ModelDoc::Own(table) => Model::from_table(table),
        }
    }
}

impl Runtime {
    /// The built-in runtimes: name and text.
    pub const BUILT_IN: &'static [(&'static str, &'static str)] = &[
        ("mlx", include_str!("../runtimes/mlx.toml")),
        ("llamacpp", include_str!("../runtimes/llamacpp.toml")),
    ];

    /// A built-in runtime (`mlx`, `llamacpp`).
    ///
    /// # Errors
    /// [`Error::Unknown`] lists the ones there are.
    pub fn built_in(name: &str) -> Result<Runtime, Error> {
        Self::from_toml(built_in_text("runtime", name, Self::BUILT_IN)?)
    }

    /// Reads a runtime file; its `model` is a built-in one's name, or a table.
    ///
    /// # Errors
    /// [`Error::Invalid`] with line, value and what was expected; [`Error::Unknown`] for a model
    /// that is not built in.
    pub fn from_toml(text: &str) -> Result<Runtime, Error> {
        let file: File = parse(text)?;
        for (phase, which) in [(&file.prefill, "prefill"), (&file.decode, "decode")] {
            phase.check(which)?;
        }
        let File { name, model, keeps_memory_wired, serving, prefill, decode } = file;
        let model = model.model()?;
        Ok(Runtime { name, model, keeps_memory_wired, serving, prefill, decode })
    }

    /// Host time from a request's body to its first command buffer.
    pub fn tokenize(&self, prompt_tokens: u32) -> Span {
        self.serving.tokenize_base + self.serving.tokenize_per_token * u64::from(prompt_tokens)
    }

    /// A prompt of `tokens`: ends, after a mark [`Transformer::TOKEN`], with its first token.
    pub fn prefill(&self, tokens: u32) -> Box<dyn Program> {
        self.respond(tokens, 1)
    }

    /// `tokens` decode steps after `context` tokens, a mark [`Transformer::TOKEN`] after each.
    pub fn decode(&self, context: u32, tokens: u32) -> Box<dyn Program> {
        Box::new(Transformer::new((0..tokens).map(|n| Pass::decode(self, context + n)).collect()))
    }

    /// A whole answer: a prompt, then `tokens` new ones (the first comes from the prompt's pass),
    /// a mark [`Transformer::TOKEN`] after each.
    pub fn respond(&self, prompt_tokens: u32, tokens: u32) -> Box<dyn Program> {
        let mut passes = Pass::prefill(self, prompt_tokens);
        passes.extend((1..tokens).map(|n| Pass::decode(self, prompt_tokens + n - 1)));
        Box::new(Transformer::new(passes))
    }
}

impl Phase {
    fn check(&self, which: &str) -> Result<(), Error> {
        let counts = [
            ("chunk", self.chunk),
            ("tile", self.tile),
            ("buffers_per_layer", self.buffers_per_layer),
            ("in_flight", self.in_flight),
        ];
        if let Some((key, _)) = counts.iter().find(|(_, n)| *n == 0) {
            return Err(Error::Invalid(format!("[{which}] {key} is 0; expected at least 1")));
        }
        // Written so that a NaN is refused, too.
        let in_range = [
            ("efficiency", self.efficiency, 1.0, "above 0 and at most 1"),
            ("buffer_gflop", self.buffer_gflop, f64::INFINITY, "above 0"),
            ("weight_traffic", self.weight_traffic, f64::MAX, "a finite number above 0"),
        ];
        for (key, is, most, expected) in in_range {
            if is.is_nan() || is <= 0.0 || is > most {
                return Err(Error::Invalid(format!(
                    "[{which}] {key} is {is}; expected {expected}"
                )));
            }
        }
        Ok(())
    }
}

/// The text of a built-in file.
pub(crate) fn built_in_text(
    kind: &'static str,
    name: &str,
    table: &[(&'static str, &'static str)],
) -> Result<&'static str, Error> {
    table.iter().find(|(known, _)| *known == name).map(|(_, text)| *text).ok_or_else(|| {
        Error::Unknown {
            kind,
            name: name.to_owned(),
            known: table.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", "),
        }
    })
}

/// Reads a TOML file into `T`; the error has line, column and value.
pub(crate) fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|e| Error::Invalid(e.to_string().trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_runtime_reads() {
        for (name, _) in Runtime::BUILT_IN {
            Runtime::built_in(name).unwrap();
        }
    }

    #[test]
    fn the_page_names_every_key() {
        let page = include_str!("../../../docs/runtimes.md");
        let texts = Runtime::BUILT_IN.iter().chain(Model::BUILT_IN).map(|(_, text)| text);
        let lines = texts.flat_map(|text| text.lines()).filter(|line| !line.starts_with('#'));
        for key in lines.filter_map(|line| line.split_once(" = ")).map(|(key, _)| key.trim()) {
            assert!(page.contains(&format!("`{key}`")), "`{key}` is not in docs/runtimes.md");
        }
    }

    #[test]
    fn bad_files_say_what_was_expected() {
        let good = Runtime::BUILT_IN[0].1;
        let check = |text: String, expected: &str| {
            let error = Runtime::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check(good.replace("in_flight = 1", "in_flight = 0"), "[prefill] in_flight is 0");
        check(
            good.replacen("efficiency = 0", "efficiency = 8", 1),
            "expected above 0 and at most 1",
        );
        check(good.replace("buffer_gflop = 4", "buffer_gflop = -4"), "expected above 0");
        check(good.replace("chunk", "chunks"), "unknown field `chunks`");
        check(good.replace("\"0.9 ms\"", "\"0.9\""), "has no unit");
        check(
            good.replace("llama-3.2-3b-4bit", "gpt"),
            "no model `gpt`; there are llama-3.2-3b-4bit",
        );
        check(good.replace("\"llama-3.2-3b-4bit\"", "3"), "or a table `[model]`");
        check(own_model(|text| text.replace("ffn", "fnn")), "unknown field `fnn`");
        check(own_model(|text| text.replace("layers = 28", "layers = 0")), "above 0");
    }

    #[test]
    fn a_runtime_brings_its_own_model() {
        let wide = Runtime::from_toml(&own_model(|text| text.replace("= 28", "= 56"))).unwrap();
        let known = Runtime::built_in(Runtime::BUILT_IN[0].0).unwrap();
        assert_eq!(wide.model, Model { layers: 56, ..known.model });
    }

    /// The first built-in runtime with the first built-in model, changed, as its table `[model]`.
    fn own_model(change: impl Fn(&str) -> String) -> String {
        let (name, text) = Model::BUILT_IN[0];
        let runtime = Runtime::BUILT_IN[0].1.replace(&format!("model = \"{name}\"\n"), "");
        format!("{runtime}\n[model]\n{}", change(text))
    }
}
