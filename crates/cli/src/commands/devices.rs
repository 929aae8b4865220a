//! `everwarm devices`.

use crate::output::{print, print_json};
use everwarm_dvfs::{Traced, Value};
use everwarm_gpu::backend::Found;
use serde_json::json;
use std::process::ExitCode;

/// Lists the devices found, and why others were not; or shows what is known of a simulated one.
///
/// With --chip, every value of a chip is printed with where it comes from: what its file says of it
/// (documented, study, fitted, guess), and whether it was inherited or scaled from a chip that it
/// is like. docs/chips.md has the keys and the rules.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm devices
  everwarm devices --chip m1-max
  everwarm devices --chip m2-pro --toml > mine.toml      # to start a chip of one's own
  everwarm devices --chip mine.toml                      # is it right?")]
pub struct Args {
    /// Show this chip: a built-in one (m2), a chip file (FILE.toml), or the one that this Mac's
    /// device tree makes (metal:0).
    #[arg(long, value_name = "NAME|FILE|metal:0")]
    chip: Option<String>,
    /// Print it as a chip file that stands by itself.
    #[arg(long, requires = "chip")]
    toml: bool,
    /// Print JSON instead of text: [{"id", "usable", "default", "name" or "why", "facts"}]; with --chip
    /// {"id", "name", "values": [{"key", "value", "origins": [{"how", "file", "line", "note"}]}]}.
    #[arg(long, conflicts_with = "toml")]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.chip {
        Some(chip) => show(chip, &args)?,
        None => list(args.json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let default = everwarm_gpu::default_device();
    let found = everwarm_gpu::devices();
    if as_json {
        let row = |found: &Found| {
            let (key, text) = match &found.state {
                Ok(name) => ("name", name),
                Err(why) => ("why", why),
            };
            let facts: serde_json::Map<_, _> =
                found.facts.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
            json!({
                "id": found.id,
                "usable": found.state.is_ok(),
                "default": found.id == default,
                key: text,
                "facts": facts,
            })
        };
        return print_json(&found.iter().map(row).collect::<Vec<_>>());
    }
    let width = found.iter().map(|found| found.id.len()).max().unwrap_or(0);
    let facts = |found: &Found| {
        let facts = found.facts.iter().map(|(name, value)| format!(", {name} {value}"));
        facts.collect::<String>()
    };
    let line = |found: &Found| match &found.state {
        Ok(name) => {
            let default = if found.id == default { " (default)" } else { "" };
            format!("{:width$}  {name}{}{default}\n", found.id, facts(found))
        }
        Err(why) => format!("{:width$}  not usable: {why}\n", found.id),
    };
    let lines: String = found.iter().map(line).collect();
    let machine = everwarm_gpu::Environment::read().facts();
    let machine: Vec<String> = machine.iter().map(|(what, v)| format!("{what} {v}")).collect();
    let machine = machine.join(", ");
    let also = "Also: sim:FILE.toml (a chip file), sim:SOCKET (shared by `everwarm sim-server`).";
    print(&format!("{lines}\nThis machine: {machine}.\n{also}\n"))
}

fn show(chip: &str, args: &Args) -> anyhow::Result<()> {
    let kind = chip.split_once(':').map(|(kind, _)| kind);
    let whole = everwarm_gpu::backend::TABLE.iter().any(|entry| kind == Some(entry.prefix));
    let id = if whole { chip.to_owned() } else { format!("sim:{chip}") };
    let traced = everwarm_gpu::backend::traced_chip(&id)?;
    match (args.toml, args.json) {
        (true, _) => print(&traced.to_toml()),
        (_, true) => print_json(&chip_json(&traced)),
        _ => print(&chip_text(&traced)),
    }
}

fn chip_json(traced: &Traced) -> serde_json::Value {
    let value = |value: &Value| {
        let origins = value.origins.iter().map(|origin| {
            json!({
                "how": origin.how.word(),
                "file": origin.file,
                "line": origin.line,
                "note": origin.note,
            })
        });
        json!({
            "key": value.path.join("."),
            "value": value.text,
            "origins": origins.collect::<Vec<_>>(),
        })
    };
    json!({
        "id": traced.chip.id,
        "name": traced.chip.name,
        "values": traced.values.iter().map(value).collect::<Vec<_>>(),
    })
}

/// Every value on a line: key, value, origin; the widest values hang out.
fn chip_text(traced: &Traced) -> String {
    const VALUE_WIDTH: usize = 28;
    let key = |value: &Value| value.path.join(".");
    let width = traced.values.iter().map(|value| key(value).len()).max().unwrap_or(0);
    let line = |value: &Value| {
        format!("{:width$}  {:VALUE_WIDTH$}  {}\n", key(value), value.text, value.origin())
    };
    traced.values.iter().map(line).collect()
}
