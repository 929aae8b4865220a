//! Set-up, tests, tidy and benches of this workspace: `cargo xtask --help`.

fn main() {}
