//! Metrics from cumulative counters: differences over a window, interpolated between readings.

use super::aggregate::Sample;
use super::metric::{Metric, Rail, Reason};
use everwarm_gpu::Counters;
use everwarm_units::{Instant, Joules, Span};

/// The value of `metric` over `from..to`.
pub fn value(
    metric: &Metric,
    samples: &[Counters],
    from: Instant,
    to: Instant,
) -> Result<Sample, Reason> {
    if samples.len() < 2 {
        return Err("needs counters: set `telemetry` in the scenario to a period".into());
    }
    let weight = to.since(from).as_secs();
    if weight == 0.0 {
        return Err("the window has no length".into());
    }
    let gained = |read: &dyn Fn(&Counters) -> Option<f64>| {
        let ends = at(samples, to, read).zip(at(samples, from, read));
        ends.map(|(to, from)| to - from).ok_or_else(|| "the device does not tell this".to_owned())
    };
    let energy = |rail: &Rail, c: &Counters| {
        let energy = match rail {
            Rail::Gpu => c.gpu_energy,
            Rail::Cpu => c.cpu_energy,
        };
        energy.map(Joules::as_j)
    };
    let value = match metric {
        Metric::Energy { rail } => gained(&|c| energy(rail, c))?,
        Metric::Power { rail } => gained(&|c| energy(rail, c))? / weight,
        // A cumulative share becomes a cumulative time.
        Metric::Utilisation => {
            gained(&|c| c.busy.map(|busy| busy * c.at.since(Instant::ZERO).as_secs()))? / weight
        }
        Metric::Residency { at } => {
            let inside = |c: &Counters| {
                let all = c.residency.as_ref()?.iter().enumerate();
                let chosen = all.filter(|(p, _)| at.contains(*p as i64)).map(|(_, time)| *time);
                Some(chosen.sum::<Span>().as_secs())
            };
            gained(&inside)? / weight
        }
        _ => unreachable!("{metric:?} is not read from counters"),
    };
    Ok(Sample { value, weight })
}

/// A cumulative counter at an instant, linear between the readings around it.
fn at(samples: &[Counters], when: Instant, read: &dyn Fn(&Counters) -> Option<f64>) -> Option<f64> {
    // The readings around `when`; the nearest two where it lies outside.
    let after = samples.partition_point(|c| c.at < when).clamp(1, samples.len() - 1);
    let (a, b) = (&samples[after - 1], &samples[after]);
    let (x, y) = (read(a)?, read(b)?);
    let length = b.at.since(a.at).as_secs();
    if length == 0.0 {
        return Some(y);
    }
    let share = (when.as_nanos() as f64 - a.at.as_nanos() as f64) * 1e-9 / length;
    Some(x + (y - x) * share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_energy_gained_over_the_window() {
        let reading = |ms: u64, j: f64| Counters {
            at: Instant::from_nanos(ms * 1_000_000),
            gpu_energy: Some(Joules::j(j)),
            ..Counters::default()
        };
        let samples = [reading(0, 0.0), reading(1000, 1.0), reading(2000, 4.0)];
        let power = Metric::Power { rail: Rail::Gpu };
        let check = |from: u64, to: u64, expected: f64| {
            let at = |ms| Instant::from_nanos(ms * 1_000_000);
            assert_eq!(value(&power, &samples, at(from), at(to)).unwrap().value, expected);
        };
        check(0, 1000, 1.0);
        check(1000, 2000, 3.0);
        check(500, 1500, 2.0);
        let cpu = Metric::Power { rail: Rail::Cpu };
        let why = value(&cpu, &samples, Instant::ZERO, Instant::from_nanos(9)).unwrap_err();
        assert_eq!(why, "the device does not tell this");
    }
}
