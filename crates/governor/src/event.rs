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

/// Whose requests belong together, as far as a caller can tell: a conversation, an agent, a user. An
/// opaque number; equal ones belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// What an answer leaves its client to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Can't be told.
    #[default]
    Unknown,
    /// It read the answer to its end: somebody reads and may ask again.
    Turn,
    /// The answer calls tools: the client runs them and comes back with what they said.
    ToolCalls,
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
    /// A request turns out to belong to a session. At most once a request, before its end.
    SessionKnown {
        /// Which.
        session: Session,
        /// So long ago its head was complete.
        since: Span,
    },
    /// A browser asks whether it may send a request that works: the request follows.
    Preflight,
    /// A client asks which models there are: somebody has opened it, and may soon ask more.
    ModelsListed,
    /// Somebody expects a request.
    Hint {
        /// Who says so.
        source: HintSource,
        /// How long from now; `None`: soon.
        expected: Option<Span>,
        /// How likely it is. Unit: 0 to 1.
        confidence: f64,
        /// Of whom, if it says so.
        session: Option<Session>,
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
        /// Whose request it was, if known.
        session: Option<Session>,
        /// What the client does next.
        ending: Ending,
    },
    /// The request ended otherwise: the client left, the upstream failed.
    ResponseAborted {
        /// As in the request's head.
        work: bool,
        /// Whose request it was, if known.
        session: Option<Session>,
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
