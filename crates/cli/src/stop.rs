//! Ctrl-C as a question: for commands that have something to say or to save before they end.

use everwarm_units::Span;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long after a signal a sleep goes on, at most.
const SLICE: Duration = Duration::from_millis(20);

/// Whether this process was asked to end.
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Takes the signals that ask a process to end from now on; a second one ends it at once, as ever.
    pub fn listen() -> anyhow::Result<Stop> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Stop(asked))
    }

    /// True once it was.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Sleeps, until it is asked to end at the most.
    pub fn sleep(&self, span: Span) {
        let end = Instant::now() + Duration::from(span);
        while !self.asked() && Instant::now() < end {
            std::thread::sleep(SLICE.min(end.saturating_duration_since(Instant::now())));
        }
    }

    /// What a process that was interrupted ends with.
    pub fn code() -> ExitCode {
        ExitCode::from(128 + SIGINT as u8)
    }
}
