//! How well `lab fit` recovers chips that nobody has seen, from noisy runs, as a Markdown table.
//!
//! `cargo run --release -p everwarm-lab --example 01-fit-proof -- [CHIPS] [FIRST SEED] [BUDGET]`;
//! a budget of 0 reads off only.

#[path = "../tests/proof/mod.rs"]
mod proof;

use everwarm_dvfs::Traced;
use everwarm_lab::fit::{Fit, Options, fit, read_off};
use proof::{errors, median, random_chip, record};

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let number = |n: usize, otherwise: u64| args.get(n).copied().unwrap_or(otherwise);
    let (chips, first, budget) = (number(0, 20), number(1, 1), number(2, 0) as usize);
    println!(
        "| chip | states seen | clocks | idle-off | decay | gap cliff | ramp | other findings | \
         identified | kept back: median, p90 | before the search |"
    );
    println!("|{}", " --- |".repeat(11));
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); 5];
    for seed in first..first + chips {
        println!("{}", row(seed, budget, &mut all));
    }
    let medians: Vec<String> = all.iter().map(|kind| percent(median(&finite(kind)))).collect();
    println!("| median | | {} | | | | |", medians.join(" | "));
}

fn finite(kind: &[f64]) -> Vec<f64> {
    kind.iter().copied().filter(|v| v.is_finite()).collect()
}

fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", 100.0 * share) } else { "-".to_owned() }
}

fn row(seed: u64, budget: usize, all: &mut [Vec<f64>]) -> String {
    let chip = random_chip(seed);
    let runs = record(&chip, seed);
    let (found, _) = read_off(&runs).expect("the probes are of one device");
    let errors = errors(&chip, &found);
    let seen = format!("{} of {}, {} false", errors.seen.0, errors.seen.1, errors.false_clocks);
    let mut line = format!("| {} | {seen} |", chip.id);
    for ((_, values), all) in errors.kinds.iter().zip(all) {
        all.push(median(values));
        line += &format!(" {} |", percent(median(values)));
    }
    line += &format!(" {} missed, {} false |", errors.missed.len(), errors.invented.len());
    let fitted = (budget > 0).then(|| {
        let default = Traced::built_in("m2").expect("a built-in chip");
        let top_clock = Some(chip.clock(chip.top()).as_mhz());
        let options = Options { top_clock, default, budget };
        fit(&runs, &options, &mut |_, _| {}).expect("the probes suffice")
    });
    line + &fitted.map_or(" - | - | - |".into(), |fitted| search(&fitted))
}

fn search(fitted: &Fit) -> String {
    let known = fitted.parameters.iter().filter(|p| p.interval.is_some()).count();
    let two = |(median, p90): (f64, f64)| format!("{}, {}", percent(median), percent(p90));
    let kept = fitted.kept_back.map_or(" - | - |".to_owned(), |kept| {
        format!(" {} | {} |", two(kept.fitted), two(kept.default))
    });
    format!(" {known} of {} |{kept}", fitted.parameters.len())
}
