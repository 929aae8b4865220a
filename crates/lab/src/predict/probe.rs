//! A scenario that has run on a chip, and measures on it.

use crate::data::RunData;
use crate::interpret::{Error, run_on_chip};
use crate::measure::Measure;
use crate::scenario::Scenario;
use crate::text::Source;
use everwarm_dvfs::Chip;

/// What a scenario has recorded.
pub struct Probe(RunData);

impl Probe {
    /// Runs a scenario of this crate.
    ///
    /// # Panics
    /// If `text` is no scenario.
    pub fn run(name: &str, text: &str, chip: &Chip) -> Result<Probe, Error> {
        let scenario = Scenario::from_toml(&format!("prediction {name}.toml"), text);
        let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
        Ok(Probe(run_on_chip(&scenario, chip)?))
    }

    /// The value of a measure of one cell, in its SI unit; `None` if there is nothing of it, such as
    /// the time to a p-state that is not reached.
    ///
    /// # Panics
    /// If `text` is no measure.
    pub fn take(&self, text: &str) -> Option<f64> {
        let text = format!("measure = {{ {text} }}");
        let source = Source { file: "prediction", text: &text };
        let measure = source.parse().and_then(|top| Measure::of_document(source, top));
        let measure = measure.unwrap_or_else(|error| panic!("{error}"));
        let values = measure.take(&self.0).ok()?.values;
        assert_eq!(values.len(), 1, "{text} is of {} cells; expected one", values.len());
        Some(values[0])
    }

    /// The same where there is a value in any case.
    pub fn must(&self, text: &str) -> f64 {
        self.take(text).unwrap_or_else(|| panic!("nothing to measure: {text}"))
    }
}
