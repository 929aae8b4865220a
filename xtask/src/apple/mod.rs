//! What can be checked for macOS without a Mac: types and lints of everything that ships in the binary, a
//! linked program, the Metal backend against a fake Metal, its kernels on the CPU.
//!
//! None of it runs Apple's code. docs/devices/metal.md says what that leaves open.

mod check;
mod fake;
mod macho;
mod sdk;
mod zig;

pub use check::check;
pub use fake::fake_metal;

/// Apple's chips under macOS, as Rust calls them.
pub const TARGET: &str = "aarch64-apple-darwin";
