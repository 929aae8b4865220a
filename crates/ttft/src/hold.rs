//! A hold in another process, for as long as a guard lives.

use crate::Error;
use everwarm_hold::end_child;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long the process has to end by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// A running hold; dropping it ends the process.
pub(crate) struct Hold {
    child: Child,
}

impl Hold {
    /// Starts `command`, whose first word is the program.
    pub(crate) fn start(command: &[OsString]) -> Result<Self, Error> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let mut hold = Command::new(program);
        hold.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = hold.spawn();
        let child = started.map_err(|error| {
            Error::Hold(format!("can't start {}: {error}", program.to_string_lossy()))
        })?;
        Ok(Hold { child })
    }

    /// Says why the process has ended, if it has.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        let Ok(Some(status)) = self.child.try_wait() else { return Ok(()) };
        let mut said = String::new();
        if let Some(pipe) = &mut self.child.stderr {
            let _ = pipe.take(4096).read_to_string(&mut said);
        }
        Err(Error::Hold(format!("the hold ended early ({status}): {}", said.trim())))
    }

    /// Ends the process and says why it held nothing, if its summary says so.
    ///
    /// A summary is a JSON object; a command that prints none is believed.
    pub(crate) fn stop(mut self) -> Result<(), Error> {
        end_child(&mut self.child, PATIENCE);
        let mut said = String::new();
        if let Some(pipe) = &mut self.child.stdout {
            let _ = pipe.take(65_536).read_to_string(&mut said);
        }
        let summary: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        match summary["why_not"].as_str() {
            Some(why) => Err(Error::Hold(format!("the hold held nothing: {why}"))),
            None => Ok(()),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        end_child(&mut self.child, PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwarm_hold::child_ended_within;
    use rustix::process::Pid;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_guard_ends_the_process() {
        let hold = Hold::start(&words("sleep 60")).unwrap();
        let pid = Pid::from_raw(hold.child.id() as i32).unwrap();
        drop(hold);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[test]
    fn a_hold_that_fails_says_why() {
        let error = Hold::start(&words("./no-such-program")).err().unwrap().to_string();
        assert!(error.contains("can't start ./no-such-program"), "{error}");
        let failing = ["sh", "-c", "echo no device >&2; exit 3"].map(OsString::from);
        let mut hold = Hold::start(&failing).unwrap();
        assert!(child_ended_within(&mut hold.child, PATIENCE));
        let error = hold.check().unwrap_err().to_string();
        assert!(error.contains("no device") && error.contains('3'), "{error}");
        let idle = ["sh", "-c", r#"echo '{"why_not": "no GPU"}'"#].map(OsString::from);
        let mut hold = Hold::start(&idle).unwrap();
        assert!(child_ended_within(&mut hold.child, PATIENCE));
        assert_eq!(hold.stop().unwrap_err().to_string(), "the hold held nothing: no GPU");
    }
}
