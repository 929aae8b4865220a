//! What the proxy costs beside others: latency, CPU, memory, and how soon it warms.
//!
//! `cargo xtask bench proxy` builds what it needs and runs it. Every condition (the direct path and
//! each proxy, with each load) is measured once in every round, the order turning from round to round.
//! Prints the tables of `docs/performance.md`.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod cost;
#[cfg(target_os = "linux")]
mod peers;
#[cfg(target_os = "linux")]
mod prewarm;
#[cfg(target_os = "linux")]
mod relay;
#[cfg(target_os = "linux")]
mod tables;
#[cfg(target_os = "linux")]
mod upstream;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    let args: cost::Args = clap::Parser::parse();
    match args.relay_to {
        Some(upstream) => relay::run(upstream),
        None => cost::run(&args),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("error: it reads /proc and pins threads to CPUs, which takes Linux");
    std::process::exit(2);
}
