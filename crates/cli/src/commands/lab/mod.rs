//! `everwarm lab`: one file a subcommand, and what they share.

mod ablate;
mod check;
mod figures;
mod fit;
mod list;
mod predict;
mod predict_tables;
mod run;
mod run_file;
mod show;

use super::device;
use anyhow::Context;
use everwarm_lab::Claims;
use std::path::Path;
use std::process::ExitCode;

/// Experiments as scenario files, on any device.
///
/// A scenario says what is submitted to a GPU, when and by whom (docs/scenarios.md); a claims file
/// says what should be measured (docs/claims.md). Both are text: write your own.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    List(list::Args),
    Run(run::Args),
    Show(show::Args),
    Check(check::Args),
    Ablate(ablate::Args),
    Figures(figures::Args),
    Predict(predict::Args),
    Fit(fit::Args),
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::List(args) => list::run(args),
        Command::Run(args) => run::run(args),
        Command::Show(args) => show::run(args),
        Command::Check(args) => check::run(args),
        Command::Ablate(args) => ablate::run(args),
        Command::Figures(args) => figures::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Fit(args) => fit::run(args),
    }
}

/// The text of a file that a person wrote.
fn read(path: &Path, what: &str) -> anyhow::Result<String> {
    let shown = path.display();
    let bytes =
        std::fs::read(path).with_context(|| format!("the {what} file `{shown}` can't be read"))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow::anyhow!("{shown}:{line}: the {what} file is not UTF-8 from here on")
    })
}

fn claims(file: Option<&Path>) -> anyhow::Result<Claims> {
    let Some(file) = file else { return Ok(Claims::built_in()) };
    if let Some(claims) = file.to_str().and_then(Claims::named) {
        return Ok(claims);
    }
    let text = read(file, "claims")?;
    let folder = file.parent().unwrap_or(Path::new("."));
    Ok(Claims::from_toml(&file.display().to_string(), &text, folder)?)
}

/// A pure number has no unit in text.
fn shown_unit(unit: &str) -> &str {
    if unit == "1" { "" } else { unit }
}

/// Four significant digits.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        a if a == 0.0 || a >= 1000.0 => 0,
        a => (3 - a.log10().floor() as i32).clamp(0, 9) as usize,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}
