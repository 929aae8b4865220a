//! The firmware performance controller and the chip catalogue.
//!
//! A [`Chip`] is data (`chips/*.toml`: operating points, controller parameters, wake costs, power,
//! each with its source). The [`Controller`] is a state machine over sampling periods; it sees
//! utilisation, never a command buffer or an experiment.

#![forbid(unsafe_code)]

mod catalogue;
mod check;
mod chip;
mod controller;
mod file;
mod like;
mod origin;
mod power_model;
mod scale;
mod tree;

pub use chip::{
    Chip, ControllerParameters, HostCosts, KernelCosts, OperatingPoint, Power, WakeCosts, WakeStart,
};
pub use controller::{Controller, Sample};
pub use like::Parents;
pub use origin::{How, Origin, Traced, Value};
pub use power_model::{CsModel, CsPoint, PowerModel};
pub use scale::{RULES, Rule};

/// Why a chip can't be used.
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
