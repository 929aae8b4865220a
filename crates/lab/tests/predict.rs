//! Predictions hang together, whatever the chips' values are.

use everwarm_dvfs::Chip;
use everwarm_lab::{Prediction, predict, prediction_parts};

fn predicted(chip: &Chip) -> Prediction {
    let mut parts = 0;
    let prediction = predict(chip, &mut || parts += 1).unwrap();
    assert_eq!(parts, prediction_parts(chip));
    prediction
}

#[test]
fn every_built_in_chip_has_a_prediction_that_makes_sense() {
    for name in Chip::names() {
        let chip = Chip::built_in(name).unwrap();
        let one = predicted(&chip);
        assert_eq!((one.top, one.bases.len()), (chip.top().0, chip.pstates.len()));
        for penalty in &one.penalties {
            let after = |idle: &str| penalty.idle.iter().find(|(i, _)| *i == idle).unwrap().1;
            let context = format!("{name} {} {}", penalty.runtime, penalty.tokens);
            assert!(penalty.busy_ms > 0.0, "{context}");
            assert!(penalty.idle.iter().all(|(_, ms)| *ms > 0.0), "waking costs: {context}");
            assert!(after("5 ms") < after("1 s"), "the clock outlives gating: {context}");
            assert!(
                (after("2 s") - after("5 s")).abs() < 0.1,
                "nothing is left to lose: {context}"
            );
        }
        // A GPU that never goes below the top clock pays for waking, and for memory if its program
        // does not keep it wired.
        let (low, top) = (&one.bases[0], one.bases.last().unwrap());
        let wake = chip.wake.start.last().unwrap().latency + chip.wake.memory_ready;
        let left = top.penalties.iter().zip(&low.penalties);
        assert!(left.clone().all(|(top, low)| top.2 < low.2), "{name}: {top:?} and {low:?}");
        let least = left.map(|(top, _)| top.2).fold(f64::INFINITY, f64::min);
        assert!(least < 2.0 * wake.as_ms(), "{name}: {least}");
        let idle = one.bases.iter().map(|base| base.idle_w);
        assert!(idle.clone().all(|w| (w - chip.power.off.as_w()).abs() < 1e-9), "gated is gated");
        let rising = |of: fn(&everwarm_lab::Base) -> f64| {
            one.bases.windows(2).all(|pair| of(&pair[0]) <= of(&pair[1]) * 1.001)
        };
        assert!(rising(|base| base.awake_w), "{name}: a higher base p-state costs");
    }
}

#[test]
fn a_chip_without_a_clock_to_raise_has_no_ramp_and_no_cliff() {
    let mut chip = Chip::built_in("m2").unwrap();
    chip.pstates.truncate(1);
    let one = predicted(&chip);
    assert!(one.ramps.iter().all(|ramp| ramp.to_top_ms == Some(0.0)), "{:?}", one.ramps);
    assert!(one.cliffs.iter().all(|cliff| cliff.falls_to.is_none()), "{:?}", one.cliffs);
}

#[test]
fn the_cliff_is_where_the_parameter_says() {
    let mut chip = Chip::built_in("m2").unwrap();
    let cliff = |chip: &Chip| predicted(chip).cliffs[0].holds_ms.unwrap();
    let before = cliff(&chip);
    let more = everwarm_units::Span::from_ms(0.2);
    chip.controller.credited_gap += more;
    assert!((cliff(&chip) - before - more.as_ms()).abs() < 0.03);
}
