//! The experiments and claims that the lab carries: data, one file each and one line here.

use crate::scenario::Scenario;

/// A built-in scenario or claims file: its name and its text.
pub struct BuiltIn {
    /// As `lab run` or `lab check` takes it.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
}

impl BuiltIn {
    /// What errors call it.
    pub fn shown(&self, kind: &str) -> String {
        format!("built-in {kind} {}", self.name)
    }
}

macro_rules! scenarios {
    ($($name:literal),+ $(,)?) => {
        /// All built-in scenarios.
        pub const SCENARIOS: &[BuiltIn] = &[
            $(BuiltIn { name: $name, text: include_str!(concat!("../scenarios/", $name, ".toml")) }),+
        ];
    };
}

scenarios! {
    "steady",
    "pinned",
    "idle-sweep-alu",
    "idle-sweep-stream",
    "idle-sweep-long",
    "ramp-500ms",
    "ramp-2s",
    "ramp-long",
    "deep-queue",
    "deep-history",
    "submission-patterns",
    "queue-gaps",
    "queue-sleep",
    "queue-in-flight",
    "in-flight",
    "back-to-back",
    "hold-power",
    "hold-variants",
    "pre-warm",
    "ttft",
    "decay",
    "decode",
    "request",
    "no-drift",
    "control-spin",
    "control-telemetry",
    "fit-idle",
    "fit-wake",
    "fit-decay",
    "fit-ramp",
    "fit-gaps",
}

/// All built-in claims files; `lab check` takes the first where none is named.
pub const CLAIMS: &[BuiltIn] = &[
    BuiltIn { name: "m2", text: include_str!("../claims/m2.toml") },
    BuiltIn { name: "in-flight", text: include_str!("../claims/in-flight.toml") },
];

/// The built-in scenario of that name.
pub fn scenario(name: &str) -> Option<Scenario> {
    let found = SCENARIOS.iter().find(|one| one.name == name)?;
    let file = found.shown("scenario");
    // A test reads them all, so that this can't fail for a user.
    let mut scenario = Scenario::from_toml(&file, found.text).expect("built-in scenarios read");
    scenario.name = name.to_owned();
    Some(scenario)
}

/// What shows in a few minutes whether a device has anything to gain: its steady rate, what idle
/// time does to the clock and to the start, the ramp, a deep queue, and what depth hides.
const QUICK: &[&str] = &["steady", "idle-sweep-alu", "ramp-500ms", "deep-queue", "queue-in-flight"];

/// The built-in scenarios of a set, `quick` or `all`.
pub fn set(name: &str) -> Option<Vec<&'static str>> {
    match name {
        "quick" => Some(QUICK.to_vec()),
        "all" => Some(SCENARIOS.iter().map(|one| one.name).collect()),
        _ => None,
    }
}

/// "ramp-2s, ttft, …", for error messages.
pub fn names() -> String {
    SCENARIOS.iter().map(|one| one.name).collect::<Vec<_>>().join(", ")
}
