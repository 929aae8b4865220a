//! What is measured, in which order.

use crate::Error;
use everwarm_units::Span;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// What came before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Condition {
    /// Nothing: a second without GPU work.
    Idle,
    /// GPU work immediately before.
    Busy,
    /// A second without GPU work but for a hold in another process.
    Hold,
    /// As idle; 100 ms before the request the proxy gets a hint that one is coming.
    PreWarmHint,
    /// As idle; the proxy has nothing but the request itself to go by.
    PreWarmArrival,
    /// GPU work immediately before, and a hold in another process.
    BusyHold,
}

/// A condition's line: name, what it is in a few words, and what it needs.
struct Line {
    condition: Condition,
    name: &'static str,
    about: &'static str,
    policy: &'static str,
}

const TABLE: [Line; 6] = [
    Line {
        condition: Condition::Idle,
        name: "idle",
        about: "nothing for a second",
        policy: "never",
    },
    Line {
        condition: Condition::Busy,
        name: "busy",
        about: "GPU work just before",
        policy: "never",
    },
    Line {
        condition: Condition::Hold,
        name: "hold",
        about: "idle, kept warm by `everwarm hold`",
        policy: "never",
    },
    Line {
        condition: Condition::PreWarmHint,
        name: "pre-warm-hint",
        about: "idle, hinted 100 ms ahead",
        policy: "study",
    },
    Line {
        condition: Condition::PreWarmArrival,
        name: "pre-warm-arrival",
        about: "idle, pre-warmed as the request arrives",
        policy: "study",
    },
    Line {
        condition: Condition::BusyHold,
        name: "busy-hold",
        about: "GPU work just before, and a hold",
        policy: "never",
    },
];

impl Condition {
    /// Every condition, in the order in which they are shown.
    pub fn all() -> impl Iterator<Item = Condition> {
        TABLE.iter().map(|line| line.condition)
    }

    /// As it is written: `pre-warm-hint`.
    pub fn name(self) -> &'static str {
        self.line().name
    }

    /// What it is, in a few words.
    pub fn about(self) -> &'static str {
        self.line().about
    }

    /// The proxy's policy under it.
    pub fn policy(self) -> &'static str {
        self.line().policy
    }

    /// True if another process holds the GPU meanwhile.
    pub fn holds(self) -> bool {
        matches!(self, Condition::Hold | Condition::BusyHold)
    }

    /// True if the GPU works immediately before the request.
    pub fn burns(self) -> bool {
        matches!(self, Condition::Busy | Condition::BusyHold)
    }

    /// True if the proxy warms the GPU.
    pub fn pre_warms(self) -> bool {
        matches!(self, Condition::PreWarmHint | Condition::PreWarmArrival)
    }

    fn line(self) -> &'static Line {
        let line = TABLE.iter().find(|line| line.condition == self);
        line.expect("every condition has its line")
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Condition {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Condition::all().find(|c| c.name() == text.trim());
        let names = || Condition::all().map(Condition::name).collect::<Vec<_>>().join(", ");
        found.ok_or_else(|| {
            Error::Plan(format!("there is no condition `{text}`; expected one of {}", names()))
        })
    }
}

/// One request to be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The round, from 0.
    pub round: u32,
    /// Tokens that its prompt should have.
    pub tokens: u32,
    /// What comes before it.
    pub condition: Condition,
}

/// What is measured, and how carefully.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Prompt lengths and the rounds of each.
    pub rounds: Vec<(u32, u32)>,
    /// The conditions, in the order of a round.
    pub conditions: Vec<Condition>,
    /// Time without GPU work before a request.
    pub idle: Span,
    /// From the hint to the request.
    pub hint_lead: Span,
    /// Large matrix products that make the GPU busy. Source: study 4 (60 ms of them).
    pub burn: u32,
    /// Tokens that each answer may have.
    pub answer_tokens: u32,
    /// A sample is void if the real-time simulation ran later than this while it was served.
    ///
    /// A hold keeps two buffers of 5.5 ms in flight: a simulation that is less late than one of
    /// them leaves no gap in it.
    pub late_max: Span,
    /// A sample of a real-time simulation is void if more than this lies between what the client
    /// measured and what the server's own clock says of the same prefill.
    ///
    /// Connecting, the proxy and two ways through the kernel take 0.6 ms; the rest is a
    /// machine too busy to run them. 3 ms are a tenth of the penalty that is measured.
    pub overhead_max: Span,
    /// Repeats of void samples, in each cell of condition and length.
    pub repeats_max: u32,
    /// No repeat begins later than this after the start.
    pub repeat_until: Span,
    /// Seed of prompts, order and resampling.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            rounds: vec![(16, 5), (128, 5)],
            conditions: vec![Condition::Idle, Condition::Busy],
            idle: Span::s(1),
            hint_lead: Span::ms(100),
            burn: 10,
            answer_tokens: 2,
            late_max: Span::ms(5),
            overhead_max: Span::ms(3),
            repeats_max: 3,
            repeat_until: Span::MAX,
            seed: 0,
        }
    }
}

/// Longer than any context of today, and short enough to be held. Source: guess.
const TOKENS_MAX: u32 = 1 << 20;

impl Plan {
    /// Says what is wrong with a plan before anything is sent.
    ///
    /// # Errors
    /// [`Error::Plan`] with the value and what was expected.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Plan(why));
        if self.conditions.is_empty() || self.rounds.is_empty() {
            return wrong("a plan needs at least one condition and one prompt length".to_owned());
        }
        let mut seen = Vec::new();
        for condition in &self.conditions {
            if seen.contains(condition) {
                return wrong(format!("the condition {condition} is there twice"));
            }
            seen.push(*condition);
        }
        for (i, (tokens, rounds)) in self.rounds.iter().enumerate() {
            if *rounds == 0 {
                return wrong(format!("0 rounds at {tokens} tokens; expected at least 1"));
            }
            if *tokens == 0 {
                return wrong("a prompt of 0 tokens; expected at least 1".to_owned());
            }
            if *tokens > TOKENS_MAX {
                return wrong(format!(
                    "a prompt of {tokens} tokens; expected at most {TOKENS_MAX}"
                ));
            }
            if self.rounds[..i].iter().any(|(other, _)| other == tokens) {
                return wrong(format!("the prompt length {tokens} is there twice"));
            }
        }
        if self.conditions.contains(&Condition::PreWarmHint) && self.hint_lead > self.idle {
            return wrong(format!(
                "the hint comes {} ahead, but only {} pass before a request",
                self.hint_lead, self.idle
            ));
        }
        if self.answer_tokens == 0 {
            return wrong("an answer of 0 tokens has no first one; expected at least 1".to_owned());
        }
        Ok(())
    }

    /// The steps of one round, in order; none when every length has had its rounds.
    ///
    /// Lengths come in a seeded random order. The conditions stay next to each other, so that a
    /// drift of the machine meets them alike; each round begins with another one.
    pub fn round(&self, round: u32) -> Vec<Step> {
        let seed = self.seed ^ u64::from(round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let left = self.rounds.iter().filter(|(_, rounds)| round < *rounds);
        let mut lengths: Vec<u32> = left.map(|(tokens, _)| *tokens).collect();
        shuffle(&mut lengths, &mut rng);
        let mut conditions = self.conditions.clone();
        conditions.rotate_left(round as usize % self.conditions.len().max(1));
        let step = |tokens, condition| Step { round, tokens, condition };
        lengths.iter().flat_map(|t| conditions.iter().map(move |c| step(*t, *c))).collect()
    }

    /// Rounds of the prompt length that has most.
    pub fn rounds_max(&self) -> u32 {
        self.rounds.iter().map(|(_, rounds)| *rounds).max().unwrap_or(0)
    }

    /// Requests to be measured, repeats aside.
    pub fn steps(&self) -> usize {
        (0..self.rounds_max()).map(|round| self.round(round).len()).sum()
    }
}

/// Fisher-Yates.
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut ChaCha12Rng) {
    for i in (1..items.len()).rev() {
        items.swap(i, (rng.next_u64() % (i as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_interleave_and_end() {
        let plan = Plan {
            rounds: vec![(16, 5), (128, 3)],
            conditions: Condition::all().collect(),
            ..Plan::default()
        };
        assert_eq!(plan.steps(), 6 * 8);
        for round in 0..5 {
            let steps = plan.round(round);
            assert_eq!(steps, plan.round(round), "a seed repeats");
            assert_eq!(steps.len(), if round < 3 { 12 } else { 6 });
            assert!(steps.chunks(6).all(|c| c.iter().all(|s| s.tokens == c[0].tokens)));
        }
        assert_ne!(plan.round(0)[0].condition, plan.round(1)[0].condition);
        let firsts: Vec<u32> = (0..3).map(|round| plan.round(round)[0].tokens).collect();
        let other = Plan { seed: 1, ..plan.clone() };
        let others: Vec<u32> = (0..3).map(|round| other.round(round)[0].tokens).collect();
        assert!(
            firsts != others
                || (2..9).any(|seed| Plan { seed, ..plan.clone() }.round(0)[0].tokens != firsts[0])
        );
        assert!(plan.round(5).is_empty());
    }

    #[test]
    fn names_are_read_and_bad_plans_refused() {
        for condition in Condition::all() {
            assert_eq!(condition.name().parse::<Condition>().unwrap(), condition);
        }
        let error = "warm".parse::<Condition>().unwrap_err().to_string();
        assert!(
            error.starts_with("there is no condition `warm`; expected one of idle, busy"),
            "{error}"
        );
        let check = |plan: Plan, expected: &str| {
            assert!(plan.check().unwrap_err().to_string().contains(expected));
        };
        assert!(Plan::default().check().is_ok());
        check(Plan { rounds: vec![(16, 0)], ..Plan::default() }, "0 rounds at 16");
        check(Plan { rounds: vec![(u32::MAX, 1)], ..Plan::default() }, "expected at most 1048576");
        let short =
            |condition| Plan { conditions: vec![condition], idle: Span::ms(50), ..Plan::default() };
        check(short(Condition::PreWarmHint), "100 ms ahead, but only 50");
        assert!(short(Condition::Idle).check().is_ok());
        check(
            Plan { rounds: vec![(16, 1), (16, 2)], ..Plan::default() },
            "length 16 is there twice",
        );
        check(Plan { conditions: vec![], ..Plan::default() }, "at least one condition");
    }
}
