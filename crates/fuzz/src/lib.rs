//! What must hold for any bytes at all: one function a reader of foreign bytes, a panic when it fails.
//!
//! Readers are those of what strangers send (streams, hints, the socket of a shared GPU) and of what
//! people write (files of every format). A function may demand more than that nothing panics: that any
//! split of the bytes gives the same, that a second, simpler reader agrees, that what was read and
//! written is read again as it was.
//!
//! It knows neither the fuzzer nor where corpora are kept. `cargo xtask fuzz` drives these functions by
//! what inputs cover; `tests/corpus.rs` runs the kept inputs through them.
//!
//! Contract: a [`Target`] is deterministic, and takes time and memory in proportion to its input.

#![forbid(unsafe_code)]

mod files;
mod hints;
mod pieces;
mod runs;
mod tap;
mod wire;

/// One reader and what must hold for it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line, and of its folder of kept inputs.
    pub name: &'static str,
    /// Panics if for these bytes something does not hold.
    pub check: fn(&[u8]),
    /// Good inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TABLE: &[Target] = &[
    Target { name: "tap", check: tap::check, seeds: tap::seeds },
    Target { name: "hint", check: hints::check, seeds: hints::seeds },
    Target { name: "wire", check: wire::check, seeds: wire::seeds },
    Target { name: "scenario", check: files::scenario, seeds: files::scenarios },
    Target { name: "claims", check: files::claims, seeds: files::claims_seeds },
    Target { name: "figures", check: files::figures, seeds: files::figures_seeds },
    Target { name: "ablations", check: files::ablations, seeds: files::ablations_seeds },
    Target { name: "chip", check: files::chip, seeds: files::chips },
    Target { name: "runtime", check: files::runtime, seeds: files::runtimes },
    Target { name: "model", check: files::model, seeds: files::models },
    Target { name: "record", check: runs::record, seeds: runs::records },
    Target { name: "gzip", check: runs::gzip, seeds: runs::gzips },
    Target { name: "parquet", check: runs::parquet, seeds: runs::tables },
    Target { name: "traffic", check: runs::traffic, seeds: runs::traffics },
];
