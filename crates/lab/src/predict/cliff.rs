//! The longest gap between two command buffers at which a loop keeps the top clock.

use super::Cliff;
use super::probe::Probe;
use crate::interpret::Error;
use everwarm_dvfs::Chip;

/// Execution times at the top clock. Unit: ms.
pub const KERNELS_MS: [f64; 3] = [0.58, 2.3, 5.8];

/// The longest gap that is looked at. Unit: ms.
const LONGEST_MS: f64 = 20.0;
/// From one gap to the next one that is tried, before the search narrows.
const STRIDE: f64 = 1.2;
/// How closely the cliff is found. Unit: ms.
const RESOLUTION_MS: f64 = 0.01;

/// Searches upwards for the first gap that loses the top clock, then between it and the one before.
pub fn find(chip: &Chip, kernel_ms: f64) -> Result<Cliff, Error> {
    let top = chip.top().0;
    let round_trip = chip.host.commit_to_start + chip.host.completion_to_host;
    let mut holds = None;
    let mut gap = (round_trip.as_ms() + RESOLUTION_MS).max(0.1);
    let (mut loses, mut falls_to) = loop {
        let state = settled(chip, kernel_ms, gap)?;
        if state < top {
            break (gap, state);
        }
        holds = Some(gap);
        if gap >= LONGEST_MS {
            return Ok(Cliff { kernel_ms, holds_ms: holds, falls_to: None });
        }
        gap = (gap * STRIDE).min(LONGEST_MS);
    };
    while let Some(kept) = holds.filter(|kept| loses - kept > RESOLUTION_MS) {
        let middle = (kept + loses) / 2.0;
        match settled(chip, kernel_ms, middle)? {
            state if state < top => (loses, falls_to) = (middle, state),
            _ => holds = Some(middle),
        }
    }
    Ok(Cliff { kernel_ms, holds_ms: holds, falls_to: Some(falls_to) })
}

/// The p-state that a loop with this gap settles at.
fn settled(chip: &Chip, kernel_ms: f64, gap_ms: f64) -> Result<u8, Error> {
    let scenario = format!(
        "steps = [{{ idle = \"300 ms\" }}, {{ run = {{ alu = \"{kernel_ms} ms\" }}, \
         gap = \"{gap_ms:.4} ms\", for = \"3 s\", label = \"load\" }}]"
    );
    let probe = Probe::run("gap", &scenario, chip)?;
    Ok(probe.must("metric = \"pstate\", label = \"load\", last = 0.6") as u8)
}
