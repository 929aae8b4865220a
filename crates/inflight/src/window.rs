//! The last few measurements of one quantity: quantiles that forget.
//!
//! The samples themselves are kept, few of them, so that a quantile is exact and an outlier is gone
//! after a known number of samples. It knows neither what is measured nor when.

use everwarm_units::Span;
use std::collections::VecDeque;

/// Samples kept. A p90 then rests on the six longest; at a millisecond a buffer a change of the
/// host or of the clock has taken over in under a tenth of a second. Source: guess.
const KEPT: usize = 64;

/// The last samples of a span of time.
#[derive(Clone, Debug, Default)]
pub struct Window {
    samples: VecDeque<Span>,
}

impl Window {
    pub fn push(&mut self, sample: Span) {
        if self.samples.len() == KEPT {
            self.forget_one();
        }
        self.samples.push_back(sample);
    }

    /// Forgets the oldest sample.
    pub fn forget_one(&mut self) {
        self.samples.pop_front();
    }

    pub fn len(&self) -> usize {
        self.samples.len()
    }

    pub fn clear(&mut self) {
        self.samples.clear();
    }

    /// The sample below which a share `q` of the others lies; `None` of nothing.
    pub fn quantile(&self, q: f64) -> Option<Span> {
        let mut sorted: Vec<Span> = self.samples.iter().copied().collect();
        let last = sorted.len().checked_sub(1)?;
        let at = (q * last as f64).round() as usize;
        Some(*sorted.select_nth_unstable(at).1)
    }
}

/// The longest of the last samples, over many more of them than a [`Window`] keeps.
#[derive(Clone, Copy, Debug, Default)]
pub struct Longest {
    now: Span,
    before: Span,
    samples: u32,
}

impl Longest {
    /// Samples in a generation; the last two are looked at. A kernel at the lowest clock, as after
    /// each idle time, is remembered for some seconds of work. Source: guess.
    const GENERATION: u32 = 4096;

    pub fn push(&mut self, sample: Span) {
        if self.samples == Self::GENERATION {
            *self = Longest { now: Span::ZERO, before: self.now, samples: 0 };
        }
        self.now = self.now.max(sample);
        self.samples += 1;
    }

    /// `None` before the first sample.
    pub fn get(&self) -> Option<Span> {
        let longest = self.now.max(self.before);
        (self.samples > 0 || !self.before.is_zero()).then_some(longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_and_the_old_is_forgotten() {
        let mut window = Window::default();
        assert_eq!(window.quantile(0.5), None);
        (1..=11).for_each(|n| window.push(Span::ms(n)));
        assert_eq!(window.quantile(0.0), Some(Span::ms(1)));
        assert_eq!(window.quantile(0.5), Some(Span::ms(6)));
        assert_eq!(window.quantile(0.9), Some(Span::ms(10)));
        (0..KEPT).for_each(|_| window.push(Span::us(3)));
        assert_eq!(window.quantile(1.0), Some(Span::us(3)));
        assert_eq!(window.len(), KEPT);
        window.push(Span::ms(1));
        (1..KEPT).for_each(|_| window.forget_one());
        assert_eq!((window.len(), window.quantile(0.5)), (1, Some(Span::ms(1))));
    }

    #[test]
    fn the_longest_is_remembered_for_two_generations_at_most() {
        let mut longest = Longest::default();
        assert_eq!(longest.get(), None);
        longest.push(Span::ms(9));
        (0..Longest::GENERATION).for_each(|_| longest.push(Span::ms(1)));
        assert_eq!(longest.get(), Some(Span::ms(9)));
        (0..Longest::GENERATION).for_each(|_| longest.push(Span::ms(1)));
        assert_eq!(longest.get(), Some(Span::ms(1)));
    }
}
