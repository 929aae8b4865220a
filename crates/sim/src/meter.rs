//! Residency and energy, integrated between the changes of what draws power.
//!
//! The rail draws a floor that depends on the p-state and, for each running buffer, power in
//! proportion to the share of the GPU that it fills. Both follow the chip's table of limits: the
//! driver's figures overstate the draw, their ratios between states are taken over.

use crate::work::Progress;
use everwarm_dvfs::Chip;
use everwarm_units::{Joules, PState, Span, Watts};

/// Power of each state. Shape: index 0 is off.
#[derive(Clone, Debug)]
pub(crate) struct PowerTable {
    floor: Vec<Watts>,
    dynamic: Vec<Watts>,
    memory_share: f64,
}

impl PowerTable {
    pub(crate) fn new(chip: &Chip) -> PowerTable {
        let p = &chip.power;
        let top = chip.pstates[chip.pstates.len() - 1].power_limit;
        let ratio = |n: usize| chip.pstates[n].power_limit / top;
        let states = 0..chip.pstates.len();
        let floor = states.clone().map(|n| Watts::w((p.idle * ratio(n)).as_w().max(p.off.as_w())));
        let dynamic = states.map(|n| (p.full - p.idle) * ratio(n));
        PowerTable {
            floor: std::iter::once(p.off).chain(floor).collect(),
            dynamic: std::iter::once(Watts::ZERO).chain(dynamic).collect(),
            memory_share: p.memory_share,
        }
    }

    /// Energy of a buffer at `pstate` until `to`, since its rates last changed.
    fn running(&self, pstate: PState, buffer: &Progress, to: u64) -> Joules {
        let (ns, computing) = buffer.spent(to);
        let weighted = computing + self.memory_share * (ns - computing);
        Joules::j(self.dynamic[pstate.index()].as_w() * buffer.occupancy() * weighted / 1e9)
    }

    fn floor(&self, pstate: PState, ns: u64) -> Joules {
        self.floor[pstate.index()] * Span::ns(ns)
    }
}

/// Time and energy up to the last change.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    table: PowerTable,
    pstate: PState,
    since: u64,
    /// Unit: ns. Shape: index 0 is off.
    residency: Vec<u64>,
    energy: Joules,
    busy: u64,
}

impl Meter {
    pub(crate) fn new(chip: &Chip) -> Meter {
        Meter {
            table: PowerTable::new(chip),
            pstate: PState::OFF,
            since: 0,
            residency: vec![0; chip.pstates.len() + 1],
            energy: Joules::ZERO,
            busy: 0,
        }
    }

    pub(crate) fn pstate(&self) -> PState {
        self.pstate
    }

    /// The state changes at `now`.
    pub(crate) fn switch(&mut self, now: u64, to: PState) {
        self.residency[self.pstate.index()] += now - self.since;
        self.energy += self.table.floor(self.pstate, now - self.since);
        (self.pstate, self.since) = (to, now);
    }

    /// What `buffer` has drawn until `now`, since its rates last changed.
    pub(crate) fn drawn(&self, buffer: &Progress, now: u64) -> Joules {
        self.table.running(self.pstate, buffer, now)
    }

    /// `buffer` ends, or its rates change, at `now`.
    pub(crate) fn count(&mut self, buffer: &Progress, now: u64) {
        self.energy += self.drawn(buffer, now);
    }

    /// The GPU has run for `ns`.
    pub(crate) fn add_busy(&mut self, ns: u64) {
        self.busy += ns;
    }

    pub(crate) fn busy(&self) -> u64 {
        self.busy
    }

    /// Residency and energy of the floor at `now`, without changing anything.
    pub(crate) fn read(&self, now: u64) -> (Vec<Span>, Joules) {
        let mut residency = self.residency.clone();
        residency[self.pstate.index()] += now - self.since;
        let floor = self.table.floor(self.pstate, now - self.since);
        (residency.into_iter().map(Span::ns).collect(), self.energy + floor)
    }
}
