//! A chip as data.

use everwarm_units::Hertz;

/// Everything the simulator knows of one chip.
#[derive(Clone, Debug, PartialEq)]
pub struct Chip {
    /// Short name, as in `sim:m2`.
    pub id: String,
    /// The maker's name.
    pub name: String,
    /// Clocks of the p-states, ascending, without the off state.
    pub pstates: Vec<Hertz>,
}

/// Why a chip file can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// No built-in chip of that name.
    #[error("no chip `{name}`; there are {known}")]
    Unknown {
        /// As asked.
        name: String,
        /// The built-in ones.
        known: String,
    },
    /// A chip file's text is wrong.
    #[error("{0}")]
    Invalid(String),
}

impl Chip {
    /// Names of the built-in chips, the default one first.
    pub fn names() -> Vec<&'static str> {
        vec!["m2"]
    }

    /// A built-in chip (`m2`).
    ///
    /// # Errors
    /// [`Error::Unknown`] lists the ones there are.
    pub fn built_in(name: &str) -> Result<Chip, Error> {
        match name {
            "m2" => Ok(Chip {
                id: "m2".into(),
                name: "Apple M2 (t8112), 8-core GPU".into(),
                pstates: [444.0, 612.0, 808.0, 968.0, 1110.0, 1236.0, 1338.0, 1398.0]
                    .map(Hertz::mhz)
                    .to_vec(),
            }),
            other => Err(Error::Unknown { name: other.into(), known: Self::names().join(", ") }),
        }
    }

    /// Reads a chip file.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line, the value and what was expected.
    pub fn from_toml(_text: &str) -> Result<Chip, Error> {
        Err(Error::Invalid("chip files are not read yet".into()))
    }
}
