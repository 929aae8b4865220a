//! What a run was: who wrote it, on which device, from which scenario, with which ruler.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The head of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the schema, [`crate::SCHEMA`] when written by this crate.
    pub schema: u32,
    /// Version of everwarm that wrote it.
    pub everwarm: String,
    /// The device as the user wrote it: `sim:m2`.
    pub device_id: String,
    /// The maker's name of it.
    pub device_name: String,
    /// What else a reader wants to know of it: driver, timer resolution, power source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device_facts: BTreeMap<String, String>,
    /// True for a modelled device.
    pub simulated: bool,
    /// Seed of everything drawn at random.
    pub seed: u64,
    /// What was run; `None` for a run without a scenario (a bench from the command line).
    pub scenario: Option<Scenario>,
    /// Wall time of the start, since the Unix epoch; `None` for a run in virtual time.
    pub started_unix_ns: Option<u64>,
    /// The command line or its like, where there was one.
    pub command: Option<String>,
    /// How good the instrument was; `None` where it was not tested.
    pub self_test: Option<SelfTest>,
}

/// A scenario as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Its text, so that a run can be repeated from its record alone.
    pub text: String,
    /// SHA-256 of the text, in hexadecimal.
    pub sha256: String,
}

impl Scenario {
    /// A scenario with the hash of its text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let sha256 = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        Scenario { name: name.into(), text, sha256 }
    }

    /// True if the hash is that of the text.
    pub fn is_intact(&self) -> bool {
        Scenario::new("", self.text.as_str()).sha256 == self.sha256
    }
}

/// The instrument measured before it measures: errors of the ruler, all `None` in virtual time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    /// Smallest step of the clock that was seen. Unit: ns.
    pub timer_step_ns: Option<u64>,
    /// Median time by which a short sleep came back late. Unit: ns.
    pub sleep_overshoot_ns: Option<u64>,
    /// Median time that a commit of an empty buffer took the host. Unit: ns.
    pub submit_overhead_ns: Option<u64>,
}
