//! How well `lab fit` recovers chips that nobody has seen, from runs that an instrument with faults
//! recorded, as Markdown.
//!
//! `cargo run --release -p everwarm-lab --example 01-fit-proof -- [CHIPS] [FIRST SEED] [BUDGET] [JOBS]`;
//! a budget of 0 reads off only. It needs no files. One chip a thread; the result does not depend on
//! how many there are.

#[path = "../tests/proof/mod.rs"]
mod proof;

use everwarm_dvfs::{Chip, Traced};
use everwarm_lab::fit::{Fit, Options, Parameter, fit, predicts, read_off};
use everwarm_units::Span;
use proof::{Errors, errors, median, random_chip, record};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// One chip.
struct Case {
    chip: Chip,
    errors: Errors,
    fitted: Option<Fit>,
    /// How well the chip itself predicts what is kept back.
    itself: (f64, f64),
}

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let number = |n: usize, otherwise: u64| args.get(n).copied().unwrap_or(otherwise);
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let (chips, first, budget) = (number(0, 20), number(1, 1), number(2, 0));
    let cases = cases(first, chips, budget as usize, number(3, cores).max(1));
    print!("{}", table(&cases));
    if budget > 0 {
        print!("\n{}", parameters(&cases));
    }
}

/// All chips, on so many threads, in the order of their seeds.
fn cases(first: u64, chips: u64, budget: usize, jobs: u64) -> Vec<Case> {
    let (next, done) = (AtomicU64::new(first), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(chips) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + chips {
                        return;
                    }
                    let case = case(seed, budget);
                    let mut done = done.lock().expect("no thread panics while it holds this");
                    done.insert(seed, case);
                    eprintln!("{} of {chips} chips", done.len());
                }
            });
        }
    });
    done.into_inner().expect("all threads have ended").into_values().collect()
}

fn case(seed: u64, budget: usize) -> Case {
    let chip = random_chip(seed);
    let runs = record(&chip, seed);
    let (found, _) = read_off(&runs).expect("the probes are of one device");
    let fitted = (budget > 0).then(|| {
        let default = Traced::built_in("m2").expect("a built-in chip");
        let top_clock = Some(chip.clock(chip.top()).as_mhz());
        let options = Options { top_clock, default, budget, threads: 1 };
        fit(&runs, &options, &mut |_, _| {}).expect("the probes suffice")
    });
    let itself = predicts(&runs, &chip).expect("the probes are of one device");
    Case { errors: errors(&chip, &found), chip, fitted, itself }
}

fn table(cases: &[Case]) -> String {
    let searched = cases.iter().any(|case| case.fitted.is_some());
    let mut out = "| chip | clocks seen | clocks | idle-off | decay | gap cliff | ramp | told, not told, false |".to_owned();
    if searched {
        out += " kept back, fitted | before | by the chip itself |";
    }
    out += &format!("\n|{}\n", " --- |".repeat(if searched { 11 } else { 8 }));
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); 5];
    for case in cases {
        let e = &case.errors;
        let found: usize = e.kinds.iter().skip(1).map(|(_, values)| values.len()).sum();
        out += &format!("| {} | {} of {} |", case.chip.id, e.seen.0, e.seen.1);
        for ((_, values), all) in e.kinds.iter().zip(&mut all) {
            all.push(median(values));
            out += &format!(" {} |", percent(median(values)));
        }
        let wrong = e.false_clocks + e.invented.len();
        out += &format!(" {found}, {}, {wrong} |", e.missed.len());
        if let Some(kept) = case.fitted.as_ref().and_then(|f| f.kept_back) {
            out +=
                &format!(" {} | {} | {} |", two(kept.fitted), two(kept.default), two(case.itself));
        }
        out.push('\n');
    }
    let medians: Vec<String> = all.iter().map(|kind| percent(median(&finite(kind)))).collect();
    out += &format!("| median | | {} | |", medians.join(" | "));
    if searched {
        let kept = || cases.iter().filter_map(|case| case.fitted.as_ref()?.kept_back);
        let middle = |all: Vec<(f64, f64)>| {
            let of =
                |part: fn(&(f64, f64)) -> f64| median(&all.iter().map(part).collect::<Vec<_>>());
            two((of(|v| v.0), of(|v| v.1)))
        };
        let fitted = middle(kept().map(|k| k.fitted).collect());
        let before = middle(kept().map(|k| k.default).collect());
        let itself = middle(cases.iter().map(|c| c.itself).collect());
        out += &format!(" {fitted} | {before} | {itself} |");
    }
    out + "\n"
}

/// How often each parameter is known, and whether it is what it should be.
fn parameters(cases: &[Case]) -> String {
    let mut out = "| parameter | identified | of these within the interval | off, median | interval, median |\n\
                   | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let mut sums = (0, 0, 0);
    let fits: Vec<(&Chip, &Fit)> =
        cases.iter().filter_map(|case| Some((&case.chip, case.fitted.as_ref()?))).collect();
    let Some((_, first)) = fits.first() else { return out };
    for key in first.parameters.iter().map(|p| p.key.as_str()) {
        let own = fits.iter().filter_map(|(chip, fit)| {
            let parameter = fit.parameters.iter().find(|p| p.key == key)?;
            Some((truth(chip, parameter), parameter))
        });
        let own: Vec<(f64, &Parameter)> = own.collect();
        let known = own.iter().filter_map(|(is, p)| Some((*is, p.interval?, number(&p.value, p))));
        let known: Vec<_> = known.collect();
        let within = known.iter().filter(|(is, (lo, hi), _)| lo <= is && is <= hi).count();
        let off: Vec<f64> = known.iter().map(|(is, _, told)| (told / is - 1.0).abs()).collect();
        let wide: Vec<f64> =
            known.iter().map(|(_, (lo, hi), told)| (hi - lo) / told / 2.0).collect();
        sums = (sums.0 + own.len(), sums.1 + known.len(), sums.2 + within);
        out += &format!(
            "| {key} | {} of {} | {within} | {} | ± {} |\n",
            known.len(),
            own.len(),
            percent(median(&off)),
            percent(median(&wide)),
        );
    }
    out + &format!("| all | {} of {} | {} | | |\n", sums.1, sums.0, sums.2)
}

/// The chip's own value, in the parameter's unit.
fn truth(chip: &Chip, parameter: &Parameter) -> f64 {
    let all = toml::Value::try_from(chip).expect("a chip can be written");
    let value = parameter.key.split('.').try_fold(&all, |value, key| value.get(key));
    number(&value.expect("a key of every chip").to_string(), parameter)
}

/// A value as it stands in a file.
fn number(shown: &str, parameter: &Parameter) -> f64 {
    let shown = shown.trim_matches('"');
    let span = || shown.parse::<Span>().map_or(f64::NAN, |span| span.as_ms());
    match parameter.unit {
        "" => shown.parse().unwrap_or(f64::NAN),
        "s" => span() / 1e3,
        _ => span(),
    }
}

fn finite(kind: &[f64]) -> Vec<f64> {
    kind.iter().copied().filter(|v| v.is_finite()).collect()
}

fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", 100.0 * share) } else { "-".to_owned() }
}

fn two((median, p90): (f64, f64)) -> String {
    format!("{}, {}", percent(median), percent(p90))
}
