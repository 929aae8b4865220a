//! What a replay needs to know of a simulated GPU behind a runtime: what requests take, lose after
//! idle, and what warming uses and leaves.

use super::probe::Probe;
use crate::interpret::Error;
use everwarm_dvfs::Chip;
use everwarm_governor::Penalty;
use everwarm_replay::{Device, Prompt};
use everwarm_units::{Joules, Span, Watts};
use everwarm_workload::Runtime;

const SERVING: &str = include_str!("../../predictions/serving.toml");
const WARMING: &str = include_str!("../../predictions/warming.toml");
const HOLDING: &str = include_str!("../../predictions/holding.toml");

const TOKENS: [u32; 4] = [16, 128, 512, 2048];
const IDLE: [&str; 14] = [
    "20 ms", "50 ms", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms", "700 ms", "1 s", "1.5 s",
    "2 s", "3 s", "5 s", "10 s",
];
const LEADS: [u64; 7] = [0, 2, 5, 10, 20, 50, 100];
/// Tokens that a decode of the scenario generates.
const DECODED: f64 = 64.0;
/// The pre-warm kernel of the scenario.
const PREWARM: Span = Span::ms(6);

/// Measures `chip` behind a runtime, all in virtual time.
///
/// # Errors
/// If a scenario can't be run on the chip.
pub fn serving(chip: &Chip, runtime: &Runtime, id: &str) -> Result<Device, Error> {
    let of_runtime = |text: &str| text.replace("@RUNTIME@", id);
    let probe = Probe::run("serving", &of_runtime(SERVING), chip)?;
    let wall = |label: &str, tokens: u32, idle: &str| {
        let cell = format!("tokens = {tokens}, idle = \"{idle}\"");
        probe.must(&format!("metric = \"wall\", label = \"{label}\", where = {{ {cell} }}"))
    };
    let prompt = |tokens| {
        let busy = wall("prefill", tokens, "0");
        let lost = IDLE.map(|idle| {
            let idle_span = idle.parse::<Span>().expect("the table has spans");
            (idle_span, Span::from_secs((wall("prefill", tokens, idle) - busy).max(0.0)))
        });
        Prompt { tokens, prefill: Span::from_secs(busy), lost: Penalty::new(lost) }
    };
    let (hold_power, prewarm_energy) = holding(chip)?;
    Ok(Device {
        name: format!("{} behind {}", chip.name, runtime.name),
        prompts: TOKENS.map(prompt).to_vec(),
        decode: Span::from_secs(wall("decode", 128, "0") / DECODED),
        host: runtime.tokenize(TOKENS[1]),
        hold_power,
        prewarm_energy,
        prewarm_span: PREWARM,
        left: left(chip, &of_runtime(WARMING))?,
    })
}

/// What warming leaves of the loss, by its lead; more time never leaves more.
fn left(chip: &Chip, text: &str) -> Result<Vec<(Span, f64)>, Error> {
    let probe = Probe::run("warming", text, chip)?;
    let wall = |condition: &str| {
        let cell = format!("where = {{ condition = \"{condition}\" }}");
        probe.must(&format!("metric = \"wall\", label = \"prefill\", {cell}"))
    };
    let (idle, busy) = (wall("idle"), wall("busy"));
    let mut least: f64 = 1.0;
    let mut of_lead = |lead: u64| {
        // A chip that loses nothing has nothing left.
        let left =
            if idle > busy { (wall(&format!("{lead} ms")) - busy) / (idle - busy) } else { 0.0 };
        least = least.min(left.max(0.0));
        (Span::ms(lead), least)
    };
    Ok(LEADS.iter().map(|lead| of_lead(*lead)).collect())
}

/// The power of a hold and the energy of a pre-warm, GPU and CPU, above rest.
fn holding(chip: &Chip) -> Result<(Watts, Joules), Error> {
    let probe = Probe::run("holding", HOLDING, chip)?;
    let take = |metric: &str, case: &str, label: &str| {
        let at = format!("label = \"{label}\", where = {{ case = \"{case}\" }}");
        probe.must(&format!("metric = {metric}, {at}"))
    };
    let both = |metric: &str, case: &str, label: &str| {
        let of = |rail| take(&format!("\"{metric}\", rail = \"{rail}\""), case, label);
        of("gpu") + of("cpu")
    };
    let rest = both("power", "rest", "load");
    // What a kernel uses does not end with it: the device stays awake for a while.
    let beyond =
        |label| both("energy", "pre-warm", label) - rest * take("\"wall\"", "pre-warm", label);
    let energy = beyond("kernel") + beyond("load");
    let power = both("power", "hold", "load") - rest;
    Ok((Watts::w(power.max(0.0)), Joules::j(energy.max(0.0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_m2_loses_what_the_study_says_and_a_hold_costs_what_it_says() {
        let chip = Chip::built_in("m2").unwrap();
        let runtime = Runtime::built_in("mlx").unwrap();
        let device = serving(&chip, &runtime, "mlx").unwrap();
        // Source: study 1 (16 tokens: 33 ms after a second) and 4.1 (0.59 W GPU, 0.08 W CPU).
        let lost = device.lost(16, Span::s(1)).as_ms();
        assert!((25.0..41.0).contains(&lost), "{lost} ms");
        let power = device.hold_power.as_w();
        assert!((0.5..0.85).contains(&power), "{power} W");
        assert!(device.lost(16, Span::ms(50)) < Span::ms(2));
        assert!(
            device.left(Span::ms(100)) < 0.1 && device.left(Span::ZERO) > 0.1,
            "{:?}",
            device.left
        );
        let energy = device.prewarm_energy.as_j();
        assert!((0.0003..0.3).contains(&energy), "{energy} J");
    }
}
