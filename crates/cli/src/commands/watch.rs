//! `everwarm watch`.

use super::hold::span;
use crate::output::{print, print_on};
use crate::stop::Stop;
use everwarm_gpu::{Counters, Monotonic};
use everwarm_units::{Celsius, Hertz, Joules, Span, Watts};
use std::process::ExitCode;

/// Shows what the machine tells of a GPU without using it: clock, power, energy, heat.
///
/// No handle on the device is opened, so that it neither wakes nor stays awake because somebody looks:
/// on some GPUs an open context alone costs more than idling without one. What the machine does not
/// tell is shown as `-`. The last line, after `--for` or Ctrl-C, is the mean power by the energy counter,
/// where there is one.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm watch cuda:0
  everwarm watch vulkan:0 --every 100ms --for 20s --json > idle.jsonl")]
pub struct Args {
    /// The device (`everwarm devices` lists them).
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Time between two readings.
    #[arg(long, value_name = "SPAN", default_value = "1s", value_parser = span)]
    every: Span,
    /// How long. Default: until it is stopped.
    #[arg(long = "for", value_name = "SPAN", value_parser = span)]
    span: Option<Span>,
    /// Print a telemetry record a line (docs/record.md) instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!args.every.is_zero(), "--every 0 s: expected some time between two readings");
    let mut telemetry = everwarm_gpu::watch(&args.device)?;
    if !args.json {
        print(HEAD)?;
    }
    let stop = Stop::listen()?;
    let began = Monotonic::now();
    let mut readings: Vec<Counters> = Vec::new();
    let mut due = Span::ZERO;
    while args.span.is_none_or(|span| due <= span) {
        stop.sleep(due.saturating_sub(Monotonic::now().since(began)));
        let now = telemetry.read()?;
        let text = match args.json {
            true => serde_json::to_string(&everwarm_lab::telemetry(&now))? + "\n",
            false => line(&now, readings.last()),
        };
        if !print_on(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
        // On a grid from the beginning, so that late wakes don't add up; what was missed is left out.
        let passed = Monotonic::now().since(began).max(due);
        due = args.every * (passed.as_nanos() / args.every.as_nanos() + 1);
        // The first and the last are all that the mean needs.
        readings.truncate(1);
        readings.push(now);
        if stop.asked() {
            break;
        }
    }
    if let (false, [first, .., last]) = (args.json, &readings[..]) {
        print(&summary(first, last))?;
    }
    Ok(ExitCode::SUCCESS)
}

const HEAD: &str =
    "       time      clock     memory  p-state      power      energy  heat  busy  limited by\n";

fn line(now: &Counters, before: Option<&Counters>) -> String {
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mhz = |clock: Option<Hertz>| or(clock.map(|clock| format!("{:.0} MHz", clock.as_mhz())));
    let power = now.power.or_else(|| before.and_then(|before| mean_power(before, now)));
    let limits = now.limited_by.as_ref().map(|all| match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.join(", "),
    });
    format!(
        "{:>9.1} s {:>10} {:>10} {:>8} {:>10} {:>11} {:>5} {:>5}  {}\n",
        now.at.as_ms() / 1000.0,
        mhz(now.clock),
        mhz(now.memory_clock),
        or(now.pstate.map(|pstate| pstate.to_string())),
        or(power.map(|power: Watts| format!("{:.2} W", power.as_w()))),
        or(now.gpu_energy.map(|energy: Joules| format!("{:.2} J", energy.as_j()))),
        or(now.temperature.map(|heat: Celsius| format!("{:.0} C", heat.as_c()))),
        or(now.busy.map(|busy| format!("{:.0} %", 100.0 * busy))),
        or(limits),
    )
}

/// By the energy counter, over the time between two readings.
fn mean_power(before: &Counters, now: &Counters) -> Option<Watts> {
    let passed = now.at.since(before.at);
    let energy = now.gpu_energy?.as_j() - before.gpu_energy?.as_j();
    (!passed.is_zero()).then(|| Joules::j(energy) / passed)
}

fn summary(first: &Counters, last: &Counters) -> String {
    let passed = last.at.since(first.at).as_secs();
    match mean_power(first, last) {
        Some(power) => {
            format!("\n{:.2} W over {passed:.1} s by the energy counter\n", power.as_w())
        }
        None => format!("\n{passed:.1} s; the machine has no energy counter of this device\n"),
    }
}
