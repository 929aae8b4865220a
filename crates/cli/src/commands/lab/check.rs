//! `everwarm lab check`.

use super::{claims, device, short, shown_unit};
use crate::bench::bar;
use crate::output::{print, print_json};
use everwarm_lab::{Claims, Report, Verdict};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Holds a device against a claims file.
///
/// Exits with 0 when every claim could be checked or given a reason, whether it holds or not; a
/// claim that does not hold is a result, not a failure.
#[derive(clap::Args)]
pub(super) struct Args {
    /// The claims file, or a built-in one: m2 (the figures of the M2 study), in-flight (the helper
    /// that keeps command buffers ahead) [default: m2].
    #[arg(value_name = "CLAIMS.toml|NAME")]
    claims: Option<PathBuf>,
    /// The device, such as sim:m2 [default: the first real device, else sim:m2].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Only the claims whose id fits, such as 'queue.*'.
    #[arg(long, value_name = "GLOB")]
    only: Option<String>,
    /// Fail if a claim does not hold.
    #[arg(long)]
    strict: bool,
    /// Print a Markdown table.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Print JSON: {"device", "held", "total", "claims": [{"id", "expect", "measured", …}]}.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut claims = claims(args.claims.as_deref())?;
    if let Some(pattern) = &args.only {
        claims = claims.only(pattern);
        anyhow::ensure!(!claims.claims.is_empty(), "no claim's id fits `{pattern}`");
    }
    let bar = bar(0, args.json || args.markdown);
    let progress = |done: usize, all: usize, _: &str| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let report = everwarm_lab::check(&claims, &device(args.device), &progress)?;
    bar.finish_and_clear();
    match (args.json, args.markdown) {
        (true, _) => print_json(&report_json(&claims, &report))?,
        (_, true) => print(&report_markdown(&claims, &report))?,
        _ => print(&report_text(&claims, &report))?,
    }
    let failed = args.strict && report.held() < report.verdicts.len();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report_json(claims: &Claims, report: &Report) -> Value {
    let row = |(claim, verdict): (&everwarm_lab::Claim, &Verdict)| {
        let mut row = json!({
            "id": verdict.id,
            "expect": expect_json(&claim.expect),
            "measured": measured_json(verdict),
            "unit": verdict.unit,
            "held": verdict.held,
        });
        if let Some(reason) = &verdict.reason {
            row["reason"] = json!(reason);
        }
        row
    };
    let rows: Vec<_> = claims.claims.iter().zip(&report.verdicts).map(row).collect();
    json!({
        "device": report.device,
        "held": report.held(),
        "total": report.verdicts.len(),
        "claims": rows,
    })
}

/// A range as [low, high], else the value or the list; with its tolerance where it has one.
fn expect_json(expect: &everwarm_lab::Expect) -> Value {
    use everwarm_lab::Expect;
    match expect {
        Expect::Value { value, .. } => json!(value),
        Expect::Range { lo, hi } => json!([lo, hi]),
        Expect::List { values, .. } => json!(values),
    }
}

fn measured_json(verdict: &Verdict) -> Value {
    match verdict.measured.as_deref() {
        None => Value::Null,
        Some([one]) => json!(one),
        Some(several) => json!(several),
    }
}

fn report_markdown(claims: &Claims, report: &Report) -> String {
    let line = |(claim, verdict): (&everwarm_lab::Claim, &Verdict)| {
        let unit = shown_unit(&verdict.unit);
        let measured = match &verdict.measured {
            None => verdict.reason.clone().unwrap_or_else(|| "not measured".to_owned()),
            Some(values) => {
                let shown: Vec<_> = values.iter().map(|value| short(*value)).collect();
                format!("{} {unit}", shown.join(", "))
            }
        };
        let holds = if verdict.held { "yes" } else { "**no**" };
        let expected = format!("{} {unit}", claim.expect);
        format!(
            "| `{}` | {} | {} | {holds} |\n",
            claim.id,
            expected.trim_end(),
            measured.trim_end()
        )
    };
    let lines: String = claims.claims.iter().zip(&report.verdicts).map(line).collect();
    format!(
        "{} of {} claims hold on {}.\n\n| claim | expected | measured | holds |\n\
         | --- | --- | --- | --- |\n{lines}",
        report.held(),
        report.verdicts.len(),
        report.device
    )
}

fn report_text(claims: &Claims, report: &Report) -> String {
    let width = claims.claims.iter().map(|claim| claim.id.len()).max().unwrap_or(0);
    let line = |(claim, verdict): (&everwarm_lab::Claim, &Verdict)| {
        let mark = if verdict.held { "holds" } else { "FAILS" };
        let measured = match &verdict.measured {
            None => "not measured".to_owned(),
            Some(values) => {
                let shown: Vec<_> = values.iter().map(|value| short(*value)).collect();
                format!("{} {}", shown.join(", "), shown_unit(&verdict.unit))
            }
        };
        let reason = verdict.reason.as_ref().map(|reason| format!("       {reason}\n"));
        format!(
            "{mark}  {:width$}  {} (expected {})\n{}",
            claim.id,
            measured.trim_end(),
            claim.expect,
            reason.unwrap_or_default()
        )
    };
    let lines: String = claims.claims.iter().zip(&report.verdicts).map(line).collect();
    let (held, total) = (report.held(), report.verdicts.len());
    format!("{lines}\n{held} of {total} claims hold on {}\n", report.device)
}
