//! Experiments as data, run on any device by one interpreter.
//!
//! A [`Scenario`] says what is submitted, when and by whom; [`run`] carries it out and records
//! what happened. No part of this crate knows an experiment by name: what an experiment is stands in
//! its file.

#![forbid(unsafe_code)]

mod ablate;
mod builtin;
mod claims;
mod data;
mod export;
mod figures;
pub mod fit;
mod interpret;
mod measure;
mod predict;
mod scenario;
mod self_test;
mod summary;
mod text;

pub use ablate::{
    Ablated, Ablation, Ablations, Change, Constant, Error as AblateError, Kind, Margin, Moved,
    Numbers, Parameter, Sensitivity, Table, ablate, sensitivity,
};
pub use builtin::{BuiltIn, SCENARIOS, names as scenario_names, scenario, set as scenario_set};
pub use claims::{
    Claim, Claims, Error as ClaimsError, Expect, Origin, Progress, Report, Verdict, Worst, check,
    check_chip, fits,
};
pub use data::{Dispatch, RunData, StepRun, Unit};
pub use export::{Export, cell_name, manifest, records, telemetry};
pub use figures::{Axis, Curve, Error as FigureError, Figure, Figures, Mark, Panel, Point, Series};
pub use interpret::{Error, Session, run, run_on_backend, run_on_chip, run_told};
pub use measure::{Dimension, Measure, Measured, Unit as MeasureUnit};
pub use predict::{
    Base, Cliff, Penalty, Prediction, Ramp, changed_chip, predict, prediction_parts, serving,
};
pub use scenario::{
    Actor, BadRounds, Cell, Depth, Order, Part, Run, Scenario, Step, StepKind, Until, Work,
};
pub use self_test::{self_test, self_test_on};
pub use summary::{Summary, summary};
pub use text::BadInput;
