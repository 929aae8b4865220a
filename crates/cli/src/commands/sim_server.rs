//! `everwarm sim-server`.

use crate::output::print;
use anyhow::Context;
use everwarm_hold::on_parent_exit;
use everwarm_sim_server::{CONTEXT_DEFAULT, Config, Handle, Signals, spawn};
use everwarm_workload::Runtime;
use rustix::process::{Signal, getpid, kill_process};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// A simulated GPU in real time behind an OpenAI-compatible API.
///
/// Prompts and answers run on a simulated GPU that keeps the wall clock's time, so that any client
/// and any proxy meets the cold first tokens of a real one. Other processes share the GPU through
/// a Unix socket, as device `sim:PATH`.
///
/// It serves /v1/chat/completions and /v1/completions (streamed and whole), /v1/models and
/// /health, one request at a time, and never answers anything meaningful: only the number of
/// tokens and their times are real. Words of up to 16 bytes are one token each; a chat message
/// adds 3, the chat 1, so a single message of 12 words is a prompt of 16 tokens. Answers carry
/// `timings` with the simulation's own times, and how late it ran (`late_p99_ms`).
///
/// When it is ready it prints one line; it ends on SIGINT (Ctrl-C) or SIGTERM.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm sim-server                             an M2 running an MLX-like server on port 8080
  everwarm sim-server --runtime llamacpp --listen 127.0.0.1:0 --json
  everwarm sim-server --socket /tmp/m2.sock &
  everwarm hold --device sim:/tmp/m2.sock         another process keeps the same GPU warm
  curl http://127.0.0.1:8080/v1/chat/completions -d \\
    '{\"messages\": [{\"role\": \"user\", \"content\": \"one two three\"}], \"max_tokens\": 8}'")]
pub struct Args {
    /// The GPU to simulate: a built-in chip (`sim:m2`) or a chip file (`sim:FILE.toml`).
    #[arg(long, value_name = "DEVICE", default_value = "sim:m2")]
    device: String,

    /// How prompts are submitted: `mlx` (waits for each command buffer), `llamacpp` (commits
    /// ahead), or a runtime file of your own (docs/runtimes.md).
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "mlx", value_parser = runtime)]
    runtime: Runtime,

    /// Where to serve HTTP; port 0 takes any free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080",
          value_parser = super::proxy::address)]
    listen: SocketAddr,

    /// Where other processes find the GPU [default: a file in $XDG_RUNTIME_DIR or the folder for
    /// temporary files].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Tokens that a prompt and its answer may have together.
    #[arg(long, value_name = "TOKENS", default_value_t = CONTEXT_DEFAULT,
          value_parser = clap::value_parser!(u32).range(2..=1_048_576))]
    context: u32,

    /// End when the process that started this one ends.
    #[arg(long)]
    exit_with_parent: bool,

    /// Print the ready line as JSON: `{"url": …, "device": "sim:PATH"}`.
    #[arg(long)]
    json: bool,
}

fn runtime(name: &str) -> Result<Runtime, String> {
    if !name.ends_with(".toml") {
        return Runtime::built_in(name)
            .map_err(|error| format!("{error}, and runtime files, whose names end in .toml"));
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("can't read it: {error}"))?;
    Runtime::from_toml(&text).map_err(|error| error.to_string())
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { device, runtime, listen, socket, context, exit_with_parent, json } = args;
    let signals = Signals::watch().context("can't watch for signals")?;
    if exit_with_parent {
        // By the same way as a user's signal, so that the socket's file goes, too.
        on_parent_exit(|| {
            let _ = kill_process(getpid(), Signal::TERM);
        });
    }
    let handle = spawn(Config { device, runtime, listen, socket, context })?;
    print_ready(&handle, json).context("can't print the ready line")?;
    signals.wait();
    Ok(ExitCode::SUCCESS)
}

fn print_ready(handle: &Handle, json: bool) -> anyhow::Result<()> {
    let (url, device) = (handle.url(), handle.device());
    match json {
        true => print(&format!("{}\n", serde_json::json!({"url": url, "device": device}))),
        false => print(&format!("serving {url} on {device}\n")),
    }
}
