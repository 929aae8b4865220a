//! Seeded draws.

use everwarm_units::Span;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub struct Random(ChaCha8Rng);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// From 0 up to, and without, 1.
    pub fn unit(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Evenly among the orders of magnitude between both ends.
    pub fn log_uniform(&mut self, from: Span, to: Span) -> Span {
        let (a, b) = (from.as_secs().ln(), to.as_secs().ln());
        Span::from_secs((a + (b - a) * self.unit()).exp())
    }

    /// Of a log-normal distribution with that median; `sigma` is of the natural logarithm.
    pub fn log_normal(&mut self, median: Span, sigma: f64) -> Span {
        // Box and Muller's; 1 - u is never 0.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.unit()).cos();
        Span::from_secs(median.as_secs() * (sigma * normal).exp())
    }

    /// At least 1, with that mean.
    pub fn geometric(&mut self, mean: f64) -> u32 {
        let stays = 1.0 - 1.0 / mean.max(1.0);
        let mut n = 1;
        while n < 10_000 && self.unit() < stays {
            n += 1;
        }
        n
    }
}
