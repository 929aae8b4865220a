//! The firmware performance controller and the chip catalogue.
//!
//! A [`Chip`] is data (`chips/*.toml`: operating points, controller parameters, wake costs, power,
//! each with its source). The controller is a state machine over sampling periods; it sees
//! utilisation, never a command buffer or an experiment.

#![forbid(unsafe_code)]

mod chip;

pub use chip::{Chip, Error};
