//! `everwarm demo`.

use crate::bench;
use crate::children::Child;
use crate::output::{print, write_whole};
use anyhow::{Context, bail};
use everwarm_report::{GENERATOR, page, picture, story};
use everwarm_ttft::{Condition, Config, Plan, Results, table};
use everwarm_units::Span;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The whole story on this machine: a simulated GPU, the proxy in front of it, and the first token
/// cold and warm.
///
/// It starts `everwarm sim-server`, `everwarm proxy` and `everwarm hold` as processes of their own
/// around one GPU that is simulated in real time, sends requests through the proxy, and times the
/// first token at the client: after a second of idle, right after GPU work, with a hold, with a
/// key-stroke hint 100 ms ahead, and with nothing but the request itself. It prints a table and
/// writes a page to look at and to share.
///
/// The exit status is 1 if this machine was too busy for a row to be called a number.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  everwarm demo                        a minute and a half, and everwarm-demo.html
  everwarm demo --full                 16 to 2048 tokens, two kinds of server: some minutes
  everwarm demo --chip m1 --json > m1.json
  everwarm demo --from m1.json -o m1.html --svg m1.svg")]
pub struct Args {
    /// Prompts of 16, 128, 512 and 2048 tokens, an MLX-like and a llama.cpp-like server, and a
    /// hold beside a busy GPU.
    #[arg(long)]
    full: bool,
    /// The chip to simulate: a built-in one (`everwarm devices` lists them) or a chip file.
    #[arg(long, value_name = "NAME|FILE", default_value = "m2")]
    chip: String,
    /// Where to write the page. A page of an earlier demo is replaced, any other file is not.
    #[arg(short, long, value_name = "FILE", default_value = "everwarm-demo.html")]
    output: PathBuf,
    /// Write the picture of the result here, too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Measure nothing: make page and picture from the JSON of an earlier demo.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["full", "chip"])]
    from: Option<PathBuf>,
    /// Seed of prompts, order and intervals.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print JSON instead of text: the rows, and every request behind them.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    // Found out before a minute of measuring, not after.
    ours_to_replace(&args.output, GENERATOR)?;
    if let Some(svg) = &args.svg {
        ours_to_replace(svg, "<svg")?;
    }
    let results = match &args.from {
        Some(file) => saved(file)?,
        None => measure(&args)?,
    };
    let text = results.to_string();
    let report = everwarm_report::Results::from_json(&text)?;
    write_whole(&args.output, page(&report).as_bytes(), true)?;
    if let Some(svg) = &args.svg {
        write_whole(svg, picture(&report).as_bytes(), true)?;
    }
    if args.json {
        print(&format!("{text}\n"))?;
    } else {
        print(&format!("Page: {}\n", args.output.display()))?;
    }
    let valid = report.rows.iter().all(|row| row.valid);
    if !valid {
        eprintln!(
            "everwarm: some rows are not valid; close what keeps this machine busy, then again"
        );
    }
    Ok(if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The runtimes and the plan of each.
fn plans(args: &Args) -> Vec<(&'static str, Plan)> {
    let all: Vec<Condition> = Condition::all().collect();
    let quick = Plan {
        rounds: vec![(16, 5), (128, 3)],
        conditions: all.iter().copied().filter(|c| *c != Condition::BusyHold).collect(),
        // Late enough for some repeats, early enough to end within a minute and a half.
        repeat_until: Span::s(70),
        seed: args.seed,
        ..Plan::default()
    };
    if !args.full {
        return vec![("mlx", quick)];
    }
    let full = Plan {
        rounds: vec![(16, 5), (128, 5), (512, 3), (2048, 3)],
        conditions: all,
        repeat_until: Span::MAX,
        ..quick
    };
    vec![("mlx", full.clone()), ("llamacpp", full)]
}

fn measure(args: &Args) -> anyhow::Result<Value> {
    let plans = plans(args);
    let quiet = args.json;
    if !quiet {
        introduce(&plans)?;
    }
    let (mut rows, mut runs) = (Vec::new(), Vec::new());
    let mut said = Vec::new();
    for (runtime, plan) in plans {
        let results = against(args, runtime, plan)?;
        let mut run = results.to_json();
        for mut row in run["rows"].take().as_array_mut().map(std::mem::take).unwrap_or_default() {
            row["runtime"] = runtime.into();
            rows.push(row);
        }
        run.as_object_mut().map(|run| run.remove("rows"));
        run["runtime"] = runtime.into();
        runs.push(run);
        said.push((runtime, results));
    }
    let valid = runs.iter().all(|run| run["valid"] == true);
    let whole = json!({
        "rows": rows,
        "valid": valid,
        "late": said.iter().filter_map(|(_, r)| r.lateness()).max_by(|a, b| a.p99_ms.total_cmp(&b.p99_ms)),
        "measured_at": "client",
        "command": command(args),
        "everwarm": env!("CARGO_PKG_VERSION"),
        "runs": runs,
    });
    if !quiet {
        tell(&whole, &said)?;
    }
    Ok(whole)
}

/// One bench: server, proxy and hold around one simulated GPU, all gone when it returns.
fn against(args: &Args, runtime: &str, plan: Plan) -> anyhow::Result<Results> {
    let device = match args.chip.contains(':') {
        true => args.chip.clone(),
        false => format!("sim:{}", args.chip),
    };
    let server = Child::start(&[
        "sim-server",
        "--device",
        &device,
        "--runtime",
        runtime,
        "--listen",
        "127.0.0.1:0",
        "--exit-with-parent",
        "--json",
    ])?;
    let shared = server.told("device")?;
    let proxy = Child::start(&[
        "proxy",
        "--upstream",
        server.told("url")?,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--device",
        shared,
        "--hold-for",
        "0 s",
        "--drain",
        "0 s",
        "--exit-with-parent",
        "--json",
    ])?;
    let config = Config {
        url: proxy.told("url")?.to_owned(),
        admin: Some(proxy.told("admin")?.to_owned()),
        device: Some(shared.to_owned()),
        hold: Some(bench::hold_command(shared)?),
        model: None,
        api_key: None,
        keep_alive: false,
        timeout: Span::s(60),
    };
    bench::measure(plan, config, args.json)
}

fn introduce(plans: &[(&str, Plan)]) -> anyhow::Result<()> {
    let steps: usize = plans.iter().map(|(_, plan)| plan.steps()).sum();
    let span: Span = plans.iter().map(|(_, plan)| expected(plan)).sum();
    print(&format!(
        "A GPU simulated in real time, a server on it, the proxy in front and a hold beside it, each \
         a process of its own.\n{steps} requests through the proxy, timed at the client; about {}.\n\n",
        bench::about(span)
    ))
}

/// About how long a plan takes: each request with its idle time, about 150 ms of prefill and
/// 3.5 ms more for every token (what a simulated M2 takes), and what starting takes.
fn expected(plan: &Plan) -> Span {
    let one = |(tokens, rounds): &(u32, u32)| {
        let each = plan.idle + Span::ms(150) + Span::us(3_500) * u64::from(*tokens);
        each * (u64::from(*rounds) * plan.conditions.len() as u64 + 1)
    };
    plan.rounds.iter().map(one).sum::<Span>() + Span::s(1)
}

fn tell(whole: &Value, said: &[(&str, Results)]) -> anyhow::Result<()> {
    let report = everwarm_report::Results::from_json(&whole.to_string())?;
    let story = story(&report);
    let mut text = format!("{}\n{}\n\n", story.headline, story.detail);
    for (runtime, results) in said {
        if said.len() > 1 {
            text += &format!("== {runtime}\n");
        }
        text += &format!("{}\n", table(&results.rows()));
        text.extend(bench::lateness(results).map(|late| late + "\n"));
    }
    text += "removed: (idle - c) / (idle - busy). lead: from the pre-warm to the prefill on the GPU. \
         GPU, CPU: energy of one\nidle second and the request. 95 %: bootstrap \
         intervals of the medians.\n\n";
    print(&text)
}

/// The command line that repeats this.
fn command(args: &Args) -> String {
    let mut words = vec!["everwarm demo".to_owned()];
    if args.full {
        words.push("--full".to_owned());
    }
    if args.chip != "m2" {
        words.push(format!("--chip {}", args.chip));
    }
    if args.seed != 0 {
        words.push(format!("--seed {}", args.seed));
    }
    words.join(" ")
}

fn saved(file: &Path) -> anyhow::Result<Value> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))
}

/// Refuses a file that stands where ours is to be written and was not written by us.
fn ours_to_replace(file: &Path, mark: &str) -> anyhow::Result<()> {
    if file.is_dir() {
        bail!("{} is a folder; expected a file to write", file.display());
    }
    let parent = file.parent().filter(|p| !p.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|p| !p.is_dir()) {
        bail!("can't write {}: there is no folder {}", file.display(), parent.display());
    }
    match std::fs::read(file) {
        Ok(bytes) if bytes.is_empty() => Ok(()),
        Ok(bytes) => {
            let head = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]).into_owned();
            let ours = head.contains(mark);
            if !ours {
                bail!(
                    "{} is there and not of an earlier demo; expected another -o",
                    file.display()
                );
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("can't write {}", file.display())),
    }
}
