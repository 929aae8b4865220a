//! `everwarm ttft`.

use crate::bench;
use crate::output::print;
use everwarm_ttft::{Condition, Config, Plan, Results, table};
use everwarm_units::Span;
use std::process::ExitCode;

/// Measures time to first token in interleaved conditions.
///
/// It sends streamed requests to an OpenAI-compatible server and reports, for each prompt length,
/// how long the first token takes after a second of idle and right after GPU work, and how much of
/// the difference a hold or the proxy's pre-warming takes away: medians with 95 % bootstrap
/// intervals. Conditions follow each other round-robin, prompt lengths in a random order, and no two
/// prompts begin alike, so that no prompt cache can help.
///
/// Conditions: `idle` and `busy` need nothing but the server; `hold` and `busy-hold` need the
/// device; `pre-warm-hint` and `pre-warm-arrival` need the proxy's admin port (start the proxy with
/// `--hold-for "0 s"`, else it stays warm through the idle time). Without --conditions, those are
/// measured that have what they need.
///
/// The exit status is 1 if a row has too few valid samples to be called a number.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm ttft --url http://127.0.0.1:8080                 idle and busy, straight at a server
  everwarm ttft --url http://127.0.0.1:8080 --device sim:/tmp/m2.sock --tokens 16,512
  everwarm ttft --url http://127.0.0.1:8081 --admin http://127.0.0.1:8082 --json > ttft.json")]
pub struct Args {
    /// The server, or the proxy in front of it. A path is taken as that of a completions API;
    /// without one it is /v1/chat/completions.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Prompt lengths. Exact on `everwarm sim-server`; elsewhere as near as the server's own
    /// counts allow.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "16,128")]
    tokens: Vec<u32>,
    /// What comes before the requests.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    conditions: Vec<Condition>,
    /// Requests in each condition at each length.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// The GPU that the server runs on, by the wall clock: it is made busy directly, held by
    /// `everwarm hold`, and its energy is read. Without it, a throw-away request makes it busy.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The admin port of the proxy at --url.
    #[arg(long, value_name = "URL")]
    admin: Option<String>,
    /// The model to ask for, where the server has several.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Sent as a bearer token.
    #[arg(long, value_name = "KEY", env = "EVERWARM_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Use one connection for all requests instead of a fresh one each.
    #[arg(long)]
    keep_alive: bool,
    /// Time without GPU work before a request.
    #[arg(long, value_name = "SPAN", default_value = "1 s")]
    idle: Span,
    /// Tokens that each answer may have.
    #[arg(long, value_name = "N", default_value_t = Plan::default().answer_tokens)]
    answer_tokens: u32,
    /// A request is void if a simulated GPU ran later than this while it was served.
    #[arg(long, value_name = "SPAN", default_value = "5 ms")]
    late_max: Span,
    /// It is void, too, if more than this lies between what the client measured and what the
    /// simulated server says of the same prefill: more only where the way is long.
    #[arg(long, value_name = "SPAN", default_value = "3 ms")]
    overhead_max: Span,
    /// How long a request may take.
    #[arg(long, value_name = "SPAN", default_value = "120 s")]
    timeout: Span,
    /// Seed of prompts, order and intervals.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print JSON instead of text: the rows, and every request behind them.
    #[arg(long)]
    json: bool,
}

impl Args {
    fn plan(&self) -> Plan {
        let possible = |c: &Condition| {
            (!c.holds() || self.device.is_some()) && (!c.pre_warms() || self.admin.is_some())
        };
        let conditions = match self.conditions.is_empty() {
            true => Condition::all().filter(possible).collect(),
            false => self.conditions.clone(),
        };
        Plan {
            rounds: self.tokens.iter().map(|tokens| (*tokens, self.rounds)).collect(),
            conditions,
            idle: self.idle,
            answer_tokens: self.answer_tokens,
            late_max: self.late_max,
            overhead_max: self.overhead_max,
            seed: self.seed,
            ..Plan::default()
        }
    }

    fn config(&self) -> anyhow::Result<Config> {
        Ok(Config {
            url: self.url.clone(),
            admin: self.admin.clone(),
            hold: self.device.as_deref().map(bench::hold_command).transpose()?,
            device: self.device.clone(),
            model: self.model.clone(),
            api_key: self.api_key.clone(),
            keep_alive: self.keep_alive,
            timeout: self.timeout,
        })
    }
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let results = bench::measure(args.plan(), args.config()?, args.json)?;
    if args.json {
        print(&format!("{}\n", results.to_json()))?;
    } else {
        print(&text(&results))?;
    }
    Ok(if results.is_valid() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(results: &Results) -> String {
    let head =
        format!("{} requests to {}, timed at the client", results.samples.len(), results.url);
    let legend = bench::legend(&results.plan.conditions);
    let late = bench::lateness(results).map_or(String::new(), |late| format!("\n{late}\n"));
    format!("{head}\n\n{}\n{legend}{}{late}", table(&results.rows()), remarks(results))
}

/// What the numbers do not mean.
fn remarks(results: &Results) -> String {
    let mut text = String::new();
    let lengths: Vec<String> = results.without_penalty().iter().map(u32::to_string).collect();
    if !lengths.is_empty() {
        text += &format!(
            "\nAt {} tokens idle is not slower than busy beyond chance: no penalty was found that \
             could be removed.\n",
            lengths.join(", ")
        );
    }
    if let Some(remark) = &results.proxy_remark {
        text += &format!("\n{remark}\n");
    }
    text
}
