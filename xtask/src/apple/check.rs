//! Types, lints and a link of everything that ships in the binary, for Apple's chips under macOS.
//!
//! Contract: needs rustup, which adds the target's standard library; the linker is the one that comes
//! with Rust. The linked program is looked at, and never run.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

use super::zig::Zig;
use super::{TARGET, macho, sdk};
use crate::shell;

/// What the program may be linked to.
const LIBRARIES: [&str; 8] = [
    "/System/Library/Frameworks/CoreFoundation.framework/Versions/A/CoreFoundation",
    "/System/Library/Frameworks/CoreGraphics.framework/Versions/A/CoreGraphics",
    "/System/Library/Frameworks/Foundation.framework/Versions/C/Foundation",
    "/System/Library/Frameworks/IOKit.framework/Versions/A/IOKit",
    "/System/Library/Frameworks/Metal.framework/Versions/A/Metal",
    "/usr/lib/libSystem.B.dylib",
    // Rust's own standard library asks for it.
    "/usr/lib/libiconv.2.dylib",
    "/usr/lib/libobjc.A.dylib",
];

/// Crates that do not ship in it.
const NOT_SHIPPED: [&str; 2] = ["everwarm-real-servers", "xtask"];

/// Runs all of it.
///
/// # Errors
/// What does not compile, does not link, or is linked to something else than expected.
pub fn check() -> anyhow::Result<()> {
    let rustup = shell::find("rustup").context("needs rustup, which adds the target's library")?;
    shell::run(Command::new(rustup).args(["target", "add", TARGET]).current_dir(shell::root()))?;
    let folder = shell::root().join("target/apple");
    fs::create_dir_all(&folder)?;
    let zig = Zig::ready()?;
    zig.write_compiler(&folder.join("cc"))?;
    sdk::write(&folder.join("sdk"), &zig)?;
    let mut clippy = cross("clippy")?;
    clippy.arg("--workspace");
    for name in NOT_SHIPPED {
        clippy.args(["--exclude", name]);
    }
    shell::run(clippy.args(["--", "-D", "warnings"]))?;
    shell::run(cross("build")?.args(["--package", "everwarm", "--bin", "everwarm"]))?;
    let program = shell::target()?.join(TARGET).join("debug/everwarm");
    look_at(&macho::read(&fs::read(&program)?)?)?;
    println!("{} is linked for {TARGET}", shell::relative(&program));
    Ok(())
}

/// Cargo with our linker, C compiler and stand-in of the SDK. Nothing runs, so nothing is optimised.
fn cross(task: &str) -> anyhow::Result<Command> {
    let folder = shell::root().join("target/apple");
    let mut cargo = shell::cargo();
    cargo.args([task, "--target", TARGET, "--config", "profile.dev.package.\"*\".opt-level=0"]);
    cargo.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    cargo.env("CC_aarch64_apple_darwin", folder.join("cc")).env("SDKROOT", folder.join("sdk"));
    cargo.env("CARGO_TARGET_AARCH64_APPLE_DARWIN_LINKER", linker()?);
    cargo.env("CARGO_TARGET_AARCH64_APPLE_DARWIN_RUSTFLAGS", "-Clinker-flavor=ld64.lld");
    cargo.envs(Zig::caches());
    Ok(cargo)
}

/// The linker that comes with Rust.
fn linker() -> anyhow::Result<PathBuf> {
    let sysroot = shell::output(
        Command::new("rustc").args(["--print", "sysroot"]).current_dir(shell::root()),
    )?;
    let host = shell::output(Command::new("rustc").args(["--print", "host-tuple"]))?;
    let library = PathBuf::from(sysroot.trim()).join("lib/rustlib");
    let linker = library.join(host.trim()).join("bin/rust-lld");
    ensure!(linker.is_file(), "{} is not there", linker.display());
    Ok(linker)
}

/// Whether the program is what macOS would want to see.
fn look_at(program: &macho::Program) -> anyhow::Result<()> {
    ensure!(program.is_arm64_executable, "the program is no executable for arm64");
    ensure!(program.is_signed, "the program has no signature; macOS starts none without");
    let (major, minor) =
        program.least_macos.context("the program does not say for which macOS it is")?;
    ensure!((major, minor) <= (11, 0), "the program wants macOS {major}.{minor}, expected 11.0");
    let expected: BTreeSet<String> = LIBRARIES.map(str::to_owned).into();
    ensure!(
        program.libraries.is_subset(&expected),
        "the program is linked to {:?}, expected none but {expected:?}",
        program.libraries
    );
    for needed in ["Metal.framework", "libobjc", "libSystem"] {
        let is_there = program.libraries.iter().any(|library| library.contains(needed));
        ensure!(is_there, "the program is not linked to {needed}");
    }
    Ok(())
}
