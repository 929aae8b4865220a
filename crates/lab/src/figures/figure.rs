//! What a figure is: panels of curves over marks, in the units of their axes.
//!
//! Knows neither the file that it is read from nor how it is drawn.

use crate::measure::{Measure, Unit};
use crate::scenario::Scenario;
use std::sync::Arc;

/// A file of figures.
#[derive(Clone, Debug)]
pub struct Figures {
    /// In the file's order.
    pub figures: Vec<Figure>,
}

/// Panels below each other.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Short name; the image is called after it.
    pub name: String,
    /// What it shows, in some words.
    pub title: String,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// Curves over marks between two axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What the device gives.
    pub curves: Vec<Curve>,
    /// What it is held against.
    pub marks: Vec<Mark>,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is on it.
    pub label: String,
    /// In which unit.
    pub unit: Unit,
    /// By powers of ten.
    pub log: bool,
    /// Its ends. Unit: `unit`.
    pub ends: (f64, f64),
}

/// One line.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// What is submitted.
    pub scenario: Arc<Scenario>,
    /// How points are read off.
    pub series: Series,
}

/// How points are read off a run.
#[derive(Clone, Debug)]
pub enum Series {
    /// The rate of each command buffer of a step, over time.
    Course {
        /// The step's label.
        label: String,
    },
    /// One measure for each place on the x axis.
    Measures(Vec<(f64, Measure)>),
}

/// What is expected: a point, or a range in either direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// From, to; equal for a point. Unit: the axis's.
    pub x: (f64, f64),
    /// The same upwards.
    pub y: (f64, f64),
    /// The curve that it belongs to, counted from 0; none for all.
    pub curve: Option<usize>,
    /// Where it is from: a claim's id, or the source in words.
    pub source: String,
}
