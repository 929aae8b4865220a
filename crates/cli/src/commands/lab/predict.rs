//! `everwarm lab predict`.

use super::predict_tables::{Table, tables};
use crate::bench::bar;
use crate::output::{print, print_json};
use anyhow::Context;
use everwarm_lab::{changed_chip, predict, prediction_parts};
use std::process::ExitCode;
use std::sync::Mutex;

/// What the model says of chips: the ramp, the gap cliff, the penalty after idle, base p-states.
///
/// Everything is simulated in virtual time. For each chip: how long a loop and a deep queue need to
/// the top clock, how long a queue may stay empty, what idle times add to a small and a large prefill
/// of two runtimes, and what each base p-state would save and cost. A chip is as good as its values:
/// `everwarm devices --chip NAME` tells which are documented and which are guesses.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm lab predict m1-max m2-ultra
  everwarm lab predict mine.toml --json
  everwarm lab predict m1 --set controller.boost_step_pct=50 --set controller.sample_period='9 ms'
  everwarm lab predict --markdown      # the tables of docs/predictions.md")]
pub(super) struct Args {
    /// Chips: built-in ones (m2) or chip files (FILE.toml) [default: all built-in ones].
    #[arg(value_name = "CHIP")]
    chips: Vec<String>,
    /// Another value for a key of the chip file (docs/chips.md); each chip is then predicted both as
    /// it is and `changed`. Nothing else is scaled by it.
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, String)>,
    /// Print JSON: [{"chip", "name", "top", "base", "ramps", "cliffs", "penalties", "bases"}].
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown tables.
    #[arg(long)]
    markdown: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let names = match args.chips.is_empty() {
        true => everwarm_dvfs::Chip::names().into_iter().map(str::to_owned).collect(),
        false => args.chips,
    };
    let mut chips = Vec::new();
    for name in &names {
        let id = if name.contains(':') { name.clone() } else { format!("sim:{name}") };
        chips.push(everwarm_gpu::backend::simulated_chip(&id)?);
        if !args.set.is_empty() {
            let mut chip = changed_chip(&id, &args.set).map_err(anyhow::Error::msg)?;
            chip.id += " changed";
            chips.push(chip);
        }
    }
    let bar = bar(chips.iter().map(prediction_parts).sum::<usize>() as u64, args.json);
    let all = in_parallel(&chips, |chip| {
        bar.set_message(chip.id.clone());
        predict(chip, &mut || bar.inc(1)).with_context(|| format!("chip {}", chip.id))
    });
    bar.finish_and_clear();
    let all = all.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    match (args.json, args.markdown) {
        (true, _) => print_json(&all)?,
        (_, true) => print(&tables(&all).iter().map(Table::markdown).collect::<String>())?,
        _ => print(&tables(&all).iter().map(Table::text).collect::<String>())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err("expected KEY=VALUE, such as controller.boost_step_pct=50".to_owned()),
    }
}

/// Does `work` for each item, on as many threads as there are cores; results in the items' order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(items.len());
    let next = Mutex::new(0..items.len());
    let done = Mutex::new(Vec::with_capacity(items.len()));
    let take = || next.lock().unwrap_or_else(|e| e.into_inner()).next();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(n) = take() {
                    let result = work(&items[n]);
                    done.lock().unwrap_or_else(|e| e.into_inner()).push((n, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(n, _)| *n);
    done.into_iter().map(|(_, result)| result).collect()
}
