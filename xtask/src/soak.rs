//! `cargo xtask soak`: the soak of `crates/cli/tests/soak`, as long as one likes.

use crate::shell;

/// How long, and which.
#[derive(clap::Args)]
pub struct Args {
    /// Requests in all.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: u64,
    /// Draws the faults.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
}

/// Runs it; true when nothing was lost, invented or left behind.
pub fn run(args: &Args) -> anyhow::Result<bool> {
    let mut test = shell::cargo();
    test.args(["test", "--package", "everwarm", "--test", "soak", "--"]);
    test.args(["no_byte_is_lost_or_invented", "--exact", "--nocapture"]);
    test.env("EVERWARM_SOAK_REQUESTS", args.requests.to_string());
    shell::run(test.env("EVERWARM_SOAK_SEED", args.seed.to_string())).map(|()| true)
}
