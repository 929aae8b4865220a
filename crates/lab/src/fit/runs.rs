//! Whether runs belong together, what is kept back, and which probe would show what is missing.

use super::Error;
use crate::scenario::Scenario;
use everwarm_fit::{Findings, Step};
use everwarm_record as record;
use std::collections::BTreeSet;

/// One cell in so many is kept back.
const KEPT_BACK: usize = 5;

/// The device of all runs and the scenarios that repeat them.
pub(super) fn check(runs: &[record::Run]) -> Result<(String, Vec<Scenario>), Error> {
    let devices: BTreeSet<&str> = runs.iter().map(|r| r.manifest.device_id.as_str()).collect();
    let device = match devices.len() {
        0 => return Err(Error::NoRuns),
        1 => runs[0].manifest.device_id.clone(),
        _ => return Err(Error::Mixed(devices.into_iter().collect::<Vec<_>>().join(", "))),
    };
    let mut scenarios: Vec<Scenario> = Vec::new();
    for run in runs {
        let read = scenario(run)?;
        match scenarios.iter().find(|known| known.name == read.name) {
            // A scenario that was recorded twice has the more rounds.
            Some(known) if known.cells == read.cells => {}
            Some(_) => return Err(Error::Differs(read.name)),
            None => scenarios.push(read),
        }
    }
    Ok((device, scenarios))
}

/// The steps of all runs; a run that breaks off is used without the round of a cell in which it does.
pub(super) fn steps_of(runs: &[record::Run]) -> Vec<Step> {
    let mut all = Vec::new();
    for run in runs {
        let mut own = everwarm_fit::steps(run);
        if run.truncated.is_some()
            && let Some(last) = own.last().map(|s| (s.cell.clone(), s.round))
        {
            own.retain(|s| (s.cell.as_str(), s.round) != (last.0.as_str(), last.1));
        }
        all.extend(own);
    }
    all
}

fn scenario(run: &record::Run) -> Result<Scenario, Error> {
    let device = run.manifest.device_id.clone();
    let bad = |name: &str, why: String| {
        let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
        Error::Run { device: device.clone(), name, why }
    };
    let Some(scenario) = &run.manifest.scenario else {
        return Err(bad("", "has no scenario, so that it can't be simulated".into()));
    };
    if run.dispatches.is_empty() {
        return Err(bad(&scenario.name, "has no command buffers".into()));
    }
    let read = Scenario::from_toml(&scenario.name, &scenario.text);
    let mut read =
        read.map_err(|error| bad(&scenario.name, format!("has a bad scenario: {error}")))?;
    read.name.clone_from(&scenario.name);
    Ok(read)
}

/// Cells that are kept back: every fifth of each scenario, in the order of the runs, but not the
/// first, and none of a scenario of a few cells.
pub(super) fn kept_back(all: &[Step]) -> BTreeSet<(String, String)> {
    let mut order: Vec<(String, String)> = Vec::new();
    let mut seen = BTreeSet::new();
    for step in all {
        let key = (step.scenario.clone(), step.cell.clone());
        if seen.insert(key.clone()) {
            order.push(key);
        }
    }
    let mut kept = BTreeSet::new();
    let names: BTreeSet<String> = order.iter().map(|(name, _)| name.clone()).collect();
    for name in names {
        let own: Vec<_> = order.iter().filter(|(own, _)| *own == name).collect();
        if own.len() >= 2 * KEPT_BACK {
            kept.extend(own.into_iter().skip(KEPT_BACK / 2).step_by(KEPT_BACK).cloned());
        }
    }
    kept
}

/// The probe of ramps.
const RAMPS: &str = "fit-ramp";

/// Beginnings of the names of findings, and the probe that shows each.
const EXPECTED: [(&str, &str); 14] = [
    ("clock 1", "fit-ramp"),
    ("clock 2", "fit-ramp"),
    ("commit to start", "fit-ramp"),
    ("end to host", "fit-ramp"),
    ("gap between queued buffers", "fit-ramp"),
    ("idle-off", "fit-idle"),
    ("wake after", "fit-wake"),
    ("memory path", "fit-wake"),
    ("deep idle stall", "fit-wake"),
    ("deep idle", "fit-wake"),
    ("decay", "fit-decay"),
    ("ramp", "fit-ramp"),
    ("control period", "fit-ramp"),
    ("cliff", "fit-gaps"),
];

/// What `found` lacks, and why.
pub(super) fn missing(all: &[Step], found: &Findings, device: &str) -> Vec<(String, String)> {
    let ran: BTreeSet<&str> = all.iter().map(|s| s.scenario.as_str()).collect();
    let lacks = |(name, _): &&(&str, &str)| !found.keys().any(|key| key.starts_with(name));
    let why = |(name, probe): &(&str, &str)| {
        let why = match ran.contains(probe) {
            true => format!("{probe} shows no such change"),
            false => format!(
                "no run of {probe}: `everwarm lab run {probe} --device {device} -o {probe}.jsonl`"
            ),
        };
        ((*name).to_owned(), why)
    };
    EXPECTED.iter().filter(lacks).map(why).chain(ramps(all, found)).collect()
}

/// Scenarios of which cells are missing: runs that were cut short.
pub(super) fn absent(scenarios: &[Scenario], all: &[Step]) -> Vec<(String, String)> {
    let one = |scenario: &Scenario| {
        let ran = all.iter().filter(|s| s.scenario == scenario.name).map(|s| s.cell.as_str());
        let (ran, cells) = (ran.collect::<BTreeSet<_>>().len(), scenario.cells.len());
        let why = format!("{ran} of its {cells} cells are in the run");
        (ran < cells).then(|| (format!("the rest of {}", scenario.name), why))
    };
    scenarios.iter().filter_map(one).collect()
}

/// Ramps of the probe of which a part is not known.
fn ramps(all: &[Step], found: &Findings) -> Vec<(String, String)> {
    let cells = all.iter().filter(|s| s.scenario == RAMPS).map(|s| s.cell.as_str());
    let cells: BTreeSet<&str> = cells.collect();
    let parts = [
        (
            "first step",
            "it falls into the first buffer, or the buffers there are as long as the ramp",
        ),
        ("half", "the buffers there are as long as the ramp"),
        ("top", "the loop does not stay at the top clock, or buffers are as long as the ramp"),
    ];
    let of = |cell| parts.map(|(part, why)| (format!("ramp {cell}: {part}"), why.to_owned()));
    cells.into_iter().flat_map(of).filter(|(name, _)| !found.contains_key(name)).collect()
}
