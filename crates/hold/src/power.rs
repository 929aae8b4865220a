//! When the machine must save power: what it tells, made into events for a governor.
//!
//! A machine that runs on battery, is in Low Power Mode, is slowed down by heat or whose display
//! sleeps is not held warm: power is worth more to its user then than some milliseconds. What it
//! can't tell is no reason. A sign counts at once; that all is well counts after [`CALM`] readings
//! without one, so that a temperature at its limit does not begin and end a hold every few seconds.
//!
//! It does not know of the GPU: one that somebody simulates has no battery to spare, and who opens
//! it says so ([`Surroundings::Ignored`]).

use crate::mailbox::Outlet;
use crate::warmer::Message;
use everwarm_gpu::environment::{Environment, Heat, sysfs};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the machine is asked. Source: guess: a cable pulled a few seconds ago is no great loss.
const EVERY: Duration = Duration::from_secs(5);
/// Readings without a sign before all is well again.
pub const CALM: u32 = 3;

/// What is asked for battery, heat and modes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Surroundings {
    /// Nothing: warm in any state of the machine.
    #[default]
    Ignored,
    /// This machine.
    Machine,
    /// A folder of the form of Linux' `/sys`.
    Tree(PathBuf),
}

impl Surroundings {
    fn read(&self) -> Environment {
        match self {
            Surroundings::Ignored => Environment::default(),
            Surroundings::Machine => Environment::read(),
            Surroundings::Tree(root) => sysfs::read(root),
        }
    }
}

/// Why the machine must save power; `None` if nothing says that it must.
pub fn must_save(environment: &Environment) -> Option<&'static str> {
    if environment.on_battery == Some(true) {
        Some("it runs on battery")
    } else if environment.low_power_mode == Some(true) {
        Some("its low power mode is on")
    } else if environment.heat.is_some_and(|heat| heat >= Heat::Serious) {
        Some("it is slowed down by heat")
    } else if environment.display_asleep == Some(true) {
        Some("its display sleeps")
    } else {
        None
    }
}

/// Makes readings into changes.
#[derive(Debug, Default)]
struct Signs {
    saving: Option<&'static str>,
    calm: u32,
}

impl Signs {
    /// Takes a reading. `Some` is a change: into saving for a reason (or for another one), or out
    /// of it.
    fn on_reading(&mut self, environment: &Environment) -> Option<Option<&'static str>> {
        let sign = must_save(environment);
        self.calm = if sign.is_some() { 0 } else { self.calm.saturating_add(1) };
        if sign == self.saving || (sign.is_none() && self.calm < CALM) {
            return None;
        }
        self.saving = sign;
        Some(sign)
    }
}

/// A thread that asks every few seconds and tells an engine of changes; it ends when it is dropped.
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Reads once at once, so that a hold does not begin that would end the next moment.
    pub(crate) fn begin(surroundings: Surroundings, outlet: Outlet<Message>) -> Option<Watch> {
        Watch::with(surroundings, outlet, EVERY)
    }

    fn with(surroundings: Surroundings, outlet: Outlet<Message>, every: Duration) -> Option<Watch> {
        if surroundings == Surroundings::Ignored {
            return None;
        }
        let mut signs = Signs::default();
        let mut look = move || match signs.on_reading(&surroundings.read()) {
            Some(saving) => outlet.send(Message::Power(saving)),
            None => true,
        };
        look();
        let (stop, stopped): (_, Receiver<()>) = channel();
        let asks = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) && look() {}
        };
        // Without the thread the first reading stands, which is no reason to warm nothing.
        let thread = std::thread::Builder::new().name("power".to_owned()).spawn(asks).ok();
        Some(Watch { stop: Some(stop), thread })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mailbox::{Urgency, mailbox};

    const WELL: Environment = Environment {
        on_battery: Some(false),
        low_power_mode: Some(false),
        heat: Some(Heat::Fair),
        display_asleep: Some(false),
    };

    #[test]
    fn each_sign_is_a_reason_and_nothing_known_is_none() {
        let check = |environment: Environment, expected: Option<&str>| {
            assert_eq!(must_save(&environment), expected, "{environment:?}");
        };
        check(Environment::default(), None);
        check(WELL, None);
        check(Environment { on_battery: Some(true), ..WELL }, Some("it runs on battery"));
        check(Environment { low_power_mode: Some(true), ..WELL }, Some("its low power mode is on"));
        check(Environment { heat: Some(Heat::Serious), ..WELL }, Some("it is slowed down by heat"));
        check(Environment { display_asleep: Some(true), ..WELL }, Some("its display sleeps"));
    }

    #[test]
    fn a_sign_counts_at_once_and_calm_after_a_while() {
        let (mut signs, hot) =
            (Signs::default(), Environment { heat: Some(Heat::Critical), ..WELL });
        let battery = Environment { on_battery: Some(true), ..WELL };
        let mut check = |environment: Environment, expected: Option<Option<&str>>| {
            assert_eq!(signs.on_reading(&environment), expected, "{environment:?}");
        };
        check(WELL, None);
        check(hot, Some(Some("it is slowed down by heat")));
        check(hot, None);
        check(WELL, None);
        check(WELL, None);
        check(hot, None); // begins to count anew
        check(WELL, None);
        check(WELL, None);
        check(WELL, Some(None));
        check(WELL, None);
        check(battery, Some(Some("it runs on battery")));
        check(Environment { on_battery: Some(true), ..hot }, None);
        check(hot, Some(Some("it is slowed down by heat")));
    }

    #[test]
    fn a_cable_that_is_pulled_is_told_and_the_thread_ends() {
        let root = tempfile::tempdir().unwrap();
        let mains = root.path().join("class/power_supply/AC");
        let battery = root.path().join("class/power_supply/BAT0");
        let write = |folder: &PathBuf, file: &str, text: &str| {
            std::fs::create_dir_all(folder).unwrap();
            // A reader must never see half a file.
            let part = folder.join("part");
            std::fs::write(&part, text).unwrap();
            std::fs::rename(part, folder.join(file)).unwrap();
        };
        write(&mains, "type", "Mains");
        write(&mains, "online", "0");
        write(&battery, "type", "Battery");
        write(&battery, "status", "Discharging");
        let (outlet, inbox) = mailbox();
        let mut told = Vec::new();
        let tree = Surroundings::Tree(root.path().to_owned());
        let watch = Watch::with(tree, outlet, Duration::from_millis(1)).unwrap();
        inbox.take(&mut told);
        assert!(matches!(told.pop(), Some(Message::Power(Some("it runs on battery")))));
        write(&mains, "online", "1");
        inbox.wait(Urgency::Order, Duration::from_secs(10), &mut told);
        assert!(matches!(told.pop(), Some(Message::Power(None))));
        drop(watch);
        inbox.take(&mut told);
        assert!(told.is_empty());
    }
}
