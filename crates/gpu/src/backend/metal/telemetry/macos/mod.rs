//! Where the bytes come from: IOReport, the IORegistry, sysctl. macOS only.
//!
//! **Never run on a Mac.** It is type-checked and linted for `aarch64-apple-darwin`. What it gets
//! is handed to the decoders as it is; nothing is judged here.
//!
//! Ownership: what a function with Create or Copy in its name returns is ours and released once;
//! what one with Get in its name returns belongs to its container and is never released.

mod ioreport;
mod registry;
mod sysctl;

pub use ioreport::Reader;
pub use registry::{node, number};

use super::machine::Machine;

/// What this Mac says of itself.
pub fn machine() -> Machine {
    Machine {
        chip: sysctl::text(c"machdep.cpu.brand_string"),
        model: sysctl::text(c"hw.model"),
        macos: sysctl::text(c"kern.osproductversion"),
        build: sysctl::text(c"kern.osversion"),
        gpu_cores: number(c"AGXAccelerator", "gpu-core-count")
            .and_then(|cores| u32::try_from(cores).ok())
            .filter(|cores| *cores > 0),
    }
}
