//! What the tests need: system programs, a Vulkan driver that computes on the CPU, a Python venv with
//! pinned servers, small models.
//!
//! Contract: [`ready`] is idempotent and quick when nothing changed. A stamp in the venv holds the
//! text of everything it was made from; another text makes it again. The stamp is written last, so a
//! set-up that was cut short is not taken for a whole one. What this platform has no package for is
//! reported as a reason, never passed over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use crate::shell;

/// Files whose text the venv and the models depend on, below `tools/real-servers/`.
const INPUTS: [&str; 3] = ["requirements.txt", "llama-server.txt", "make_model.py"];

/// A model that the tests load: file stem, and the model maker's flags.
const MODELS: [(&str, &[&str]); 3] = [
    ("tiny.gguf", &["--gguf"]),
    ("tiny", &["--folder"]),
    // About 280 tokens/s of prefill and 40 of decode on two cores: long enough to leave early.
    ("slow.gguf", &["--layers", "8", "--dim", "768", "--heads", "12", "--gguf"]),
];

/// System programs that are used beside Python, and the Debian package of each.
const PROGRAMS: [(&str, &str); 1] = [("curl", "curl")];

/// What the Vulkan backend is tested with, on Linux: its loader, a driver that computes on the CPU,
/// and the compiler of its kernels. Each stands with the files of which one tells that it is there.
const VULKAN: [(&str, &[&str]); 3] = [
    (
        "libvulkan1",
        &[
            "/usr/lib/x86_64-linux-gnu/libvulkan.so.1",
            "/usr/lib/aarch64-linux-gnu/libvulkan.so.1",
            "/usr/lib64/libvulkan.so.1",
            "/usr/lib/libvulkan.so.1",
        ],
    ),
    (
        "mesa-vulkan-drivers",
        &[
            "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json",
            "/usr/share/vulkan/icd.d/lvp_icd.aarch64.json",
            "/usr/share/vulkan/icd.d/lvp_icd.json",
        ],
    ),
    ("glslang-tools", &["/usr/bin/glslangValidator"]),
];

/// What is there to test against.
#[derive(Debug)]
pub struct Ready {
    /// The venv.
    pub venv: PathBuf,
    /// The llama-server binary, or why there is none.
    pub llama: Result<PathBuf, String>,
}

/// True where nobody sits, and nothing is kept for a next time.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// Runs the set-up and prints what there is.
pub fn print(force: bool) -> anyhow::Result<bool> {
    if force {
        let venv = venv();
        if venv.exists() {
            fs::remove_dir_all(&venv)?;
        }
    }
    let ready = ready()?;
    println!("venv and models: {}", shell::relative(&ready.venv));
    match &ready.llama {
        Ok(path) => println!("llama-server: {}", shell::relative(path)),
        Err(reason) => println!("llama-server: none, {reason}"),
    }
    Ok(true)
}

/// Makes what is missing, and says what there is.
///
/// # Errors
/// When a system package is missing and we may not install it, or an installation fails.
pub fn ready() -> anyhow::Result<Ready> {
    system_packages()?;
    python_is_new_enough()?;
    let venv = venv();
    let wanted = stamp()?;
    let stamp = venv.join("everwarm-stamp");
    if fs::read_to_string(&stamp).ok().as_deref() != Some(wanted.as_str()) {
        make(&venv)?;
        fs::write(&stamp, wanted)?;
    }
    let llama = llama_server(&venv);
    Ok(Ready { venv, llama })
}

fn venv() -> PathBuf {
    shell::root().join(".venv-real")
}

fn tools() -> PathBuf {
    shell::root().join("tools/real-servers")
}

/// Everything that the venv is made from, as text.
fn stamp() -> anyhow::Result<String> {
    let mut text = shell::output(Command::new("python3").arg("--version"))?;
    // A venv knows its own folder and breaks when it is moved.
    text += &format!("{}\n", venv().display());
    for input in INPUTS {
        let path = tools().join(input);
        text += &fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    }
    for (name, flags) in MODELS {
        text += &format!("{name} {flags:?}\n");
    }
    Ok(text)
}

/// Makes the venv and the models anew.
fn make(venv: &Path) -> anyhow::Result<()> {
    if venv.exists() {
        fs::remove_dir_all(venv).with_context(|| format!("can't remove {}", venv.display()))?;
    }
    println!("making {} (about a minute, 0.6 GB)", shell::relative(venv));
    shell::run(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    let python = venv.join("bin/python");
    let pip = |file: &str| {
        let mut command = Command::new(&python);
        command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        command.arg("--no-input").arg("-r").arg(tools().join(file));
        command
    };
    shell::run(&mut pip("requirements.txt"))?;
    if prebuilt_llama_server() {
        shell::run(pip("llama-server.txt").args(["--no-deps", "--require-hashes"]))?;
    }
    let models = venv.join("models");
    fs::create_dir_all(&models)?;
    // mlx_lm.server wants its hub's cache folder to exist.
    fs::create_dir_all(venv.join("hub"))?;
    for (name, flags) in MODELS {
        let mut maker = Command::new(&python);
        maker.arg(tools().join("make_model.py")).args(flags).arg(models.join(name));
        shell::run(&mut maker)?;
    }
    Ok(())
}

/// Whether the pinned package has a binary for this platform.
fn prebuilt_llama_server() -> bool {
    cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))
}

/// The venv's llama-server, else one on the search path.
fn llama_server(venv: &Path) -> Result<PathBuf, String> {
    let own = venv.join("bin/llama-server-vulkan");
    if own.is_file() {
        return Ok(own);
    }
    shell::find("llama-server").ok_or_else(|| {
        let (os, cpu) = (std::env::consts::OS, std::env::consts::ARCH);
        format!(
            "the pinned package has no binary for {os} on {cpu}, and no llama-server is on the \
             search path"
        )
    })
}

/// Checks for system packages, and installs them where we may.
///
/// # Errors
/// When one is missing and we may not install it, or its installation fails.
pub fn system_packages() -> anyhow::Result<()> {
    install(&missing_packages())
}

/// Installs Debian packages where we may.
///
/// # Errors
/// When there are any and we may not, or the installation fails.
pub fn install(missing: &[&str]) -> anyhow::Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !cfg!(target_os = "linux") {
        bail!("missing: {list}; install it, with Homebrew: brew install {list}");
    }
    if shell::find("apt-get").is_none() {
        bail!("missing: {list} (Debian's names); install it with this system's package manager");
    }
    let root = shell::output(Command::new("id").arg("-u"))?.trim() == "0";
    if !root {
        bail!("missing: {list}; install it: sudo apt-get install {list}");
    }
    println!("installing {list}");
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.arg("-qq").args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    shell::run(&mut apt(&["update"]))?;
    shell::run(apt(&["install", "--yes", "--no-install-recommends"]).args(missing))
}

/// A venv in `folder` with `package` in it, made when it is not there.
///
/// # Errors
/// When it can't be made.
pub fn venv_of(folder: &Path, package: &str) -> anyhow::Result<PathBuf> {
    let ready = folder.join("ready");
    if fs::read_to_string(&ready).ok().as_deref() != Some(package) {
        shell::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
        let mut pip = Command::new(folder.join("bin/python"));
        shell::run(pip.args(["-m", "pip", "install", "--quiet", package]))?;
        fs::write(ready, package)?;
    }
    Ok(folder.to_path_buf())
}

/// The pinned packages have wheels for Python 3.11 and newer.
fn python_is_new_enough() -> anyhow::Result<()> {
    let version = shell::output(Command::new("python3").arg("--version"))?;
    let minor = version.trim().strip_prefix("Python 3.").and_then(|rest| rest.split('.').next());
    let new_enough = minor.and_then(|minor| minor.parse::<u32>().ok()).is_some_and(|n| n >= 11);
    anyhow::ensure!(new_enough, "python3 is {}, expected at least Python 3.11", version.trim());
    Ok(())
}

/// Debian's names of packages that are not there.
fn missing_packages() -> Vec<&'static str> {
    let mut missing = Vec::new();
    if shell::find("python3").is_none() {
        missing.push("python3");
    }
    // Debian's python3 has the module venv, but without ensurepip it makes none.
    let mut venv = Command::new("python3");
    if shell::output(venv.args(["-c", "import venv, ensurepip"])).is_err() {
        missing.push("python3-venv");
    }
    let programs = PROGRAMS.iter().filter(|(program, _)| shell::find(program).is_none());
    missing.extend(programs.map(|(_, package)| *package));
    if cfg!(target_os = "linux") {
        let there = |files: &[&str]| files.iter().any(|file| Path::new(file).exists());
        let packages = VULKAN.iter().filter(|(_, files)| !there(files));
        missing.extend(packages.map(|(package, _)| *package));
    }
    missing
}
