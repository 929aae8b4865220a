//! `cargo xtask fit-proof`: the table of `docs/fit.md`, which takes too long for `cargo xtask pages`.
//!
//! It stands between these two lines, which `pages` leaves as they are:
//!
//! ```text
//! <!-- proof by: cargo xtask fit-proof -->
//! <!-- end -->
//! ```
//!
//! The example that makes it needs no files, so that it can run on another machine; `--from` takes
//! what it printed there.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};

use crate::shell;

/// The page.
const PAGE: &str = "docs/fit.md";
const BEGIN: &str = "<!-- proof by: cargo xtask fit-proof -->\n";
const END: &str = "<!-- end -->";

/// What is proven, and with how much effort.
#[derive(clap::Args)]
pub struct Args {
    /// Random chips.
    #[arg(long, value_name = "N", default_value_t = 20)]
    chips: u32,
    /// Seed of the first one.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    first: u32,
    /// Simulations of the search for each; 0 only reads off.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    budget: u32,
    /// Chips at once; without it as many as there are cores.
    #[arg(long, value_name = "N")]
    jobs: Option<u32>,
    /// Take what `01-fit-proof` printed elsewhere with the same numbers.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// Makes the table again and writes it into the page.
pub fn run(args: &Args) -> anyhow::Result<bool> {
    let numbers = [args.chips, args.first, args.budget].map(|n| n.to_string());
    let printed = match &args.from {
        Some(file) => fs::read_to_string(file).with_context(|| file.display().to_string())?,
        None => made(args, &numbers)?,
    };
    ensure!(printed.starts_with("| chip |"), "this is no table of 01-fit-proof: {printed:.60}");
    let path = shell::root().join(PAGE);
    let text = fs::read_to_string(&path)?;
    fs::write(&path, placed(&text, printed.trim(), &numbers.join(" "))?)?;
    println!("wrote {PAGE}");
    Ok(true)
}

/// Runs the example; its progress goes to the terminal.
fn made(args: &Args, numbers: &[String]) -> anyhow::Result<String> {
    let example = ["--release", "--package", "everwarm-lab", "--example", "01-fit-proof"];
    shell::run(shell::cargo().arg("build").args(example))?;
    let binary = shell::target()?.join("release/examples/01-fit-proof");
    let mut command = std::process::Command::new(binary);
    command.args(numbers).args(args.jobs.map(|n| n.to_string()));
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "01-fit-proof ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// The page with `table` in its place.
fn placed(text: &str, table: &str, numbers: &str) -> anyhow::Result<String> {
    let begin = text.find(BEGIN).with_context(|| format!("{PAGE} has no `{}`", BEGIN.trim()))?;
    let begin = begin + BEGIN.len();
    let length = text[begin..].find(END).with_context(|| format!("no `{END}` in {PAGE}"))?;
    let (before, after) = (&text[..begin], &text[begin + length..]);
    let command = format!(
        "`cargo run --release -p everwarm-lab --example 01-fit-proof -- {numbers}` printed:"
    );
    Ok(format!("{before}\n{command}\n\n{table}\n\n{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_takes_the_place_of_the_old_one() {
        let page = format!("# A\n{BEGIN}old\n{END}\nb\n");
        let new = placed(&page, "| chip |", "2 1 0").unwrap();
        assert!(new.starts_with("# A\n<!-- proof by") && new.ends_with("\n<!-- end -->\nb\n"));
        assert!(new.contains("-- 2 1 0` printed:\n\n| chip |\n\n") && !new.contains("old"));
        assert_eq!(placed(&new, "| chip |", "2 1 0").unwrap(), new);
        assert!(placed("# A\n", "", "").is_err());
    }
}
