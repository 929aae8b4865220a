//! The examples in docs/scenarios.md and docs/claims.md read as they stand.

use everwarm_lab::{Claims, Scenario};
use std::path::Path;

const SCENARIOS: &str = include_str!("../../../docs/scenarios.md");
const CLAIMS: &str = include_str!("../../../docs/claims.md");

/// The TOML examples of a page.
fn examples(page: &str) -> Vec<&str> {
    let after = page.split("```toml\n").skip(1);
    after.map(|rest| rest.split("```").next().unwrap_or(rest)).collect()
}

#[test]
fn scenarios() {
    let examples = examples(SCENARIOS);
    assert!(examples.len() >= 3);
    for example in examples {
        // A sweep alone is no scenario yet.
        let whole = match example.contains("steps") {
            true => example.to_owned(),
            false => {
                format!("{example}\n[[actor]]\nname = \"main\"\nsteps = [{{ idle = \"1 ms\" }}]")
            }
        };
        if let Err(error) = Scenario::from_toml("docs/scenarios.md", &whole) {
            panic!("{error}");
        }
    }
}

#[test]
fn claims() {
    let examples = examples(CLAIMS);
    assert!(examples.len() >= 2);
    for example in examples {
        // Measures alone become claims.
        let claim = "[[claim]]\nscenario = \"ttft\"\nexpect = 1\n";
        let whole = match example.contains("[[claim]]") {
            true => example.to_owned(),
            false => {
                let mut n = 0;
                let lines = example.lines().map(|line| {
                    n += 1;
                    let head =
                        line.starts_with("measure").then(|| format!("{claim}id = \"{n}\"\n"));
                    format!("{}{line}\n", head.unwrap_or_default())
                });
                lines.collect()
            }
        };
        if let Err(error) = Claims::from_toml("docs/claims.md", &whole, Path::new(".")) {
            panic!("{error}");
        }
    }
}
