//! Set-up, tests, tidy and benches of this workspace: `cargo xtask --help`.
//!
//! Knows the workspace from outside only (its files, `cargo metadata`, commands); no crate of it is
//! a dependency, so it builds in seconds and runs when the rest doesn't compile.

#![forbid(unsafe_code)]

mod apple;
mod bench;
mod disk;
mod fuzz;
mod loom;
mod pages;
mod proof;
mod ptx;
mod report;
mod setup;
mod shaders;
mod shell;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Set-up, tests, tidy and benches of everwarm's workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installs what the real-server tests need: a Python venv with pinned servers, and small models.
    ///
    /// Quick when all is there; made again when tools/real-servers/ has changed.
    Setup {
        /// Make it again, whatever is there.
        #[arg(long)]
        force: bool,
    },
    /// Runs all tests, or only the named steps.
    Test {
        /// Steps to run; all when none is named.
        #[arg(value_enum)]
        steps: Vec<test::Step>,
    },
    /// Checks the rules that neither compiler nor clippy can hold.
    Tidy,
    /// Makes the parts of README and docs again that commands make, and their images.
    Pages {
        /// Write nothing; fail with the differences if a page is stale.
        #[arg(long)]
        check: bool,
    },
    /// Compiles the Vulkan kernels again, into the files that are checked in.
    Shaders {
        /// Write nothing; fail if a file is stale.
        #[arg(long)]
        check: bool,
    },
    /// Assembles the CUDA kernels for five generations of GPUs, with NVIDIA's assembler from PyPI.
    Ptx,
    /// Times the check of the built-in claims and the simulator's engine, in release.
    Bench {
        #[command(subcommand)]
        what: Option<bench::What>,
    },
    /// Fuzzes what reads foreign bytes: streams, hints, files of every format.
    Fuzz(fuzz::Args),
    /// Sends requests through the proxy's process while everything around it fails.
    Soak(soak::Args),
    /// Tries every order of steps of the threads that share the warmer's mailbox.
    Loom,
    /// Recovers 20 random chips from noisy runs and writes the table of docs/fit.md.
    ///
    /// Takes many minutes of all cores.
    FitProof(proof::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Setup { force } => setup::print(force),
        Task::Test { steps } => test::run(&steps),
        Task::Tidy => tidy::print(),
        Task::Pages { check } => pages::run(check),
        Task::Shaders { check } => shaders::run(check),
        Task::Ptx => ptx::run(),
        Task::Bench { what } => bench::run(what.as_ref()),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Soak(args) => soak::run(&args),
        Task::Loom => loom::run(),
        Task::FitProof(args) => proof::run(&args),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
