//! The probes: scenarios of the lab, and how often each of their cells is taken.
//!
//! Cells take turns: one that is taken often lies evenly between those that are taken seldom, so that a
//! drift of the machine meets all alike. Long idle times are what costs wall time, and are taken
//! seldom; controls cost nothing and are taken often, which is what makes few others tell something.

use everwarm_lab::Scenario;
use everwarm_units::Span;

/// A probe: a scenario with sweeps.
pub struct Probe {
    /// The file's name.
    pub name: &'static str,
    /// What it does.
    pub scenario: Scenario,
}

impl Probe {
    /// The built-in probe of that name.
    ///
    /// # Panics
    /// If there is none.
    pub fn named(name: &str) -> Self {
        let (name, text) = FILES.iter().find(|(file, _)| *file == name).expect("a probe's name");
        let scenario = Scenario::from_toml(&format!("built-in probe {name}"), text);
        // A test reads them all, so that this can't fail for a user.
        Probe { name, scenario: scenario.expect("built-in probes read") }
    }

    /// The number of the cell with these values, in the order of the variables' names.
    ///
    /// # Panics
    /// If there is none.
    pub fn cell(&self, values: &str) -> usize {
        let wanted = cell_name(values.split(", "));
        let cells = &self.scenario.cells;
        let found = cells
            .iter()
            .position(|c| cell_name(c.variables.values().map(String::as_str)) == wanted);
        found.unwrap_or_else(|| panic!("no cell `{wanted}` in the probe {}", self.name))
    }
}

/// What a cell with these values is called: equal durations are equal.
pub fn cell_name<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let canonical = |value: &str| match value.parse::<Span>() {
        Ok(span) => span.to_string(),
        Err(_) => value.to_owned(),
    };
    values.map(canonical).collect::<Vec<_>>().join(", ")
}

const FILES: [(&str, &str); 6] = [
    ("clock", include_str!("../probes/clock.toml")),
    ("stream", include_str!("../probes/stream.toml")),
    ("request", include_str!("../probes/request.toml")),
    ("sync", include_str!("../probes/sync.toml")),
    ("gaps", include_str!("../probes/gaps.toml")),
    ("remedies", include_str!("../probes/remedies.toml")),
];

/// A cell and how often it is taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Take {
    /// The probe's name.
    pub probe: &'static str,
    /// The cell's values.
    pub cell: String,
    /// Repetitions.
    pub times: u32,
}

/// Probe, cell, repetitions in a full examination and in a quick one.
///
/// Three against eight controls are what a test at one percent needs to see anything at all
/// (1 / 165 of all ways to deal eleven values out); two tell something only together with others.
const CAUSES: &[(&str, &str, u32, u32)] = &[
    ("clock", "0", 8, 7),
    ("stream", "0", 8, 8),
    ("sync", "0", 4, 0),
    ("gaps", "0", 4, 3),
    ("request", "0", 7, 7),
    ("clock", "50 ms", 3, 0),
    ("clock", "100 ms", 3, 0),
    ("clock", "200 ms", 3, 0),
    ("clock", "500 ms", 3, 3),
    ("clock", "1 s", 3, 0),
    ("stream", "20 ms", 3, 3),
    ("stream", "200 ms", 3, 0),
    ("sync", "500 ms", 3, 0),
    ("gaps", "0.3 ms", 3, 0),
    ("gaps", "1 ms", 3, 3),
    ("gaps", "3 ms", 3, 0),
    ("request", "500 ms", 3, 0),
    ("request", "1200 ms", 2, 3),
    ("request", "2 s", 2, 0),
    ("request", "5 s", 1, 0),
];

/// What finds the causes.
pub fn causes(quick: bool) -> Vec<Take> {
    let take = |(probe, cell, full, short): &(&'static str, &str, u32, u32)| Take {
        probe,
        cell: (*cell).to_owned(),
        times: if quick { *short } else { *full },
    };
    CAUSES.iter().map(take).filter(|take| take.times > 0).collect()
}

/// What an idle time shows that only its longest one did, taken more often.
pub fn again(gap: &str) -> Vec<Take> {
    vec![Take { probe: "request", cell: gap.to_owned(), times: 2 }]
}

/// What finds out what helps, after this idle time.
pub fn remedies(gap: &str) -> Vec<Take> {
    let take = |(condition, times): (&str, u32)| Take {
        probe: "remedies",
        cell: format!("{condition}, {gap}"),
        times,
    };
    [("busy", 4), ("idle", 2), ("hold", 2), ("pre-warm", 2), ("ping", 2)].map(take).into()
}

/// All repetitions in the order in which they are taken: (index of the cell, its repetition).
pub fn turns(takes: &[Take]) -> Vec<(usize, u32)> {
    let mut all: Vec<(f64, usize, u32)> = Vec::new();
    for (index, take) in takes.iter().enumerate() {
        let place = |round| (f64::from(round) + 0.5) / f64::from(take.times);
        all.extend((0..take.times).map(|round| (place(round), index, round)));
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    all.into_iter().map(|(_, index, round)| (index, round)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_that_is_taken_is_in_its_probe() {
        for quick in [false, true] {
            let gaps = ["1200 ms", "2 s", "5 s"];
            for take in causes(quick).into_iter().chain(gaps.into_iter().flat_map(remedies)) {
                Probe::named(take.probe).cell(&take.cell);
            }
        }
        for (name, _) in FILES {
            assert!(!Probe::named(name).scenario.about.is_empty());
        }
    }

    #[test]
    fn cells_take_turns() {
        let take = |times| Take { probe: "clock", cell: "0".into(), times };
        let order: Vec<usize> = turns(&[take(4), take(1), take(2)]).iter().map(|t| t.0).collect();
        assert_eq!(order, [0, 2, 0, 1, 0, 2, 0]);
    }
}
