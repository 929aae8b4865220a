//! The command line: `everwarm COMMAND`.
//!
//! Each command is one file in `commands/` (its arguments and a `run`), one line in [`Command`] and
//! one in [`run`]. Commands parse, call a library and print; they hold no logic of their own.

mod bench;
mod children;
mod commands;
mod output;
mod power;
mod price;
mod stop;

use clap::{Parser, Subcommand};
use commands::{demo, devices, doctor, hold, lab, proxy, sim_server, ttft, watch};
use std::process::ExitCode;

/// The first token is never cold.
///
/// A GPU that has been idle for half a second serves the next request at a third of its clock.
/// everwarm measures what that costs, explains it, and takes the cost away.
///
/// Start with `everwarm demo`: the whole story in a minute and a half, on any machine.
#[derive(Parser)]
#[command(name = "everwarm", version, propagate_version = true, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Args),
    Devices(devices::Args),
    Doctor(doctor::Args),
    Hold(hold::Args),
    Lab(lab::Args),
    Proxy(proxy::Args),
    SimServer(sim_server::Args),
    Ttft(ttft::Args),
    Watch(watch::Args),
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Hold(args) => hold::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Proxy(args) => proxy::run(args),
        Command::SimServer(args) => sim_server::run(args),
        Command::Ttft(args) => ttft::run(args),
        Command::Watch(args) => watch::run(args),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("everwarm: {error:#}");
            ExitCode::FAILURE
        }
    }
}
