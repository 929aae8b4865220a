//! What holds of any scenario on any chip: counters add up, p-states are the chip's, an idle time may be
//! cut in two, and neither telemetry nor a second run changes anything.

#[path = "../../sim/tests/random/mod.rs"]
mod random;

use everwarm_dvfs::Chip;
use everwarm_lab::{RunData, Scenario, run_on_chip};
use everwarm_units::{PState, Span};
use proptest::prelude::*;
use random::chips;

/// A step as it is written; idle times are kept as numbers, so that they can be cut.
#[derive(Clone, Debug)]
enum Step {
    /// Unit: ns.
    Idle(u64),
    Other(String),
}

fn kernel() -> impl Strategy<Value = String> {
    prop_oneof![
        (0.01..6.0f64).prop_map(|ms| format!("{{ alu = \"{ms:.3} ms\" }}")),
        (0.05..8.0f64).prop_map(|ms| format!("{{ hold = \"{ms:.3} ms\" }}")),
        (1u32..1500).prop_map(|n| format!("{{ matmul = {n} }}")),
        Just("\"stream\"".to_owned()),
        Just("\"empty\"".to_owned()),
    ]
}

fn run_step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![
        (1u32..30).prop_map(|n| format!("times = {n}")),
        (1u32..30).prop_map(|n| format!("deep = {n}")),
        (1u32..30, 1u32..6).prop_map(|(n, depth)| format!("times = {n}, in_flight = {depth}")),
        (1u32..40).prop_map(|ms| format!("for = \"{ms} ms\"")),
        (1u32..30).prop_map(|n| format!("times = {n}, in_flight = \"auto\"")),
    ];
    let pause = prop_oneof![
        Just(String::new()),
        (0.0..3.0f64).prop_map(|ms| format!(", sleep = \"{ms:.3} ms\"")),
        (0.0..1.0f64).prop_map(|ms| format!(", delay = \"{ms:.3} ms\"")),
    ];
    (kernel(), how, pause).prop_filter_map("such a step has no pause", |(kernel, how, pause)| {
        let unpaused = how.starts_with("deep") || how.contains("auto");
        let fits = pause.is_empty() || !unpaused;
        fits.then(|| Step::Other(format!("{{ run = {kernel}, {how}{pause} }}")))
    })
}

fn step() -> impl Strategy<Value = Step> {
    let idle = prop_oneof![0u64..3_000_000, 0u64..300_000_000, 0u64..2_000_000_000];
    let model = (prop_oneof![Just("mlx"), Just("llamacpp")], 1u32..40)
        .prop_map(|(runtime, n)| format!("{{ prefill = {n}, runtime = \"{runtime}\" }}"));
    prop_oneof![
        3 => idle.prop_map(|ns| Step::Idle(2 * (ns / 2))),
        5 => run_step(),
        1 => model.prop_map(Step::Other),
    ]
}

/// Up to three hosts with a queue each.
fn actors() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec(step(), 1..7), 1..4)
}

fn scenario(actors: &[Vec<Step>], halves: bool, telemetry: &str) -> Scenario {
    let idle = |ns: u64| match halves {
        true => format!("{{ idle = \"{0} ns\" }}, {{ idle = \"{0} ns\" }}", ns / 2),
        false => format!("{{ idle = \"{ns} ns\" }}"),
    };
    let mut text = format!("telemetry = \"{telemetry}\"\n");
    for (n, steps) in actors.iter().enumerate() {
        let steps = steps.iter().map(|step| match step {
            Step::Idle(ns) => idle(*ns),
            Step::Other(text) => text.clone(),
        });
        let steps = steps.collect::<Vec<_>>().join(", ");
        text += &format!("[[actor]]\nname = \"host-{n}\"\nsteps = [{steps}]\n");
    }
    Scenario::from_toml("random.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Everything that command buffers did, per actor.
fn dispatches(run: &RunData) -> Vec<(&str, &everwarm_lab::Dispatch)> {
    let steps = run.units.iter().flat_map(|unit| &unit.steps);
    let mut all: Vec<_> =
        steps.flat_map(|step| step.dispatches.iter().map(|d| (step.actor.as_str(), d))).collect();
    all.sort_by_key(|(actor, d)| (*actor, d.committed, d.gpu_start));
    all
}

fn run(chip: &Chip, scenario: &Scenario) -> RunData {
    run_on_chip(scenario, chip).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn idle_can_be_cut_and_looking_changes_nothing(chip in chips(), actors in actors()) {
        let whole = run(&chip, &scenario(&actors, false, "off"));
        for (halves, telemetry) in [(false, "off"), (true, "off"), (false, "3 ms")] {
            let other = run(&chip, &scenario(&actors, halves, telemetry));
            prop_assert_eq!(dispatches(&whole), dispatches(&other), "{} {}", halves, telemetry);
        }
    }

    #[test]
    fn states_are_the_chips_and_counters_add_up(chip in chips(), actors in actors()) {
        let data = run(&chip, &scenario(&actors, false, "7 ms"));
        let states = PState(chip.controller.base_pstate)..=chip.top();
        for (_, d) in dispatches(&data) {
            prop_assert!(d.pstate.is_some_and(|state| states.contains(&state)), "{:?}", d.pstate);
            prop_assert!(d.committed <= d.gpu_start && d.gpu_start < d.gpu_end && d.gpu_end <= d.observed);
        }
        let samples: Vec<_> = data.units.iter().flat_map(|unit| &unit.samples).collect();
        let full = (chip.power.full.as_w()) * 1.06;
        for pair in samples.windows(2) {
            let (at, before) = (pair[1], pair[0]);
            let time = at.at.since(before.at);
            let residency = |n: usize| {
                let of = |counters: &everwarm_gpu::Counters| counters.residency.as_ref().unwrap()[n];
                of(at).saturating_sub(of(before))
            };
            let spent: Span = (0..=chip.pstates.len()).map(residency).sum();
            prop_assert_eq!(spent, time);
            // Energy lies between that of a gated GPU and that of a full one.
            let joules = at.gpu_energy.unwrap().as_j() - before.gpu_energy.unwrap().as_j();
            let least = chip.power.off.as_w() * time.as_secs();
            prop_assert!(joules >= least - 1e-9, "{} J in {}", joules, time);
            prop_assert!(joules <= full * time.as_secs() + 1e-9, "{} J in {}", joules, time);
        }
    }
}
