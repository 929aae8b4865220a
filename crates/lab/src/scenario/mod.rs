//! Experiments as data: from a file (or a part of a claims file) to a plan.
//!
//! docs/scenarios.md is the reference of the format. Whatever is wrong with a text is found here,
//! with its place; the interpreter takes a [`Scenario`] as it is.

mod doc;
mod plan;
mod read;
mod sweep;
mod value;

pub use plan::{
    Actor, BadRounds, Cell, Depth, Order, Part, Run, Scenario, Step, StepKind, Until, Work,
};
pub use sweep::canonical;
pub use value::{Count, Duration};

use crate::text::{BadInput, Source};
use toml::Spanned;
use toml::de::DeTable;

impl Scenario {
    /// Reads a scenario file's text; `file` is named in errors.
    ///
    /// # Errors
    /// [`BadInput`] says where, what stands there and what was expected.
    pub fn from_toml(file: &str, text: &str) -> Result<Scenario, BadInput> {
        let source = Source { file, text };
        let stem = std::path::Path::new(file).file_stem().and_then(|s| s.to_str());
        read::read(source, source.parse()?, stem.unwrap_or(file))
    }

    /// Reads a scenario that stands inside another document.
    pub(crate) fn from_table<'a>(
        source: Source<'a>,
        table: Spanned<DeTable<'a>>,
        name: &str,
    ) -> Result<Scenario, BadInput> {
        read::read(source, table, name)
    }
}
