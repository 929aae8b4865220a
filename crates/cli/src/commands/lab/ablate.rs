//! `everwarm lab ablate`: arguments, and which table is printed how.

mod moved;
mod terms;

use super::{claims, read};
use crate::bench::bar;
use crate::output::{print, print_json};
use everwarm_lab::Ablations;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows what each term of the simulator's model is for.
///
/// Takes one term away at a time (an ablation: values of the chip or a runtime that neutralise it),
/// checks the claims again, and tells which break. With --sensitivity it moves each number by a
/// share both ways instead, and tells which of them the claims pin. docs/model.md explains the terms.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm lab ablate
  everwarm lab ablate --only 'boost*'
  everwarm lab ablate --sensitivity 0.1
  everwarm lab ablate --sensitivity --only 'wake.*'
  everwarm lab ablate mine.toml --device sim:my-chip.toml --ablations my-terms.toml

A file of ablations:
  [[ablation]]
  name = \"no boost\"
  why = \"only the regulator moves the clock\"
  chip = { \"controller.boost_step_pct\" = 0, \"wake.start.0.latency\" = \"0.15 ms\" }
  runtime.mlx = { \"prefill.in_flight\" = 8 }")]
pub(super) struct Args {
    /// The claims file [default: the figures of the M2 study].
    #[arg(value_name = "CLAIMS.toml")]
    claims: Option<PathBuf>,
    /// The simulated chip: sim:m2, or sim:FILE.toml.
    #[arg(long, value_name = "DEVICE", default_value = "sim:m2")]
    device: String,
    /// The terms [default: those of the built-in model].
    #[arg(long, value_name = "ABLATIONS.toml", conflicts_with = "sensitivity")]
    ablations: Option<PathBuf>,
    /// Only the ablations, or with --sensitivity the keys, that fit, such as 'boost*'.
    #[arg(long, value_name = "GLOB")]
    only: Option<String>,
    /// Move each number by this share both ways instead of taking terms away.
    #[arg(long, value_name = "SHARE", num_args = 0..=1, default_missing_value = "0.1", value_parser = share)]
    sensitivity: Option<f64>,
    /// Print Markdown.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number such as 0.1".to_owned())?;
    match share > 0.0 && share < 1.0 {
        true => Ok(share),
        false => Err(format!("expected a share between 0 and 1, such as 0.1; {share} is not")),
    }
}

/// Runs the command.
pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let claims = claims(args.claims.as_deref())?;
    let device = &args.device;
    let bar = bar(0, args.json || args.markdown);
    let progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let (text, markdown, json): (String, String, Value) = match args.sensitivity {
        None => {
            let ablations = ablations(args.ablations.as_deref(), args.only.as_deref())?;
            let table = everwarm_lab::ablate(&claims, &ablations, device, &progress)?;
            let shown = terms::Shown { claims: &claims, ablations: &ablations, table: &table };
            (shown.text(), shown.markdown(), shown.json())
        }
        Some(share) => {
            let glob = args.only.as_deref().unwrap_or("*");
            let found = everwarm_lab::sensitivity(&claims, device, share, glob, &progress)?;
            anyhow::ensure!(!found.parameters.is_empty(), "no number's key fits `{glob}`");
            (moved::text(&found), moved::markdown(&found), moved::json(&found))
        }
    };
    bar.finish_and_clear();
    match (args.json, args.markdown) {
        (true, _) => print_json(&json)?,
        (_, true) => print(&markdown)?,
        _ => print(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn ablations(file: Option<&Path>, only: Option<&str>) -> anyhow::Result<Ablations> {
    let mut ablations = match file {
        None => Ablations::built_in(),
        Some(path) => {
            let text = read(path, "ablations")?;
            Ablations::from_toml(&path.display().to_string(), &text)?
        }
    };
    if let Some(glob) = only {
        let names: Vec<_> = ablations.ablations.iter().map(|one| one.name.clone()).collect();
        ablations = ablations.only(glob);
        let known = names.join(", ");
        anyhow::ensure!(
            !ablations.ablations.is_empty(),
            "no ablation's name fits `{glob}`; there are {known}"
        );
    }
    Ok(ablations)
}

/// `text` in lines of at most 110 characters, each after the first indented; words between
/// backticks stay whole.
fn wrapped(text: &str, indent: usize) -> String {
    const WIDTH: usize = 110;
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut() {
            Some(open) if open.matches('`').count() % 2 == 1 => *open += &format!(" {word}"),
            _ => words.push(word.to_owned()),
        }
    }
    let mut lines = vec![String::new()];
    for word in words {
        let line = lines.last_mut().expect("there is a line");
        let length = line.chars().count() + 1 + word.chars().count();
        match line.is_empty() {
            true => *line = word,
            false if length > WIDTH => lines.push(format!("{}{word}", " ".repeat(indent))),
            false => *line += &format!(" {word}"),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn long_lines_are_wrapped_between_words() {
        let text = format!("{} `a b` end", "x".repeat(105));
        assert_eq!(wrapped(&text, 2), format!("{}\n  `a b` end\n", "x".repeat(105)));
        assert_eq!(wrapped("short", 2), "short\n");
    }
}
