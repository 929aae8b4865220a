//! The machine against the figures of the M2 study, from several phases of the controller's clock.

mod common;

use common::{m2, study};

#[test]
fn the_figures_of_the_study() {
    let claims = study::claims(&m2(), &[0.0, 1.1, 2.3, 3.7, 5.2, 6.9]);
    for claim in &claims {
        let low = claim.measured.iter().copied().fold(f64::INFINITY, f64::min);
        let high = claim.measured.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        println!(
            "{:>4.0} % {:32} {:8.3}..{:8.3}  measured {low:8.3}..{high:8.3}",
            100.0 * claim.held(),
            claim.id,
            claim.low,
            claim.high
        );
    }
    let missed: Vec<_> = claims.iter().filter(|c| c.held() < 1.0).map(|c| c.id).collect();
    assert!(missed.is_empty(), "not from every phase: {missed:?}");
}
