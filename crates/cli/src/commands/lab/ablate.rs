//! `everwarm lab ablate`.

use super::{claims, read, short};
use crate::bench::bar;
use crate::output::{print, print_json};
use everwarm_lab::{Ablation, Ablations, Claim, Claims, Outcome, Report, Side, Subject, Swing};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Shows what each term of the simulator's model is for.
///
/// Takes one term away at a time (an ablation: values of the chip or a runtime that neutralise it),
/// checks the claims again, and tells which break. With --sensitivity it moves each value by a share
/// both ways instead, and tells which values the claims pin. docs/model.md explains the terms.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm lab ablate
  everwarm lab ablate --only 'boost*'
  everwarm lab ablate --sensitivity 0.1
  everwarm lab ablate mine.toml --device sim:my-chip.toml --ablations my-terms.toml

A file of ablations:
  [[ablation]]
  name = \"no boost\"
  why = \"only the regulator moves the clock\"
  chip = { \"controller.boost_step_pct\" = 0 }
  runtime.mlx = { \"prefill.in_flight\" = 8 }")]
pub(super) struct Args {
    /// The claims file [default: the figures of the M2 study].
    #[arg(value_name = "CLAIMS.toml")]
    claims: Option<PathBuf>,
    /// The simulated chip: sim:m2, or sim:FILE.toml.
    #[arg(long, value_name = "DEVICE", default_value = "sim:m2")]
    device: String,
    /// The terms [default: those of the built-in model].
    #[arg(long, value_name = "ABLATIONS.toml")]
    ablations: Option<PathBuf>,
    /// Only the ablations, or with --sensitivity the keys, that fit, such as 'boost*'.
    #[arg(long, value_name = "GLOB")]
    only: Option<String>,
    /// Move each value by this share both ways instead of taking terms away.
    #[arg(long, value_name = "SHARE", num_args = 0..=1, default_missing_value = "0.1", value_parser = share)]
    sensitivity: Option<f64>,
    /// Print a Markdown table.
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
    let chip = everwarm_gpu::backend::simulated_chip(&args.device)?;
    let subject = Subject::new(&chip);
    let bar = bar(0, args.json);
    let mut progress = |done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let study = match args.sensitivity {
        None => {
            let terms = terms(args.ablations.as_deref(), args.only.as_deref())?;
            let (whole, done) = everwarm_lab::ablate(&claims, &subject, &terms, &mut progress)?;
            let rows = terms.ablations.iter().zip(&done).map(|(term, done)| Row::term(term, done));
            Study::new(&claims, whole, ["without", "breaks", "gains"], rows.collect())
        }
        Some(share) => {
            let glob = args.only.as_deref().unwrap_or("*");
            let wanted = |key: &str| everwarm_lab::fits(glob, key);
            let (whole, swings) =
                everwarm_lab::sensitivity(&claims, &subject, share, &wanted, &mut progress);
            anyhow::ensure!(!swings.is_empty(), "no value's key fits `{glob}`");
            let rows = swings.iter().map(Row::swing).collect();
            Study::new(&claims, whole, ["value", "less", "more"], rows)
        }
    };
    bar.finish_and_clear();
    match (args.json, args.markdown) {
        (true, _) => print_json(&study.json())?,
        (_, true) => print(&study.markdown())?,
        _ => print(&study.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn terms(file: Option<&Path>, only: Option<&str>) -> anyhow::Result<Ablations> {
    let mut terms = match file {
        None => Ablations::built_in(),
        Some(path) => {
            let text = read(path, "ablations")?;
            Ablations::from_toml(&path.display().to_string(), &text)?
        }
    };
    if let Some(glob) = only {
        terms.ablations.retain(|one| everwarm_lab::fits(glob, &one.name));
        anyhow::ensure!(!terms.ablations.is_empty(), "no ablation's name fits `{glob}`");
    }
    Ok(terms)
}

/// One variant, or the two of a value: in words for a table, and as it is.
struct Row {
    cells: [String; 3],
    json: Value,
}

impl Row {
    fn term(term: &Ablation, outcome: &Outcome) -> Row {
        let gained = match outcome.gained.is_empty() {
            true => "-".to_owned(),
            false => outcome.gained.join(", "),
        };
        Row {
            cells: [format!("{}: {}", term.name, term.why), broken(outcome), gained],
            json: json!({
                "name": term.name,
                "why": term.why,
                "broken": broken_json(outcome),
                "gained": outcome.gained,
            }),
        }
    }

    fn swing(swing: &Swing) -> Row {
        let side = match &swing.side {
            Side::Chip => String::new(),
            Side::Runtime(name) => format!("{name}: "),
        };
        let way = |way: &Option<(toml::Value, Outcome)>| match way {
            None => "not possible".to_owned(),
            Some((_, outcome)) => broken(outcome),
        };
        let way_json = |way: &Option<(toml::Value, Outcome)>| {
            way.as_ref().map(|(value, outcome)| {
                json!({ "value": value, "broken": broken_json(outcome), "gained": outcome.gained })
            })
        };
        let [less, more] = &swing.ways;
        Row {
            cells: [format!("{side}{} = {}", swing.key, plain(&swing.value)), way(less), way(more)],
            json: json!({
                "side": side.trim_end_matches(": "),
                "key": swing.key,
                "value": swing.value,
                "pinned": swing.is_pinned(),
                "less": way_json(less),
                "more": way_json(more),
            }),
        }
    }
}

/// "ramp.sag, decay.100ms (2.4)": how far beyond the edge, where that can be told.
fn broken(outcome: &Outcome) -> String {
    let one = |(id, strain): &(String, f64)| match strain.is_finite() {
        true => format!("{id} ({})", short(*strain)),
        false => id.clone(),
    };
    match outcome.broken.is_empty() {
        true => "-".to_owned(),
        false => outcome.broken.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

fn broken_json(outcome: &Outcome) -> Vec<Value> {
    let one = |(id, strain): &(String, f64)| json!({ "id": id, "strain": strain });
    outcome.broken.iter().map(one).collect()
}

fn plain(value: &toml::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What is printed.
struct Study {
    device: String,
    held: usize,
    total: usize,
    /// Claims that hold, but not by much.
    narrow: Vec<String>,
    heads: [&'static str; 3],
    rows: Vec<Row>,
}

impl Study {
    fn new(claims: &Claims, whole: Report, heads: [&'static str; 3], rows: Vec<Row>) -> Study {
        let both = claims.claims.iter().zip(&whole.verdicts);
        let is_narrow = |claim: &Claim, verdict| (0.9..=1.0).contains(&claim.strain(verdict));
        let narrow = both.filter(|(claim, verdict)| verdict.held && is_narrow(claim, verdict));
        Study {
            narrow: narrow.map(|(claim, _)| claim.id.clone()).collect(),
            held: whole.held(),
            total: whole.verdicts.len(),
            device: whole.device,
            heads,
            rows,
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let [what, first, second] = &row.cells;
            let [_, head, other] = self.heads;
            let _ = writeln!(text, "{what}\n    {head}: {first}\n    {other}: {second}");
        }
        format!("{text}\n{}\n", self.summary())
    }

    fn markdown(&self) -> String {
        let line = |cells: [&str; 3]| format!("| {} |\n", cells.join(" | "));
        let rows = self.rows.iter().map(|row| line(row.cells.each_ref().map(String::as_str)));
        let rows: String = rows.collect();
        format!("{}| --- | --- | --- |\n{rows}\n{}\n", line(self.heads), self.summary())
    }

    fn summary(&self) -> String {
        let narrow = match self.narrow.is_empty() {
            true => String::new(),
            false => format!(" Narrow, within a tenth of the edge: {}.", self.narrow.join(", ")),
        };
        format!("{} of {} claims hold on {}.{narrow}", self.held, self.total, self.device)
    }

    fn json(&self) -> Value {
        json!({
            "device": self.device,
            "held": self.held,
            "total": self.total,
            "narrow": self.narrow,
            "rows": self.rows.iter().map(|row| &row.json).collect::<Vec<_>>(),
        })
    }
}
