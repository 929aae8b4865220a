//! What each term of the model is there for: the claims that break when it is taken out.
//!
//! An ablation is data (`ablations/*.toml`): other values under keys of the chip file or of a
//! built-in runtime that neutralise one term. All claims are checked with and without it. A term
//! without which nothing breaks explains nothing and should go.

mod file;
mod numbers;
mod sensitivity;
mod variants;

pub use file::{Ablation, Ablations, Constant};
pub use numbers::Numbers;
pub use sensitivity::{Kind, Margin, Moved, Parameter, Sensitivity, sensitivity};

use crate::claims::{Claims, Plan, Report, Verdict};
use crate::text::BadInput;
use variants::check_variants;

/// Every ablation of a file against every claim of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// With all terms.
    pub whole: Report,
    /// Without one, in the file's order.
    pub without: Vec<Ablated>,
}

/// What becomes of the claims without a term.
#[derive(Clone, Debug, PartialEq)]
pub struct Ablated {
    /// The ablation's name.
    pub name: String,
    /// How many claims hold.
    pub held: usize,
    /// Claims that held and do not, in the file's order.
    pub breaks: Vec<Change>,
    /// Claims that did not hold and do.
    pub begins: Vec<Change>,
}

/// One claim before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Index of the claim in its file.
    pub claim: usize,
    /// Without the term.
    pub after: Verdict,
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device is not a chip in virtual time.
    #[error(transparent)]
    Device(#[from] everwarm_gpu::Error),
    /// An ablation names what there is not, or sets what can't be.
    #[error(transparent)]
    Input(#[from] BadInput),
}

/// Checks `claims` on the simulated chip `id`, whole and without each term; `progress` hears of
/// each run that has ended.
///
/// # Errors
/// [`Error`], before anything runs.
pub fn ablate(
    claims: &Claims,
    ablations: &Ablations,
    id: &str,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Table, Error> {
    let numbers = Numbers::of(id)?;
    let whole = numbers.with(&[]).expect("a device's own numbers are read again");
    let variants = ablations.ablations.iter().map(|one| ablations.variant(one, &numbers));
    let variants = variants.collect::<Result<Vec<_>, _>>()?;
    let plan = Plan::new(claims);
    let (before, after) = check_variants(&plan, &whole, &variants, progress);
    let named = ablations.ablations.iter().zip(after);
    let without = named.map(|(one, after)| ablated(&one.name, &before, after)).collect();
    Ok(Table { whole: Report { device: id.to_owned(), verdicts: before }, without })
}

fn ablated(name: &str, before: &[Verdict], after: Vec<Verdict>) -> Ablated {
    let held = after.iter().filter(|verdict| verdict.held).count();
    let (mut breaks, mut begins) = (Vec::new(), Vec::new());
    for (claim, (before, after)) in before.iter().zip(after).enumerate() {
        match (before.held, after.held) {
            (true, false) => breaks.push(Change { claim, after }),
            (false, true) => begins.push(Change { claim, after }),
            _ => {}
        }
    }
    Ablated { name: name.to_owned(), held, breaks, begins }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_parameter_can_be_taken_out_or_says_why_not() {
        let numbers = Numbers::of("sim:m2").unwrap();
        let file = Ablations::built_in();
        for ablation in &file.ablations {
            file.variant(ablation, &numbers).unwrap_or_else(|error| panic!("{error}"));
        }
        let set = file.ablations.iter().flat_map(|one| one.set.iter().map(|(key, _)| key.clone()));
        let constant: Vec<_> = file.constants.iter().flat_map(|one| one.keys.clone()).collect();
        for key in &constant {
            assert!(numbers.value(key).is_some(), "[[constant]] names `{key}`, which there is not");
        }
        let touched: BTreeSet<String> = set.chain(constant).collect();
        let covered = |key: &str| {
            // A list that is set as a whole covers its entries, and an entry's value its list.
            let within = |known: &String| key.starts_with(&format!("{known}."));
            touched.contains(key)
                || touched.iter().any(within)
                || touched.iter().any(|known| known.starts_with(&format!("{key}.")))
        };
        let sections = ["controller.", "wake.", "host."];
        let missing: Vec<_> = numbers
            .keys()
            .into_iter()
            .filter(|key| sections.iter().any(|section| key.starts_with(section)))
            .filter(|key| !covered(key))
            .collect();
        assert!(
            missing.is_empty(),
            "no ablation and no [[constant]] in ablations/m2.toml has {missing:?}"
        );
    }

    #[test]
    fn a_term_that_matters_breaks_claims_and_one_that_does_not_breaks_none() {
        let text = r#"
            [[ablation]]
            name = "no wake"
            why = "a test"
            chip = { "wake.start" = [{ idle = "2 ms", latency = "0.15 ms" }] }
            [[ablation]]
            name = "nothing"
            why = "a test"
            chip = { cores = 9 }
            [[ablation]]
            name = "faster host"
            why = "a test"
            runtime.llamacpp = { "prefill.finish" = "500 ms" }
        "#;
        let ablations = Ablations::from_toml("a.toml", text).unwrap();
        let claims = Claims::built_in().only("gap.*");
        let table = ablate(&claims, &ablations, "sim:m2", &|_, _| {}).unwrap();
        let whole = crate::check(&claims, "sim:m2", &|_, _, _| {}).unwrap();
        assert_eq!(table.whole, whole);
        let breaks = |n: usize| -> Vec<&str> {
            table.without[n].breaks.iter().map(|one| one.after.id.as_str()).collect()
        };
        assert!(breaks(0).contains(&"gap.commit_to_start_2ms"), "{:?}", breaks(0));
        assert!(breaks(1).is_empty() && breaks(2).is_empty());
        let first = &table.without[0];
        assert_eq!(first.held + first.breaks.len() - first.begins.len(), whole.held());
    }
}
