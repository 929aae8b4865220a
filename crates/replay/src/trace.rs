//! When requests come.

use crate::random::Random;
use everwarm_governor::{Ending, Session};
use everwarm_units::Span;

/// When a request comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// So long after the trace's beginning, whatever became of those before it.
    At(Span),
    /// So long after the end of the request before it: whoever asks has waited for the answer.
    After(Span),
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When it comes.
    pub start: Start,
    /// Whose it is.
    pub session: Option<Session>,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens of its answer.
    pub generated_tokens: u32,
    /// What its answer leaves the client to do.
    pub ending: Ending,
}

/// Requests, in the order in which they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// For people.
    pub name: String,
    /// The requests; those that come [`Start::At`] an instant have them ascending.
    pub requests: Vec<Request>,
}

impl Trace {
    /// Each request kept with a chance of one in `n`, seeded: one user's share of a service.
    pub fn thinned(&self, n: f64, seed: u64) -> Trace {
        let mut random = Random::new(seed);
        let kept = self.requests.iter().filter(|_| random.unit() * n < 1.0);
        Trace { name: format!("{}, 1 in {n}", self.name), requests: kept.copied().collect() }
    }

    /// The trace over and over until it has `count` requests. Where instants are given, each turn
    /// begins after the one before, a mean gap later.
    pub fn repeated(&self, count: usize) -> Trace {
        let last = self.requests.iter().rev().find_map(|request| match request.start {
            Start::At(at) => Some(at),
            Start::After(_) => None,
        });
        let turn = last.map_or(Span::ZERO, |last| {
            last + Span::from_secs(last.as_secs() / self.requests.len() as f64)
        });
        let mut requests = Vec::with_capacity(count);
        let mut shift = Span::ZERO;
        while requests.len() < count && !self.requests.is_empty() {
            let left = count - requests.len();
            requests.extend(self.requests.iter().take(left).map(|request| Request {
                start: match request.start {
                    Start::At(at) => Start::At(at + shift),
                    after @ Start::After(_) => after,
                },
                ..*request
            }));
            shift += turn;
        }
        Trace { name: self.name.clone(), requests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(count: u64) -> Trace {
        let request = |n| Request {
            start: Start::At(Span::s(n)),
            session: None,
            prompt_tokens: n as u32,
            generated_tokens: 1,
            ending: Ending::Unknown,
        };
        Trace { name: "t".to_owned(), requests: (0..count).map(request).collect() }
    }

    #[test]
    fn thinning_keeps_its_share_in_order_and_follows_its_seed() {
        let whole = trace(20_000);
        let thin = whole.thinned(20.0, 1);
        let share = thin.requests.len() as f64 / 20_000.0;
        assert!((0.04..0.06).contains(&share), "{share}");
        assert!(thin.requests.is_sorted_by_key(|r| r.prompt_tokens));
        assert_eq!(thin, whole.thinned(20.0, 1));
        assert_ne!(thin, whole.thinned(20.0, 2));
        assert_eq!(whole.thinned(1.0, 3).requests, whole.requests);
    }

    #[test]
    fn a_repeated_trace_never_goes_back() {
        let long = trace(10).repeated(25);
        assert_eq!(long.requests.len(), 25);
        let starts = long.requests.iter().map(|r| match r.start {
            Start::At(at) => at,
            Start::After(_) => unreachable!(),
        });
        assert!(starts.is_sorted_by(|a, b| a < b));
        assert!(trace(0).repeated(5).requests.is_empty());
    }
}
