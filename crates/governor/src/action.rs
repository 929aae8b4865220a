//! What a governor asks for.

use everwarm_units::Instant;

/// Why a hold ended, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Nothing is expected (any more).
    NotExpected,
    /// The expected request is here and runs by itself.
    RequestRuns,
    /// The energy cap is reached.
    CapReached,
    /// The device can't be warmed.
    WarmingFailed,
    /// The machine is on battery or must save power.
    PowerLost,
    /// The policy was changed, or the governor is being shut down.
    PolicyChanged,
}

impl Reason {
    /// All of them, in the order of declaration.
    pub const ALL: [Reason; 6] = [
        Reason::NotExpected,
        Reason::RequestRuns,
        Reason::CapReached,
        Reason::WarmingFailed,
        Reason::PowerLost,
        Reason::PolicyChanged,
    ];

    /// A short name for metrics: `cap_reached`.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::NotExpected => "not_expected",
            Reason::RequestRuns => "request_runs",
            Reason::CapReached => "cap_reached",
            Reason::WarmingFailed => "warming_failed",
            Reason::PowerLost => "power_lost",
            Reason::PolicyChanged => "policy_changed",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::NotExpected => "no request is expected",
            Reason::RequestRuns => "a request runs",
            Reason::CapReached => "the energy cap is reached",
            Reason::WarmingFailed => "the device can't be warmed",
            Reason::PowerLost => "the machine must save power",
            Reason::PolicyChanged => "the policy was changed",
        })
    }
}

/// What the caller must do; see the crate's contract.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Submit one pre-warm kernel now.
    Prewarm,
    /// Begin to hold: keep the device at work until [`Action::Release`].
    Hold,
    /// End the hold.
    Release(Reason),
    /// Poll again at this instant, or after an event.
    WaitUntil(Instant),
    /// Poll again after an event.
    WaitForEvent,
}
