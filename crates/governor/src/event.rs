//! What a governor can be told.

use everwarm_units::{Joules, Span};

/// Where a hint came from. It is told apart only in reports; every hint counts alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HintSource {
    /// Somebody types.
    KeyStroke,
    /// An agent or scheduler announces its next call.
    Schedule,
    /// Anything else that knows better than we do.
    Other,
}

/// Something that happened around requests, the device or the machine.
///
/// Every [`Event::RequestHead`] is followed by exactly one [`Event::ResponseFinished`] or
/// [`Event::ResponseAborted`] with the same `work`, whatever becomes of the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A client connected; its request usually follows within a round trip.
    ConnectionAccepted,
    /// A client's connection is gone.
    ConnectionClosed,
    /// A request's head is complete. `work`: it may make the device work (a POST, say; not a
    /// health probe).
    RequestHead {
        /// True if the request may make the device work.
        work: bool,
    },
    /// The client asks with `Expect: 100-continue`: its body follows a round trip later.
    ExpectContinue,
    /// A browser asks whether it may send a request that works: the request follows.
    Preflight,
    /// Somebody expects a request.
    Hint {
        /// Who says so.
        source: HintSource,
        /// How long from now; `None`: soon.
        expected: Option<Span>,
        /// How likely it is. Unit: 0 to 1.
        confidence: f64,
    },
    /// The request is on its way upstream.
    RequestForwarded {
        /// As in its head.
        work: bool,
    },
    /// First content was seen: the prefill is over, decode runs.
    DecodeRunning,
    /// The response ended properly.
    ResponseFinished {
        /// As in the request's head.
        work: bool,
    },
    /// The request ended otherwise: the client left, the upstream failed.
    ResponseAborted {
        /// As in the request's head.
        work: bool,
    },
    /// The device can't be warmed now: whatever was held is over.
    WarmingFailed,
    /// The device can be warmed again.
    WarmingRestored,
    /// What warming used since the last report (or since it began), measured. It takes the place
    /// of the estimate for that time.
    Energy(Joules),
    /// The machine runs on battery or must save power: no warming.
    PowerLost,
    /// The machine is on power again.
    PowerRestored,
}
