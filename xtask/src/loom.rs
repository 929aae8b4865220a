//! `cargo xtask loom`: what threads of the warmer share, in every order that loom can think of.
//!
//! A build of its own: under `--cfg loom` locks, atomics and waiting are loom's.

use crate::shell;

/// Runs the tests that are written for loom; true when no order breaks one.
pub fn run() -> anyhow::Result<bool> {
    let folder = shell::target()?.join("loom");
    let mut test = shell::cargo();
    test.args(["test", "--package", "everwarm-hold", "--lib", "orders", "--target-dir"]);
    shell::run(test.arg(folder).env("RUSTFLAGS", "--cfg loom")).map(|()| true)
}
