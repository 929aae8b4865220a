//! What a warmer is doing, to be read at any time and printed as JSON.

use everwarm_governor::Reason;
use serde::Serialize;

/// Whether the device is kept warm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A hold is on.
    Holding,
    /// None is, by decision.
    Resting,
    /// It can't be: the device can't be opened or is gone. Opening is tried again.
    Unavailable,
    /// There is no device to warm.
    Off,
}

/// The state and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warm {
    /// The state.
    pub state: State,
    /// A sentence.
    pub why: String,
}

/// The latest pre-warm kernel. Unit: ns on CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LastPrewarm {
    /// When the event that it was submitted for happened; `None` if a time that was expected came.
    pub event_ns: Option<u64>,
    /// When the device had taken it.
    pub submitted_ns: u64,
    /// When the GPU began it; `None` until it is known.
    pub gpu_start_ns: Option<u64>,
}

/// What warming has used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Energy {
    /// In the last 24 hours. Unit: J.
    pub used_24h_j: f64,
    /// The cap on that. Unit: J.
    pub cap_j: f64,
    /// Since the warmer began. Unit: J.
    pub total_j: f64,
    /// True if the device told all of it; false if some of it is an estimate.
    pub measured: bool,
}

/// What has been done since the warmer began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Pre-warm kernels submitted.
    pub prewarms: u64,
    /// Holds begun.
    pub holds: u64,
    /// Hold kernels that have ended.
    pub hold_buffers: u64,
    /// Time spent holding, in whole holds. Unit: ms.
    pub hold_ms: u64,
    /// Times that the device failed or could not be opened.
    pub failures: u64,
    /// Releases, by reason. Shape: as [`Reason::ALL`]; as JSON an object by reason's name.
    #[serde(serialize_with = "by_reason")]
    pub releases: [u64; Reason::ALL.len()],
}

fn by_reason<S: serde::Serializer>(
    releases: &[u64; Reason::ALL.len()],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Reason::ALL.iter().map(|r| r.name()).zip(releases))
}

/// What the policy makes of the present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Outlook {
    /// The price that it weighs with; `None`: it does not weigh. Unit: J for a millisecond.
    pub price_j_per_ms: Option<f64>,
    /// How likely a request is within so long; `None`: it does not expect in numbers, or one runs.
    pub chances: Option<Chances>,
}

/// How likely a request is, if nothing else happens before. Unit: 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Chances {
    /// Within a second.
    #[serde(rename = "1s")]
    pub second: f64,
    /// Within ten.
    #[serde(rename = "10s")]
    pub ten: f64,
    /// Within a minute.
    #[serde(rename = "60s")]
    pub minute: f64,
}

impl From<everwarm_governor::Outlook> for Outlook {
    fn from(outlook: everwarm_governor::Outlook) -> Self {
        let chances = |[second, ten, minute]: [f64; 3]| Chances { second, ten, minute };
        Outlook {
            price_j_per_ms: outlook.price.map(everwarm_units::Joules::as_j),
            chances: outlook.chances.map(chances),
        }
    }
}

/// Everything a warmer says of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The policy's name.
    pub policy: String,
    /// How long another request is expected after one. Unit: s.
    pub hold_for_s: f64,
    /// The device as the user wrote it; `None` if there is none.
    pub device: Option<String>,
    /// The maker's name, once it is open.
    pub device_name: Option<String>,
    /// Warm or not, and why.
    pub warm: Warm,
    /// What the policy expects.
    pub outlook: Outlook,
    /// The latest pre-warm kernel.
    pub last_prewarm: Option<LastPrewarm>,
    /// What warming has used.
    pub energy: Energy,
    /// What has been done.
    pub counters: Counters,
}
