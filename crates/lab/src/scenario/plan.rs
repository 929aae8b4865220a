//! A scenario that has been read and holds the rules: what the interpreter runs.

pub use super::doc::Order;
pub use super::value::{Depth, Work};
use everwarm_units::{PState, Span};
use everwarm_workload::Runtime;
use std::collections::BTreeMap;

/// An experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name, or the file's.
    pub name: String,
    /// What it shows.
    pub about: String,
    /// How often each cell runs.
    pub rounds: u32,
    /// Seed of all jitter.
    pub seed: u64,
    /// In which order cells and rounds run.
    pub order: Order,
    /// How often counters are read; `None` for never.
    pub telemetry: Option<Span>,
    /// One program for each combination of the sweep's values.
    pub cells: Vec<Cell>,
}

impl Scenario {
    /// Runs each cell so often instead.
    ///
    /// # Errors
    /// Says that this would be too many, as in a file.
    pub fn repeat(&mut self, rounds: u32) -> Result<(), BadRounds> {
        super::read::enough(rounds, self.cells.len()).map_err(BadRounds)?;
        self.rounds = rounds;
        Ok(())
    }
}

/// A number of rounds that is too large.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct BadRounds(pub(super) String);

/// One combination of the sweep's values.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The variables, as selectors know their values.
    pub variables: BTreeMap<String, String>,
    /// The host threads that take part.
    pub actors: Vec<Actor>,
}

/// A host thread with its own queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Actor {
    /// Its name.
    pub name: String,
    /// It repeats its steps until the others have ended.
    pub background: bool,
    /// What it does, in order.
    pub steps: Vec<Step>,
}

/// One step of an actor.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What metrics select it by.
    pub label: String,
    /// What it is.
    pub kind: StepKind,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// No work.
    Idle {
        /// How long.
        span: Span,
        /// Up to so much longer, by the seed.
        jitter: Span,
        /// The CPU is kept busy meanwhile.
        spin: bool,
        /// A signal raised so long before the end.
        signal: Option<(String, Span)>,
    },
    /// The same kernel again and again.
    Run(Run),
    /// A model's work.
    Model {
        /// Who submits it, and how.
        runtime: Box<Runtime>,
        /// What of it.
        part: Part,
    },
    /// Waits for a signal.
    Await(String),
    /// Raises a signal.
    Signal(String),
    /// Holds the clock; `None` lets it go.
    Pin(Option<PState>),
}

/// A part of a model's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    /// A prompt of so many tokens.
    Prefill(u32),
    /// New tokens after a context.
    Decode {
        /// Tokens before.
        context: u32,
        /// New ones.
        tokens: u32,
    },
    /// A prompt and new tokens.
    Answer {
        /// Tokens of the prompt.
        prompt: u32,
        /// New ones.
        tokens: u32,
    },
}

/// The same kernel again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The kernel.
    pub work: Work,
    /// When to stop.
    pub until: Until,
    /// Command buffers in flight.
    pub in_flight: Depth,
    /// Host time between a wait and the next commit.
    pub sleep: Span,
    /// Host time before each commit.
    pub delay: Span,
    /// Gap on the GPU's timeline that the host's sleep is adapted to.
    pub gap: Option<Span>,
    /// The step ends when the last buffer has, not with its commit.
    pub drain: bool,
}

/// When a run stops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// After so many command buffers.
    Times(u32),
    /// When no new one would begin within this time.
    Elapsed(Span),
}

impl Until {
    /// True after so many command buffers and so much time.
    pub fn is_over(self, committed: u64, elapsed: Span) -> bool {
        match self {
            Until::Times(n) => committed >= u64::from(n),
            Until::Elapsed(span) => elapsed >= span,
        }
    }
}
