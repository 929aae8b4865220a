//! What `ttft` and `demo` share: a bench with its progress on the terminal.
//!
//! Progress goes to stderr and only to a terminal, so that output can be piped.

use everwarm_ttft::{Bench, Condition, Config, Label, Plan, Progress, Results, Sample};
use everwarm_units::Span;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::ffi::OsString;

/// The command by which this same program holds `device` until it is asked to end.
pub fn hold_command(device: &str) -> anyhow::Result<Vec<OsString>> {
    let own = std::env::current_exe()?;
    // A measurement says itself what it holds, on battery as well.
    let words = ["hold", "--device", device, "--json", "--ignore-power"].map(OsString::from);
    Ok(std::iter::once(own.into_os_string()).chain(words).collect())
}

/// Carries out `plan`, telling its progress unless `quiet`.
pub fn measure(plan: Plan, config: Config, quiet: bool) -> anyhow::Result<Results> {
    let bar = bar(plan.steps() as u64, quiet);
    bar.set_message("trying the server with each prompt length");
    let bench = Bench::new(plan, config)?;
    let measured = bench.run(|progress| match progress {
        Progress::Ready(_) => bar.set_message("measuring"),
        Progress::Done(sample) => {
            bar.inc(1);
            bar.set_message(line(sample));
        }
        Progress::Again => bar.inc_length(1),
    });
    bar.finish_and_clear();
    Ok(measured?)
}

pub fn bar(steps: u64, quiet: bool) -> ProgressBar {
    // indicatif draws nothing where stderr is no terminal.
    let target = if quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {eta} left  {msg}");
    bar.set_style(style.expect("the template is well-formed"));
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}

fn line(sample: &Sample) -> String {
    let of = format!("{} at {} tokens", sample.condition, sample.tokens);
    match (sample.labels.first(), sample.ttft_ms) {
        (None, Some(ttft)) => format!("{of}: {ttft:.1} ms"),
        (Some(Label::Late), _) => format!("{of}: void, the simulation ran late"),
        (Some(Label::Error), _) => {
            format!("{of}: failed: {}", sample.error.as_deref().unwrap_or_default())
        }
        _ => format!("{of}: void"),
    }
}

/// How well the simulation kept time, and what that did to the samples; nothing for a real GPU.
pub fn lateness(results: &Results) -> Option<String> {
    let late = results.lateness()?;
    let void = results.samples.iter().filter(|s| s.labels.contains(&Label::Late)).count();
    let voided = match void {
        0 => "No request was void for it".to_owned(),
        1 => "1 request was void for it".to_owned(),
        n => format!("{n} requests were void for it"),
    };
    Some(format!(
        "The simulated GPU keeps the wall clock's time: late by {:.2} ms (p99), {:.2} ms at worst. \
         {voided}:\nlate by more than {} ms, or {} ms more at the client than by the server's own \
         clock.",
        late.p99_ms,
        late.max_ms,
        late.limit_ms,
        results.plan.overhead_max.as_ms()
    ))
}

/// A duration for people: whole seconds, or minutes.
pub fn about(span: Span) -> String {
    match span.as_secs().round() as u64 {
        seconds if seconds < 100 => format!("{seconds} s"),
        seconds => format!("{:.0} min", seconds as f64 / 60.0),
    }
}

/// What each condition of a plan is, a line each.
pub fn legend(conditions: &[Condition]) -> String {
    conditions.iter().map(|c| format!("  {:<18}{}\n", c.name(), c.about())).collect()
}
