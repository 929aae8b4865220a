//! `cargo xtask ptx`: the CUDA kernels' text, held against NVIDIA's assembler.
//!
//! The driver compiles that text on the machine that runs it, so a mistake would show there only. The
//! assembler is part of a Python package and needs no GPU; it is installed into a venv of its own,
//! without what the package wants besides. It says that the text is valid, not that it is right.

use std::process::Command;

use anyhow::ensure;

use crate::shell;

/// The kernels.
const TEXT: &str = "crates/gpu/src/backend/cuda/kernels.ptx";

/// The package with the assembler.
const PACKAGE: &str = "nvidia-cuda-nvcc==13.5.37";

/// From the oldest that this assembler knows to the newest: Turing, Ampere, Hopper, two Blackwells.
const TARGETS: [&str; 5] = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"];

/// Assembles the text for each target.
///
/// # Errors
/// When the assembler can't be installed, or refuses; it says which line.
pub fn run() -> anyhow::Result<bool> {
    let venv = shell::root().join(".venv-ptx");
    let found = || {
        let mut find = Command::new("find");
        shell::output(find.arg(&venv).args(["-name", "ptxas", "-type", "f"]))
    };
    if !venv.exists() || found()?.trim().is_empty() {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        let mut pip = Command::new(venv.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        shell::run(pip.args(["--no-input", "--no-deps", PACKAGE]))?;
    }
    let assembler = found()?.trim().to_owned();
    ensure!(!assembler.is_empty(), "{PACKAGE} has no ptxas");
    for target in TARGETS {
        let mut command = Command::new(&assembler);
        command.arg(format!("-arch={target}")).arg(shell::root().join(TEXT));
        shell::run(command.args(["-o", "/dev/null"]))?;
        println!("{target}: {TEXT} is valid");
    }
    Ok(true)
}
