//! A diagnosis in plain words.

use crate::diagnosis::{Diagnosis, Finding, Row, Verdict};
use crate::remedies::{Trials, Tried};
use std::fmt::Write;

/// A remedy that removes less of the penalty than this helps not enough to be named.
const WORTH: f64 = 0.2;

/// The verdict in a few sentences.
pub fn summary(diagnosis: &Diagnosis) -> Vec<String> {
    let seen: Vec<&Row> = diagnosis.causes.iter().filter(|row| row.finding.ms() > 0.0).collect();
    let unknown = |row: &&Row| matches!(row.finding, Finding::CantTell { .. });
    let unknown: Vec<&str> = diagnosis.causes.iter().filter(unknown).map(|row| row.name).collect();
    let mut lines = Vec::new();
    match diagnosis.verdict {
        Verdict::NothingToGain => lines.push(
            "Nothing to gain on this machine: no cause of a cold first token was found.".to_owned(),
        ),
        Verdict::CantTell => lines.push(format!(
            "No cause was found, but it can't be said that there is none: {} could not be told.",
            unknown.join(", ")
        )),
        Verdict::SomethingToGain => {
            let each = seen.iter().map(|row| format!("{} ({:.1} ms)", row.name, row.finding.ms()));
            let each = each.collect::<Vec<_>>().join(", ");
            lines.push(format!("There is something to gain on this machine: {each}."));
        }
    }
    if let Some(trials) = &diagnosis.trials {
        lines.extend(tried(trials));
    } else if diagnosis.verdict == Verdict::SomethingToGain {
        lines.push(match diagnosis.quick {
            true => "What helps, and what it costs, is tried without --quick.".to_owned(),
            false => "There was no time left to try what helps.".to_owned(),
        });
    }
    lines
}

/// What of the trials helps.
fn tried(trials: &Trials) -> Vec<String> {
    let mut lines = vec![format!(
        "After {} of idle a request of {:.0} ms takes {:.1} ms longer.",
        trials.idle, trials.busy_ms, trials.penalty_ms
    )];
    for one in &trials.tried {
        let share = format!("{:.0} %", 100.0 * one.removed);
        lines.push(match one.removed {
            removed if removed >= WORTH => {
                format!(
                    "A {} ({}) removes {share} of it{}.",
                    one.what,
                    one.about,
                    cost(one, trials)
                )
            }
            removed if removed <= -WORTH => format!(
                "A {} ({}) makes it worse by {:.1} ms{}.",
                one.what,
                one.about,
                -one.removed_ms,
                cost(one, trials)
            ),
            _ => format!("A {} ({}) does not help.", one.what, one.about),
        });
    }
    lines
}

/// What it costs, as far as the device tells.
fn cost(tried: &Tried, trials: &Trials) -> String {
    let idle = trials.idle_w.map(|w| format!(" on top of {w:.2} W")).unwrap_or_default();
    match (tried.gpu_w, tried.cpu_w, tried.once_j) {
        (_, _, Some(j)) => format!(" for {j:.2} J each time"),
        (Some(gpu), Some(cpu), _) => {
            format!(" for {gpu:.2} W of the GPU{idle}, and {cpu:.2} W of the CPU")
        }
        (Some(gpu), None, _) => format!(" for {gpu:.2} W of the GPU{idle}"),
        _ => "; nothing here tells what it costs in power".to_owned(),
    }
}

/// All of it, for a terminal.
pub fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    let simulated = if diagnosis.simulated { ", simulated" } else { "" };
    let _ = writeln!(text, "{} ({}{simulated})\n", diagnosis.device, diagnosis.device_name);
    for line in &diagnosis.summary {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "\n{:<29}{:>10}  {:<16}", "cause", "ms", "95 %");
    for row in &diagnosis.causes {
        let _ = writeln!(text, "{}", line(row));
    }
    for row in &diagnosis.causes {
        if let Finding::Seen { detail, .. } = &row.finding {
            let _ = writeln!(text, "\n{}: {}.\n  {detail}.", row.name, row.about);
            for help in &row.helps {
                let _ = writeln!(text, "  * {help}");
            }
        }
    }
    let _ = writeln!(text, "\n{}", instrument(diagnosis));
    text
}

/// A row of the table.
fn line(row: &Row) -> String {
    let name = row.name;
    match &row.finding {
        Finding::Seen { ms, lo, hi, .. } => {
            format!("{name:<29}{ms:>10.2}  {}", format_args!("{lo:.2} .. {hi:.2}"))
        }
        Finding::NotSeen { missed_at_most_ms } => {
            format!(
                "{name:<29}{:>10}  up to {missed_at_most_ms:.2} ms could have been missed",
                "not seen"
            )
        }
        Finding::LeftOut { why } => format!("{name:<29}{:>10}  {why}", "left out"),
        Finding::CantTell { why } => format!("{name:<29}{:>10}  because {why}", "can't tell"),
    }
}

/// What is to be said of the instrument.
fn instrument(diagnosis: &Diagnosis) -> String {
    let i = &diagnosis.instrument;
    let mut parts = vec![format!("{} samples in {:.0} s", i.samples, diagnosis.took_s)];
    let mut tell = |what: Option<String>| parts.extend(what);
    tell(i.timer_step_ns.map(|ns| format!("the host's clock steps by {ns} ns")));
    tell(i.sleep_late_ms.map(|ms| format!("a sleep ends {ms:.2} ms late")));
    tell(i.commit_ms.map(|ms| format!("a commit takes {ms:.3} ms")));
    tell(i.noise_ms.map(|ms| format!("two halves of the controls differ by {ms:.2} ms")));
    let share = i
        .others_busy
        .map(|share| format!("others used the GPU {:.0} % of the time", 100.0 * share));
    tell(share);
    let mut text = format!("Instrument: {}.", parts.join(", "));
    for remark in &i.remarks {
        let _ = write!(text, "\nNote: {remark}.");
    }
    text
}
