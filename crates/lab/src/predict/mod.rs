//! What the model says of a chip that nobody has measured: ramps, the gap cliff, what idle costs a
//! prefill, and what a raised base p-state changes.
//!
//! Scenarios (`predictions/*.toml`) on the simulated chip, and measures on what they recorded; all
//! in virtual time, the same result each time. How sure a prediction is depends on the chip's
//! values, whose origins `everwarm devices --chip` tells.

mod cliff;
mod probe;
mod serving;

use crate::ablate::Numbers;
use crate::interpret::Error;
use everwarm_dvfs::Chip;
use probe::Probe;
use serde::Serialize;
pub use serving::serving;

/// Everything that is predicted of one chip.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The chip's id.
    pub chip: String,
    /// Its name.
    pub name: String,
    /// Its fastest p-state.
    pub top: u8,
    /// Its base p-state.
    pub base: u8,
    /// The way to the top clock.
    pub ramps: Vec<Ramp>,
    /// How long a queue may stay empty.
    pub cliffs: Vec<Cliff>,
    /// What idle costs a prefill.
    pub penalties: Vec<Penalty>,
    /// What each base p-state would do.
    pub bases: Vec<Base>,
}

/// The way to the top clock of kernels that take 0.58 ms there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ramp {
    /// Idle before it.
    pub idle: &'static str,
    /// Command buffers in flight.
    pub depth: u32,
    /// First start until the top clock is reached and kept; `None` if it is not within 3 s. Unit: ms.
    pub to_top_ms: Option<f64>,
    /// Execution time beyond what it would have been at steady speed. Unit: ms.
    pub loss_ms: Option<f64>,
}

/// The longest gap between buffers at which a loop keeps the top clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cliff {
    /// Execution time of a kernel at the top clock. Unit: ms.
    pub kernel_ms: f64,
    /// The longest gap that keeps the top clock; `None` if even the shortest does not. Unit: ms.
    pub holds_ms: Option<f64>,
    /// The p-state just beyond it; `None` if no gap was found that loses the top clock.
    pub falls_to: Option<u8>,
}

/// What idle times cost one kind of prefill.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Penalty {
    /// Whose way of submitting.
    pub runtime: &'static str,
    /// Prompt length.
    pub tokens: u32,
    /// The prefill straight after work. Unit: ms.
    pub busy_ms: f64,
    /// Idle time and what it adds to the prefill. Unit: ms.
    pub idle: Vec<(&'static str, f64)>,
}

/// A base p-state: what is left of the penalty, and what it costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Base {
    /// The base p-state.
    pub base: u8,
    /// Penalty of a prefill after 1 s of idle, by runtime and prompt length. Unit: ms.
    pub penalties: Vec<(&'static str, u32, f64)>,
    /// GPU power while it is idle, hence gated. Unit: W.
    pub idle_w: f64,
    /// GPU power while it is powered and has nothing to do. Unit: W.
    pub awake_w: f64,
    /// GPU power under 1 ms of work (at the top clock) 60 times a second. Unit: W.
    pub frames_w: f64,
}

const RAMP: &str = include_str!("../../predictions/ramp.toml");
const PENALTY: &str = include_str!("../../predictions/penalty.toml");
const BASE: &str = include_str!("../../predictions/base.toml");

const RUNTIMES: [&str; 2] = ["mlx", "llamacpp"];
const TOKENS: [u32; 2] = [16, 512];
const IDLE: [&str; 9] =
    ["5 ms", "20 ms", "50 ms", "100 ms", "300 ms", "500 ms", "1 s", "2 s", "5 s"];

/// The chip of the device `id` with other values under some dotted keys, written as in a chip file; a
/// quantity needs no quotes.
///
/// # Errors
/// Says which key or value can't be.
pub fn changed_chip(id: &str, set: &[(String, String)]) -> Result<Chip, String> {
    let value = |text: &str| {
        text.parse::<toml::Value>().unwrap_or_else(|_| toml::Value::String(text.to_owned()))
    };
    let set: Vec<_> = set.iter().map(|(key, text)| (key.clone(), value(text))).collect();
    // Numbers have runtimes' values, too, but a prediction takes runtimes as they are.
    let of_runtime =
        |key: &str| key.split_once('.').is_some_and(|(top, _)| RUNTIMES.contains(&top));
    if let Some((key, _)) = set.iter().find(|(key, _)| of_runtime(key)) {
        return Err(format!("`{key}` is of a runtime; expected a key of a chip file"));
    }
    let numbers = Numbers::of(id).map_err(|error| error.to_string())?;
    numbers.with(&set).map(|variant| variant.chip).map_err(|wrong| wrong.to_string())
}

/// Parts of a prediction, for its progress.
pub fn prediction_parts(chip: &Chip) -> usize {
    2 + cliff::KERNELS_MS.len() + usize::from(chip.top().0)
}

/// Predicts everything of `chip`; `done` hears of each of its [`prediction_parts`].
///
/// # Errors
/// If a scenario can't be run on the chip.
pub fn predict(chip: &Chip, done: &mut dyn FnMut()) -> Result<Prediction, Error> {
    let mut part = |_: &str| done();
    let ramps = ramps(chip)?;
    part("ramps");
    let penalties = penalties(chip)?;
    part("penalties");
    let mut cliffs = Vec::new();
    for kernel_ms in cliff::KERNELS_MS {
        cliffs.push(cliff::find(chip, kernel_ms)?);
        part("cliff");
    }
    let mut bases = Vec::new();
    for base in 1..=chip.top().0 {
        bases.push(of_base(chip, base)?);
        part("base");
    }
    Ok(Prediction {
        chip: chip.id.clone(),
        name: chip.name.clone(),
        top: chip.top().0,
        base: chip.controller.base_pstate,
        ramps,
        cliffs,
        penalties,
        bases,
    })
}

fn ramps(chip: &Chip) -> Result<Vec<Ramp>, Error> {
    let probe = Probe::run("ramp", RAMP, chip)?;
    let top = chip.top().0;
    let mut all = Vec::new();
    for idle in ["300 ms", "2 s"] {
        for depth in [1, 8] {
            let at = format!("label = \"load\", where = {{ idle = \"{idle}\", depth = {depth} }}");
            let reach = format!("metric = \"time_until\", reach = {top}, sustained = true, {at}");
            let to_top_ms = probe.take(&reach).map(|s| s * 1e3);
            let loss_ms = probe.take(&format!("metric = \"loss\", {at}")).map(|s| s * 1e3);
            all.push(Ramp { idle, depth, to_top_ms, loss_ms });
        }
    }
    Ok(all)
}

fn penalties(chip: &Chip) -> Result<Vec<Penalty>, Error> {
    let probe = Probe::run("penalty", PENALTY, chip)?;
    let wall = |runtime: &str, tokens: u32, idle: &str| {
        let cell = format!("runtime = \"{runtime}\", tokens = {tokens}, idle = \"{idle}\"");
        probe.must(&format!("metric = \"wall\", label = \"prefill\", where = {{ {cell} }}")) * 1e3
    };
    let of = |runtime, tokens| {
        let busy_ms = wall(runtime, tokens, "0");
        let idle = IDLE.map(|idle| (idle, wall(runtime, tokens, idle) - busy_ms)).to_vec();
        Penalty { runtime, tokens, busy_ms, idle }
    };
    Ok(RUNTIMES.iter().flat_map(|runtime| TOKENS.map(|tokens| of(*runtime, tokens))).collect())
}

fn of_base(chip: &Chip, base: u8) -> Result<Base, Error> {
    let mut chip = chip.clone();
    chip.controller.base_pstate = base;
    let probe = Probe::run("base", BASE, &chip)?;
    let penalty = |runtime: &str, tokens: u32| {
        let wall = |idle: &str| {
            let cell = format!("case = \"{runtime} {tokens}\", idle = \"{idle}\"");
            probe.must(&format!("metric = \"wall\", label = \"prefill\", where = {{ {cell} }}"))
        };
        (wall("1 s") - wall("0")) * 1e3
    };
    let power = |case: &str| {
        let cell = format!("where = {{ case = \"{case}\", idle = \"0\" }}");
        probe.must(&format!("metric = \"power\", rail = \"gpu\", label = \"load\", {cell}"))
    };
    let pairs = RUNTIMES.iter().flat_map(|runtime| TOKENS.map(|tokens| (*runtime, tokens)));
    Ok(Base {
        base,
        penalties: pairs
            .map(|(runtime, tokens)| (runtime, tokens, penalty(runtime, tokens)))
            .collect(),
        idle_w: power("idle"),
        awake_w: power("awake"),
        frames_w: power("frames"),
    })
}
