//! The normal distribution, as far as BCa intervals need it.

/// The share of a standard normal below `z`.
pub(crate) fn phi(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// The `z` that a share `p` of a standard normal lies below: [`phi`] inverted by bisection.
///
/// Beyond 1e-17 or 1 - 1e-16 the answer saturates at -8.5 or 8.5, far outside any interval here.
pub(crate) fn probit(p: f64) -> f64 {
    let (mut low, mut high) = (-8.5, 8.5);
    for _ in 0..64 {
        let middle = 0.5 * (low + high);
        if phi(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let check = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-9, "{got}");
        check(phi(0.0), 0.5);
        check(phi(1.0), 0.841344746068543);
        check(probit(0.975), 1.959963984540054);
        check(probit(0.025), -1.959963984540054);
    }
}
