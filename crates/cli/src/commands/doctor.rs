//! `everwarm doctor`.

use crate::bench::bar;
use crate::output::{print, print_json};
use everwarm_doctor::{Diagnosis, Options, Patient, Verdict, examine, text};
use std::process::ExitCode;

/// Finds out why a first token is late on this machine, what helps, and what that costs.
///
/// It measures the device, not a server: a full queue and single kernels straight after work and after
/// idle times of up to five seconds, reads of a large piece of memory, loops with pauses, and how late
/// the host wakes. Each cause is then seen (milliseconds and a 95 % interval), not seen (and how large
/// an effect would have been missed), or it can't be told, and why. What a hold, a pre-warm and a ping
/// would do about it is tried, and their power read, where the device tells it.
///
/// Nothing else should use the GPU meanwhile; it says so if something does. It takes up to a minute.
///
/// The exit status is 0 if there is nothing to gain on this machine, 1 if there is, 3 if that could
/// not be told, and 2 if the device could not be examined. docs/doctor.md tells how it judges, and how
/// often it is right.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm doctor                       the first real GPU here
  everwarm doctor --device sim:m2       a simulated Apple M2, in virtual time
  everwarm doctor --quick               a quarter of a minute: fewer causes, nothing is tried
  everwarm doctor --json > doctor.json")]
pub struct Args {
    /// What to examine [default: the first real device, else sim:m2].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Take 15 seconds instead of a minute: leaves out what needs long idle times, and trials.
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Exit statuses beyond 0 and 1.
const FAILED: u8 = 2;
const UNKNOWN: u8 = 3;

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match carry_out(&args) {
        Ok(diagnosis) => Ok(status(diagnosis.verdict)),
        // 1 would say that something was found.
        Err(error) => {
            eprintln!("everwarm: {error:#}");
            Ok(ExitCode::from(FAILED))
        }
    }
}

fn carry_out(args: &Args) -> anyhow::Result<Diagnosis> {
    let id = super::device(args.device.clone());
    let options = if args.quick { Options::QUICK } else { Options::FULL };
    let bar = bar(0, args.json);
    let diagnosis = examine(&mut Patient::device(&id), options, &mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.what.to_owned());
    });
    bar.finish_and_clear();
    let diagnosis = diagnosis?;
    match args.json {
        true => print_json(&diagnosis)?,
        false => print(&text(&diagnosis))?,
    }
    Ok(diagnosis)
}

fn status(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::NothingToGain => ExitCode::SUCCESS,
        Verdict::SomethingToGain => ExitCode::FAILURE,
        Verdict::CantTell => ExitCode::from(UNKNOWN),
    }
}
