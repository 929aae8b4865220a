//! What each term of the model is for: the claims again, with one term removed or one value moved.
//!
//! A [`Subject`] is a chip and the runtimes that submit work to it, as tables of values under dotted
//! keys. A [`Change`] sets one of them; an [`Ablation`] is a set of changes that takes a term away
//! (`file.rs`: data), a [`Swing`] moves one value up or down (`sensitivity.rs`). Each variant is a
//! whole chip of its own that is checked like any other: nothing in the simulator knows of this.

mod file;
mod sensitivity;
mod subject;

pub use file::{Ablation, Ablations};
pub use sensitivity::{Swing, sensitivity};
pub use subject::{Change, Side, Subject};

use crate::BadInput;
use crate::claims::{Claims, Report, check_chip};

/// What a variant did to the claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Claims that no longer hold: id, and by how much they miss (see [`crate::Claim::strain`]).
    pub broken: Vec<(String, f64)>,
    /// Claims that hold now and did not before.
    pub gained: Vec<String>,
}

/// Checks the claims with each term removed; `progress` hears how many of how many are done.
///
/// Returns the report on the whole model and an outcome for each ablation, in order.
///
/// # Errors
/// [`BadInput`] if an ablation names a value that the chip or a runtime does not have, or one that
/// it can't take.
pub fn ablate(
    claims: &Claims,
    subject: &Subject,
    ablations: &Ablations,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<(Report, Vec<Outcome>), BadInput> {
    // Mistakes are told before minutes are spent.
    let variants: Vec<_> = ablations
        .ablations
        .iter()
        .map(|one| subject.with(&one.changes).map_err(|why| ablations.error(one, why)))
        .collect::<Result<_, _>>()?;
    let whole = subject.check(claims);
    let mut outcomes = Vec::new();
    for (done, variant) in variants.iter().enumerate() {
        progress(done, variants.len());
        outcomes.push(Outcome::between(claims, &whole, &variant.check(claims)));
    }
    Ok((whole, outcomes))
}

impl Subject {
    /// Holds this chip with these runtimes against the claims.
    pub fn check(&self, claims: &Claims) -> Report {
        let runtimes = self.runtimes().into_iter();
        let claims = runtimes.fold(claims.clone(), |claims, runtime| claims.with_runtime(runtime));
        check_chip(&claims, self.chip(), &|_, _, _| {})
    }
}

impl Outcome {
    fn between(claims: &Claims, before: &Report, after: &Report) -> Outcome {
        let mut outcome = Outcome { broken: Vec::new(), gained: Vec::new() };
        for ((claim, before), after) in
            claims.claims.iter().zip(&before.verdicts).zip(&after.verdicts)
        {
            match (before.held, after.held) {
                (true, false) => outcome.broken.push((claim.id.clone(), claim.strain(after))),
                (false, true) => outcome.gained.push(claim.id.clone()),
                _ => {}
            }
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwarm_dvfs::Chip;

    #[test]
    fn a_term_that_is_taken_away_breaks_what_it_is_for() {
        let claims = Claims::built_in().only("gap.*");
        let subject = Subject::new(&Chip::built_in("m2").unwrap());
        let mut all = Ablations::built_in();
        all.ablations.retain(|one| one.name == "memory path after a wake");
        let (whole, outcomes) = ablate(&claims, &subject, &all, &mut |_, _| {}).unwrap();
        assert_eq!(whole.held(), claims.claims.len());
        let broken: Vec<_> = outcomes[0].broken.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(broken, ["gap.stream_first_2ms", "gap.stream_first_1s"]);
    }
}
