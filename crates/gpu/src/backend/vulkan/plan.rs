//! From the parts of a command buffer to the dispatches that carry them out. Pure arithmetic.
//!
//! A part becomes several dispatches where one can't do it: a chain that is longer than the driver
//! lets a loop be, a read of more memory than there is. Reads go on where the last one ended, so
//! that a short one finds nothing of what it wants in a cache.

use super::loader::Card;
use crate::Part;

/// Iterations in one round of the chain's loop, as in `chain.comp`.
pub const ROUND: u32 = 32;

/// Threads of a large group.
pub const WIDE: u32 = 256;

/// Threads of a small one: [`everwarm_workload::Kernel::GROUP_THREADS`].
pub const NARROW: u32 = 32;

/// Threads that share a streaming read. Source: with 64 B under way in each they cover 600 ns at
/// 28 TB/s, more than any memory gives.
const READERS: u32 = 1 << 18;

/// Groups side by side in a dispatch, after which it goes on in the next row. Source: any device
/// takes 65,535.
const ROW: u32 = 1 << 15;

/// Dispatches of one command buffer; more are a mistake of units rather than work.
const DISPATCHES_MAX: usize = 1 << 16;

/// One dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, in one thread.
    Empty,
    /// A piece of a chain.
    Chain { threads: u32, rounds: u32, rest: u32, first: bool },
    /// A read of `count` words of 16 bytes from `first` on.
    Read { window: usize, first: u32, count: u32 },
    /// A product of matrices.
    Product { n: u32 },
}

/// A dispatch, and whether it has to wait for the one before it.
pub type Ordered = (Step, bool);

/// What dispatches of this device can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Means {
    /// Rounds of the chain's loop in one dispatch.
    pub rounds_max: u32,
    /// Memory to read. Shape: words of 16 bytes in each window.
    pub windows: Vec<u32>,
    /// Where the next read begins: window and word.
    pub cursor: (usize, u32),
}

impl Means {
    /// The dispatches of a command buffer with `parts`.
    ///
    /// # Errors
    /// What there is too much of.
    pub fn plan(&mut self, parts: &[Part]) -> Result<Vec<Ordered>, String> {
        let mut steps = Vec::new();
        for part in parts {
            match *part {
                Part::Fma { iterations, threads } => self.chain(iterations, threads, &mut steps)?,
                Part::Stream { bytes } => self.read(bytes, &mut steps)?,
                Part::Matmul { n } => steps.push((Step::Product { n }, true)),
            }
        }
        if steps.is_empty() {
            steps.push((Step::Empty, true));
        }
        Ok(steps)
    }

    fn chain(&self, iterations: u32, threads: u32, to: &mut Vec<Ordered>) -> Result<(), String> {
        let (mut rounds, rest) = (iterations / ROUND, iterations % ROUND);
        let mut first = true;
        loop {
            let now = rounds.min(self.rounds_max);
            rounds -= now;
            let rest = if rounds == 0 { rest } else { 0 };
            push(to, Step::Chain { threads, rounds: now, rest, first }, true)?;
            if rounds == 0 {
                return Ok(());
            }
            first = false;
        }
    }

    fn read(&mut self, bytes: u64, to: &mut Vec<Ordered>) -> Result<(), String> {
        assert!(self.windows.iter().all(|words| *words > 0) && !self.windows.is_empty());
        let mut left = bytes.div_ceil(16);
        let mut waits = true;
        while left > 0 {
            let (window, first) = self.cursor;
            let count = (self.windows[window] - first).min(u32::try_from(left).unwrap_or(u32::MAX));
            // Pieces of one read run side by side.
            push(to, Step::Read { window, first, count }, waits)?;
            waits = false;
            left -= u64::from(count);
            self.cursor = match first + count < self.windows[window] {
                true => (window, first + count),
                false => ((window + 1) % self.windows.len(), 0),
            };
        }
        Ok(())
    }
}

fn push(to: &mut Vec<Ordered>, step: Step, waits: bool) -> Result<(), String> {
    if to.len() == DISPATCHES_MAX {
        return Err(format!("work of more than {DISPATCHES_MAX} dispatches in one buffer"));
    }
    to.push((step, waits));
    Ok(())
}

impl Step {
    /// Groups of threads. Shape: across, down.
    pub fn groups(&self) -> [u32; 2] {
        match *self {
            Step::Empty => [1, 1],
            Step::Chain { threads, .. } => {
                let groups = threads.div_ceil(group_of(threads));
                [groups.min(ROW), groups.div_ceil(ROW)]
            }
            Step::Read { count, .. } => [readers(count) / WIDE, 1],
            Step::Product { n } => [n.div_ceil(64); 2],
        }
    }
}

/// Threads in a group of a chain of so many.
pub fn group_of(threads: u32) -> u32 {
    if threads <= NARROW { NARROW } else { WIDE }
}

/// Threads that read `count` words, in whole groups.
pub fn readers(count: u32) -> u32 {
    count.clamp(1, READERS).next_multiple_of(WIDE)
}

/// Bytes of memory to read on a card: far more than any cache, yet not what others need.
///
/// Source: the largest caches of GPUs hold 256 MB (AMD MI300) and less; an eighth of the memory is
/// little to its owner. A driver on the CPU uses memory of the host, where all is the program's.
pub fn stream_bytes(card: &Card) -> u64 {
    let most = if card.software { 64 << 20 } else { 512 << 20 };
    (card.heap() / 8).min(most).max(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost_between_dispatches(
            iterations in 1u32..=u32::MAX,
            rounds_max in 3_000u32..=u32::MAX,
            windows in prop::collection::vec(1u32..1_000_000, 1..5),
            reads in prop::collection::vec(1u64..1_000_000_000, 1..5),
        ) {
            let total: u64 = windows.iter().map(|w| u64::from(*w)).sum();
            prop_assume!(reads.iter().all(|bytes| bytes / 16 / total < 10_000));
            let mut means = Means { rounds_max, windows: windows.clone(), cursor: (0, 0) };
            let threads = 65_536;
            let chain = means.plan(&[Part::Fma { iterations, threads }]);
            if let Ok(chain) = chain {
                let mut sum = 0u64;
                for (at, (step, waits)) in chain.iter().enumerate() {
                    let Step::Chain { rounds, rest, first, .. } = *step else { panic!("{step:?}") };
                    prop_assert!(rounds <= rounds_max && *waits && first == (at == 0));
                    sum += u64::from(rounds) * u64::from(ROUND) + u64::from(rest);
                }
                prop_assert_eq!(sum, u64::from(iterations));
            } else {
                prop_assert!(iterations / ROUND / rounds_max >= DISPATCHES_MAX as u32);
            }
            // Reads follow one another round and round.
            let mut place = 0u64;
            for bytes in reads {
                let plan = means.plan(&[Part::Stream { bytes }]).unwrap();
                let mut sum = 0;
                for (at, (step, waits)) in plan.iter().enumerate() {
                    let Step::Read { window, first, count } = *step else { panic!("{step:?}") };
                    prop_assert_eq!(*waits, at == 0);
                    let before: u64 = windows[..window].iter().map(|w| u64::from(*w)).sum();
                    prop_assert_eq!(before + u64::from(first), place);
                    prop_assert!(count > 0 && u64::from(first) + u64::from(count) <= u64::from(windows[window]));
                    place = (place + u64::from(count)) % total;
                    sum += u64::from(count);
                }
                prop_assert_eq!(sum, bytes.div_ceil(16));
            }
        }
    }

    #[test]
    fn groups_cover_all_threads() {
        for threads in [1, 32, 33, 256, 65_536, 1 << 20, 100_000_001, u32::MAX] {
            let [across, down] = Step::Chain { threads, rounds: 1, rest: 0, first: true }.groups();
            let all = u64::from(across) * u64::from(down) * u64::from(group_of(threads));
            assert!(across <= 65_535 && down <= 65_535 && all >= u64::from(threads), "{threads}");
        }
    }

    #[test]
    fn what_can_not_be_meant_is_refused() {
        let mut means = Means { rounds_max: 8, windows: vec![1], cursor: (0, 0) };
        let refused = means.plan(&[Part::Stream { bytes: 1 << 40 }]).unwrap_err();
        assert!(refused.contains("65536 dispatches"), "{refused}");
        assert_eq!(means.plan(&[]).unwrap(), [(Step::Empty, true)]);
    }
}
