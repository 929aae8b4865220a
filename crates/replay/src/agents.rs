//! Agent loops, made up: somebody asks, the model calls tools and comes back, again and again.

use crate::random::Random;
use crate::trace::{Request, Start, Trace};
use everwarm_governor::{Ending, Session};
use everwarm_units::Span;

/// What the loops are like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agents {
    /// Requests in all.
    pub requests: usize,
    /// How long tools run: evenly among orders of magnitude.
    pub tools: (Span, Span),
    /// Tool calls before the model is done, on average.
    pub calls: f64,
    /// Median time until the person asks again.
    pub think: Span,
    /// Questions in a session, on average.
    pub turns: f64,
    /// Of all draws.
    pub seed: u64,
}

impl Default for Agents {
    /// Tools from a file's reading to a build; a person who reads, tries and asks again. Source: guess.
    fn default() -> Self {
        Agents {
            requests: 2000,
            tools: (Span::ms(50), Span::s(30)),
            calls: 8.0,
            think: Span::s(90),
            turns: 6.0,
            seed: 0,
        }
    }
}

/// How far a person's times scatter; of the natural logarithm. Source: guess.
const THINK_SIGMA: f64 = 1.2;

/// The loops as a trace. A conversation grows by what tools and answers add.
pub fn agents(like: &Agents) -> Trace {
    let mut random = Random::new(like.seed);
    let mut requests = Vec::with_capacity(like.requests);
    let mut session = 0;
    while requests.len() < like.requests {
        session += 1;
        let mut prompt_tokens = 300 + (random.unit() * 1200.0) as u32;
        for _ in 0..random.geometric(like.turns) {
            let calls = random.geometric(like.calls + 1.0) - 1;
            for call in 0..=calls {
                let start = Start::After(match call {
                    0 => random.log_normal(like.think, THINK_SIGMA),
                    _ => random.log_uniform(like.tools.0, like.tools.1),
                });
                let generated_tokens = 20 + (random.unit() * 180.0) as u32;
                requests.push(Request {
                    start,
                    session: Some(Session(session)),
                    prompt_tokens,
                    generated_tokens,
                    ending: if call < calls { Ending::ToolCalls } else { Ending::Turn },
                });
                // What is cached is not computed again: the server prefills what is new.
                prompt_tokens = 50 + (random.unit() * 600.0) as u32;
            }
        }
    }
    requests.truncate(like.requests);
    Trace { name: "agent".to_owned(), requests }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_seeded_and_tools_keep_their_range() {
        let like = Agents::default();
        let trace = agents(&like);
        assert_eq!(trace.requests.len(), like.requests);
        assert_eq!(trace, agents(&like));
        assert_ne!(trace, agents(&Agents { seed: 1, ..like }));
        for pair in trace.requests.windows(2) {
            let Start::After(gap) = pair[1].start else { panic!() };
            if pair[0].ending == Ending::ToolCalls {
                assert!(like.tools.0 <= gap && gap <= like.tools.1, "{gap}");
                assert_eq!(pair[0].session, pair[1].session);
            }
        }
        let calling = trace.requests.iter().filter(|r| r.ending == Ending::ToolCalls).count();
        assert!((0.8..0.97).contains(&(calling as f64 / 2000.0)), "{calling}");
    }
}
