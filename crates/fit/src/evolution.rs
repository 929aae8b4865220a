//! CMA-ES: candidates are drawn from a normal distribution whose centre and shape follow the better
//! half of them.
//!
//! A controller decides once a period, so the loss is made of steps, and its parameters make up for
//! each other: gradients say nothing, and lines along the axes end on the sides of narrow valleys.
//! What is drawn here learns the valleys' directions. Source: Hansen, The CMA Evolution Strategy: A
//! Tutorial, arXiv 1604.00772, with its default weights and rates.
//!
//! It knows no loss: [`Evolution::ask`] gives a generation, which the caller judges as it likes (on
//! several threads, say), [`Evolution::tell`] takes the losses. Coordinates are the caller's; they
//! should be such that steps of `sigma` matter about equally along each.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A distribution of candidates.
pub struct Evolution {
    mean: Vec<f64>,
    sigma: f64,
    /// Covariance. Shape: n by n, by rows.
    covariance: Vec<Vec<f64>>,
    /// Columns are its axes.
    axes: Vec<Vec<f64>>,
    /// Deviations along the axes.
    lengths: Vec<f64>,
    path_sigma: Vec<f64>,
    path: Vec<f64>,
    weights: Vec<f64>,
    rates: Rates,
    generation: usize,
    asked: Vec<Vec<f64>>,
    random: ChaCha8Rng,
}

/// The tutorial's learning rates.
struct Rates {
    effective: f64,
    sigma: f64,
    damping: f64,
    path: f64,
    one: f64,
    mu: f64,
    /// Expected length of a normal vector.
    length: f64,
}

impl Rates {
    fn new(n: f64, effective: f64) -> Rates {
        let sigma = (effective + 2.0) / (n + effective + 5.0);
        let one = 2.0 / ((n + 1.3).powi(2) + effective);
        let mu = 2.0 * (effective - 2.0 + 1.0 / effective) / ((n + 2.0).powi(2) + effective);
        Rates {
            effective,
            sigma,
            damping: 1.0 + 2.0 * (((effective - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0) + sigma,
            path: (4.0 + effective / n) / (n + 4.0 + 2.0 * effective / n),
            one,
            mu: mu.min(1.0 - one),
            length: n.sqrt() * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n)),
        }
    }
}

impl Evolution {
    /// A distribution around `mean` with deviation `sigma` in each direction, `size` candidates a
    /// generation.
    ///
    /// # Panics
    /// If there are no coordinates, or fewer than four candidates.
    pub fn new(mean: Vec<f64>, sigma: f64, size: usize, seed: u64) -> Evolution {
        let n = mean.len();
        assert!(n > 0 && size >= 4, "{n} coordinates and {size} candidates");
        let raw = (0..size / 2).map(|i| (0.5 * size as f64 + 0.5).ln() - (i as f64 + 1.0).ln());
        let raw: Vec<f64> = raw.collect();
        let sum: f64 = raw.iter().sum();
        let weights: Vec<f64> = raw.iter().map(|w| w / sum).collect();
        let effective = 1.0 / weights.iter().map(|w| w * w).sum::<f64>();
        Evolution {
            sigma,
            covariance: identity(n),
            axes: identity(n),
            lengths: vec![1.0; n],
            path_sigma: vec![0.0; n],
            path: vec![0.0; n],
            weights,
            rates: Rates::new(n as f64, effective),
            generation: 0,
            asked: vec![Vec::new(); size],
            random: ChaCha8Rng::seed_from_u64(seed),
            mean,
        }
    }

    /// The next generation. Shape: candidates by coordinates.
    pub fn ask(&mut self) -> Vec<Vec<f64>> {
        for n in 0..self.asked.len() {
            let along: Vec<f64> =
                (0..self.mean.len()).map(|k| self.lengths[k] * self.normal()).collect();
            let step = times(&self.axes, &along);
            self.asked[n] = self.mean.iter().zip(step).map(|(m, s)| m + self.sigma * s).collect();
        }
        self.asked.clone()
    }

    /// The losses of the generation that was asked for; one that is no number counts as the worst.
    pub fn tell(&mut self, losses: &[f64]) {
        let mut order: Vec<usize> = (0..self.asked.len()).collect();
        let loss = |n: usize| if losses[n].is_nan() { f64::INFINITY } else { losses[n] };
        order.sort_by(|a, b| loss(*a).total_cmp(&loss(*b)));
        let n = self.mean.len();
        let before = self.mean.clone();
        let steps: Vec<Vec<f64>> = order[..self.weights.len()]
            .iter()
            .map(|one| (0..n).map(|k| (self.asked[*one][k] - before[k]) / self.sigma).collect())
            .collect();
        let step = |k: usize| self.weights.iter().zip(&steps).map(|(w, s)| w * s[k]).sum::<f64>();
        let step: Vec<f64> = (0..n).map(step).collect();
        self.mean = before.iter().zip(&step).map(|(m, s)| m + self.sigma * s).collect();
        self.follow(&step, &steps);
        self.generation += 1;
        if self.generation.is_multiple_of((n / 5).max(1)) {
            self.decompose();
        }
    }

    /// The deviation that is left, as a share of that at the beginning along the longest axis.
    pub fn spread(&self) -> f64 {
        self.sigma * self.lengths.iter().copied().fold(0.0, f64::max)
    }

    /// Goes on from `mean` with the shape that was learned, its longest axis as long as `spread`.
    pub fn resume(&mut self, mean: Vec<f64>, spread: f64) {
        let longest = self.lengths.iter().copied().fold(0.0, f64::max);
        (self.mean, self.sigma) = (mean, spread / longest.max(1e-12));
        self.path.fill(0.0);
        self.path_sigma.fill(0.0);
        self.generation = 0;
    }

    /// The shape of the distribution, which follows that of the valley. Shape: n by n, by rows.
    pub fn covariance(&self) -> &[Vec<f64>] {
        &self.covariance
    }

    /// How far `point` is from `from`, squared, in units of the distribution's shape.
    pub fn distance(&self, point: &[f64], from: &[f64]) -> f64 {
        let step: Vec<f64> = point.iter().zip(from).map(|(a, b)| a - b).collect();
        let along = transposed_times(&self.axes, &step);
        along.iter().zip(&self.lengths).map(|(a, length)| (a / length.max(1e-12)).powi(2)).sum()
    }

    /// Moves the paths, the size and the shape.
    fn follow(&mut self, step: &[f64], steps: &[Vec<f64>]) {
        let (n, r) = (step.len(), &self.rates);
        let mut along = transposed_times(&self.axes, step);
        along.iter_mut().zip(&self.lengths).for_each(|(a, length)| *a /= length.max(1e-12));
        let whitened = times(&self.axes, &along);
        let gain = (r.sigma * (2.0 - r.sigma) * r.effective).sqrt();
        let keep = 1.0 - r.sigma;
        for (path, step) in self.path_sigma.iter_mut().zip(&whitened) {
            *path = keep * *path + gain * step;
        }
        let length = self.path_sigma.iter().map(|p| p * p).sum::<f64>().sqrt();
        let settled = 1.0 - (1.0 - r.sigma).powi(2 * (self.generation as i32 + 1));
        let moves = length / settled.sqrt() < (1.4 + 2.0 / (n as f64 + 1.0)) * r.length;
        let gain = if moves { (r.path * (2.0 - r.path) * r.effective).sqrt() } else { 0.0 };
        for (path, step) in self.path.iter_mut().zip(step) {
            *path = (1.0 - r.path) * *path + gain * step;
        }
        let lost = if moves { 0.0 } else { r.one * r.path * (2.0 - r.path) };
        for i in 0..n {
            for j in 0..n {
                let weighted = self.weights.iter().zip(steps).map(|(w, s)| w * s[i] * s[j]);
                let rank_mu: f64 = weighted.sum();
                self.covariance[i][j] = (1.0 - r.one - r.mu + lost) * self.covariance[i][j]
                    + r.one * self.path[i] * self.path[j]
                    + r.mu * rank_mu;
            }
        }
        self.sigma *= ((r.sigma / r.damping) * (length / r.length - 1.0)).min(1.0).exp();
    }

    fn decompose(&mut self) {
        let (values, axes) = eigen(self.covariance.clone());
        self.lengths = values.iter().map(|v| v.max(1e-20).sqrt()).collect();
        self.axes = axes;
    }

    /// A normal deviate (Box-Muller).
    fn normal(&mut self) -> f64 {
        let mut even = || ((self.random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        let (a, b) = (even(), even());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

fn identity(n: usize) -> Vec<Vec<f64>> {
    (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect()
}

fn times(matrix: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
}

fn transposed_times(matrix: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    (0..vector.len()).map(|j| matrix.iter().zip(vector).map(|(row, b)| row[j] * b).sum()).collect()
}

/// Eigenvalues and eigenvectors (as columns) of a symmetric matrix, by Jacobi's rotations.
fn eigen(mut a: Vec<Vec<f64>>) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = a.len();
    let mut axes = identity(n);
    for _ in 0..SWEEPS {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i][j].powi(2)).sum();
        let on: f64 = (0..n).map(|i| a[i][i].powi(2)).sum();
        if off <= 1e-24 * on {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut axes, p, q);
            }
        }
    }
    ((0..n).map(|i| a[i][i]).collect(), axes)
}

/// Sweeps after which rotations end in any case; some six suffice.
const SWEEPS: usize = 30;

/// Turns the plane of two axes so that they no longer mix.
fn rotate(a: &mut [Vec<f64>], axes: &mut [Vec<f64>], p: usize, q: usize) {
    if a[p][q] == 0.0 {
        return;
    }
    let theta = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
    let sign = if theta < 0.0 { -1.0 } else { 1.0 };
    let t = sign / (theta.abs() + (theta * theta + 1.0).sqrt());
    let c = 1.0 / (t * t + 1.0).sqrt();
    let s = t * c;
    let turn = |x: f64, y: f64| (c * x - s * y, s * x + c * y);
    for row in a.iter_mut().chain(axes.iter_mut()) {
        (row[p], row[q]) = turn(row[p], row[q]);
    }
    let (upper, lower) = a.split_at_mut(q);
    for (x, y) in upper[p].iter_mut().zip(&mut lower[0]) {
        (*x, *y) = turn(*x, *y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bent_narrow_valley_with_steps_is_followed_to_its_end() {
        // Rosenbrock's, in steps: no gradient anywhere.
        let loss = |x: &[f64]| {
            let at = |n: usize| 100.0 * (x[n + 1] - x[n] * x[n]).powi(2) + (1.0 - x[n]).powi(2);
            ((0..3).map(at).sum::<f64>() * 1e4).floor() / 1e4
        };
        let mut evolution = Evolution::new(vec![-1.0; 4], 0.5, 12, 1);
        let mut best = f64::INFINITY;
        for _ in 0..600 {
            let losses: Vec<f64> = evolution.ask().iter().map(|x| loss(x)).collect();
            evolution.tell(&losses);
            best = losses.into_iter().fold(best, f64::min);
        }
        assert!(best < 1e-3, "{best}");
    }

    #[test]
    fn axes_are_found() {
        let (values, axes) =
            eigen(vec![vec![2.0, 1.0, 0.0], vec![1.0, 2.0, 0.0], vec![0.0, 0.0, 5.0]]);
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        for (value, expected) in sorted.iter().zip([1.0, 3.0, 5.0]) {
            assert!((value - expected).abs() < 1e-9, "{values:?}");
        }
        let first: Vec<f64> = axes.iter().map(|row| row[0]).collect();
        assert!((first.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
