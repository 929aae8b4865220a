//! What a command buffer's kernels have written of themselves: `kernels.ptx` says which word is what.

use everwarm_units::Hertz;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a slot: a cache line, of which five words are used.
pub const SLOT_WORDS: usize = 8;

/// Words that a command buffer fills.
const USED: usize = 5;

/// A probe shorter than so many steps of the timer tells no clock. Source: its length is known to a
/// step, so the clock is then known to 1 %.
const PROBE_STEPS: u64 = 100;

/// The stamps of a command buffer that has ended. Unit: ns of the device's timer, and cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stamps {
    /// The first block's start.
    pub start: u64,
    /// The last block's end.
    pub end: u64,
    /// How long the first block took, in both.
    probe_ns: u64,
    probe_cycles: u64,
}

impl Stamps {
    /// Reads a slot; `None` while anything is missing.
    pub fn read(slot: &[AtomicU64]) -> Option<Stamps> {
        // The last to come is looked at first: mostly nothing has come.
        let end = slot[USED - 1].load(Ordering::Acquire);
        if end == 0 {
            return None;
        }
        let word = |n: usize| Some(slot[n].load(Ordering::Acquire)).filter(|word| *word != 0);
        let (start, from, until, to) = (word(0)?, word(1)?, word(2)?, word(3)?);
        Some(Stamps {
            start,
            end,
            probe_ns: until.saturating_sub(start),
            probe_cycles: to.saturating_sub(from),
        })
    }

    /// Empties a slot for its next use.
    pub fn clear(slot: &[AtomicU64]) {
        slot[..USED].iter().for_each(|word| word.store(0, Ordering::Release));
    }

    /// The clock of the multiprocessor that ran the first block, while it did; `None` if that was
    /// too short for a timer with steps of `resolution` ns.
    pub fn clock(&self, resolution: u64) -> Option<Hertz> {
        let long = self.probe_ns >= PROBE_STEPS * resolution.max(1);
        long.then(|| Hertz::hz((self.probe_cycles as f64 / self.probe_ns as f64 * 1e9).round()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(words: [u64; SLOT_WORDS]) -> [AtomicU64; SLOT_WORDS] {
        words.map(AtomicU64::new)
    }

    #[test]
    fn nothing_is_read_until_all_of_it_is_there() {
        let whole = [1_000, 11, 101_000, 200_011, 102_000, 0, 0, 0];
        for missing in 0..USED {
            let mut words = whole;
            words[missing] = 0;
            assert_eq!(Stamps::read(&slot(words)), None, "without word {missing}");
        }
        let slot = slot(whole);
        let stamps = Stamps::read(&slot).unwrap();
        assert_eq!((stamps.start, stamps.end), (1_000, 102_000));
        assert_eq!(stamps.clock(32), Some(Hertz::ghz(2.0)));
        assert_eq!(stamps.clock(1_000), Some(Hertz::ghz(2.0)), "just long enough");
        assert_eq!(stamps.clock(1_024), None, "100 us are too few steps");
        Stamps::clear(&slot);
        assert_eq!(Stamps::read(&slot), None);
    }
}
