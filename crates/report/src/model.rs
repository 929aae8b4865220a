//! The results, as far as a page shows them. Unknown members are passed over.

use serde::Deserialize;

/// Why a text is not a result.
#[derive(Debug, thiserror::Error)]
#[error("not the JSON of a TTFT bench: {field}: {why}")]
pub struct Error {
    /// The member at fault.
    pub field: String,
    /// What is wrong with it.
    pub why: String,
}

/// Results of one bench or of several under one command.
#[derive(Clone, Debug, Deserialize)]
pub struct Results {
    /// One condition at one prompt length each.
    pub rows: Vec<Row>,
    /// The benches behind them; rows refer to them by their runtime.
    #[serde(default)]
    pub runs: Vec<Run>,
    /// The command that made them.
    #[serde(default)]
    pub command: Option<String>,
    /// The version that made them.
    #[serde(default)]
    pub everwarm: Option<String>,
}

/// One bench against one server.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Run {
    /// The runtime that the server was like.
    #[serde(default)]
    pub runtime: Option<String>,
    /// The maker's name of the device.
    #[serde(default)]
    pub device_name: Option<String>,
    /// True for a modelled device.
    #[serde(default)]
    pub simulated: Option<bool>,
    /// How late the real-time simulation ran.
    #[serde(default)]
    pub late: Option<Late>,
    /// How long it took.
    #[serde(default)]
    pub took_ms: Option<f64>,
    /// Its requests.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// Seed of prompts and order.
    #[serde(default)]
    pub seed: Option<u64>,
}

/// How late the real-time simulation ran.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Late {
    /// 99 of 100 stayed under this.
    pub p99_ms: f64,
    /// The latest.
    pub max_ms: f64,
    /// A sample is void above this.
    pub limit_ms: f64,
}

/// A request.
#[derive(Clone, Debug, Deserialize)]
pub struct Sample {
    /// Tokens asked for.
    pub tokens: u64,
    /// The condition's name.
    pub condition: String,
    /// Time to first token.
    pub ttft_ms: Option<f64>,
    /// Why it is void; empty for a valid one.
    #[serde(default)]
    pub labels: Vec<String>,
}

/// A median and its interval.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct Estimate {
    /// The median.
    pub median: Option<f64>,
    /// Lower end of the interval.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
}

/// One condition at one prompt length.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens asked for, where that differs.
    #[serde(default)]
    pub prompt_tokens_asked: Option<u64>,
    /// The condition's name.
    pub condition: String,
    /// The runtime that the server was like.
    #[serde(default)]
    pub runtime: Option<String>,
    /// False if there are too few valid samples.
    #[serde(default = "yes")]
    pub valid: bool,
    /// Why not.
    #[serde(default)]
    pub why: Option<String>,
    /// Time to first token.
    pub ttft_ms: Estimate,
    /// Share of the penalty removed.
    pub penalty_removed: Option<f64>,
    /// Its interval.
    #[serde(default)]
    pub penalty_removed_interval: Option<[f64; 2]>,
    /// From the pre-warm to the prefill.
    #[serde(default)]
    pub lead_ms: Estimate,
    /// Energy of the GPU.
    #[serde(default)]
    pub gpu_j: Option<f64>,
    /// Energy of the CPU.
    #[serde(default)]
    pub cpu_j: Option<f64>,
    /// Valid samples.
    #[serde(default)]
    pub samples: usize,
}

fn yes() -> bool {
    true
}

/// The rows of one server at one prompt length, with their requests.
pub(crate) struct Cell<'a> {
    pub runtime: Option<&'a str>,
    pub prompt_tokens: u64,
    pub rows: Vec<&'a Row>,
}

impl Results {
    /// Reads the JSON of a bench.
    ///
    /// # Errors
    /// Names the member that is missing or of the wrong type.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let mut reader = serde_json::Deserializer::from_str(json);
        serde_path_to_error::deserialize(&mut reader)
            .map_err(|e| Error { field: e.path().to_string(), why: e.inner().to_string() })
    }

    /// True if a device was modelled.
    pub fn simulated(&self) -> bool {
        self.runs.iter().any(|run| run.simulated == Some(true))
    }

    /// The rows in groups of one server and one length, in the order in which they stand.
    pub(crate) fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells: Vec<Cell<'_>> = Vec::new();
        for row in &self.rows {
            let runtime = row.runtime.as_deref();
            let same = |c: &&mut Cell<'_>| c.runtime == runtime && c.rows[0].asked() == row.asked();
            match cells.iter_mut().find(same) {
                Some(cell) => cell.rows.push(row),
                None => {
                    cells.push(Cell { runtime, prompt_tokens: row.prompt_tokens, rows: vec![row] })
                }
            }
        }
        for cell in &mut cells {
            cell.rows.sort_by_key(|row| place(&row.condition));
        }
        cells
    }

    /// The run behind a row.
    pub(crate) fn run(&self, runtime: Option<&str>) -> Option<&Run> {
        let same = self.runs.iter().find(|run| run.runtime.as_deref() == runtime);
        same.or_else(|| self.runs.first().filter(|_| runtime.is_none()))
    }
}

impl Row {
    /// Tokens asked for.
    pub(crate) fn asked(&self) -> u64 {
        self.prompt_tokens_asked.unwrap_or(self.prompt_tokens)
    }
}

impl Cell<'_> {
    /// The row of a condition, if it is valid.
    pub fn valid(&self, condition: &str) -> Option<&Row> {
        self.rows.iter().copied().find(|row| row.condition == condition && row.valid)
    }

    /// The median of a condition.
    pub fn median(&self, condition: &str) -> Option<f64> {
        self.valid(condition)?.ttft_ms.median
    }
}

/// The order in which conditions are shown: the trouble, what helps, and how good it can get.
fn place(condition: &str) -> usize {
    let order = ["idle", "hold", "pre-warm-hint", "pre-warm-arrival", "busy", "busy-hold"];
    order.iter().position(|name| *name == condition).unwrap_or(order.len())
}

/// What a condition is, in a few words.
pub(crate) fn about(condition: &str) -> &'static str {
    match condition {
        "idle" => "after a second without GPU work",
        "hold" => "idle, but kept warm by a hold",
        "pre-warm-hint" => "idle, a hint 100 ms ahead",
        "pre-warm-arrival" => "warmed as the request arrives",
        "busy" => "GPU work just before the request",
        "busy-hold" => "GPU work just before, and a hold",
        _ => "",
    }
}

/// A runtime's name for readers.
pub(crate) fn runtime_name(runtime: &str) -> String {
    match runtime {
        "mlx" => "an MLX-like server".to_owned(),
        "llamacpp" => "a llama.cpp-like server".to_owned(),
        other => format!("a server like {other}"),
    }
}
