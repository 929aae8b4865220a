//! Gaps of single sessions, and which of them are waited for.
//!
//! A session's gap runs from the end of its request to its next one, whatever others do meanwhile. Of
//! the last [`KEPT`] sessions each has its own distributions, those before count only among all; of
//! those whose request has ended the last [`WAITED`] are waited for.

use super::gaps::{self, Gaps};
use crate::{Ending, Session};
use everwarm_units::{Instant, Span};
use std::collections::BTreeMap;

/// Some 3 kB each.
const KEPT: usize = 1024;
/// More than one person's agents at once; others are among those who were not waited for.
const WAITED: usize = 8;
/// A session changes its habits sooner than everybody does. Source: guess.
const MEMORY: f32 = 60.0;

struct Own {
    used: u64,
    after: [Option<Gaps>; 3],
}

struct Wait {
    session: Session,
    since: Instant,
    ending: Ending,
}

pub(super) struct Sessions {
    /// Everybody's: all, and by ending.
    all: [Gaps; 4],
    own: BTreeMap<Session, Own>,
    /// By last use: the first one goes first.
    order: BTreeMap<u64, Session>,
    uses: u64,
    waiting: Vec<Wait>,
}

impl Sessions {
    pub fn new(memory: f32) -> Self {
        Sessions {
            all: std::array::from_fn(|_| Gaps::new(memory)),
            own: BTreeMap::new(),
            order: BTreeMap::new(),
            uses: 0,
            waiting: Vec::with_capacity(WAITED),
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        assert_eq!(self.own.len(), self.order.len());
        self.own.len().max(self.waiting.len())
    }

    /// A session's request has come; true if it was waited for.
    pub fn arrived(&mut self, session: Session, at: Instant) -> bool {
        let Some(place) = self.waiting.iter().position(|wait| wait.session == session) else {
            return false;
        };
        let wait = self.waiting.remove(place);
        self.take(&wait, at.since(wait.since), Gaps::came);
        true
    }

    /// A session's request has ended.
    pub fn wait(&mut self, session: Session, now: Instant, ending: Ending) {
        self.waiting.retain(|wait| wait.session != session);
        if self.waiting.len() == WAITED {
            // Who has been silent for longest is waited for no more.
            let gone = self.waiting.remove(0);
            self.take(&gone, now.since(gone.since), Gaps::cut);
        }
        self.waiting.push(Wait { session, since: now, ending });
    }

    fn take(&mut self, wait: &Wait, gap: Span, how: fn(&mut Gaps, Span)) {
        let class = super::place(wait.ending);
        how(&mut self.all[0], gap);
        how(&mut self.all[1 + class], gap);
        how(self.own(wait.session).after[class].get_or_insert_with(|| Gaps::new(MEMORY)), gap);
    }

    fn own(&mut self, session: Session) -> &mut Own {
        self.uses += 1;
        let used = self.uses;
        if !self.own.contains_key(&session) && self.own.len() == KEPT {
            let oldest = self.order.pop_first().expect("it has as many as there are");
            self.own.remove(&oldest.1);
        }
        self.order.insert(used, session);
        let new = || Own { used, after: [None, None, None] };
        let own = self.own.entry(session).or_insert_with(new);
        if own.used != used {
            self.order.remove(&own.used);
            own.used = used;
        }
        own
    }

    /// Adds the hazards of those who are waited for.
    pub fn add(&mut self, now: Instant, onto: &mut [f64]) {
        let (all, classes) = self.all.split_at_mut(1);
        let all = all[0].smoothed(gaps::scale_free());
        for wait in &self.waiting {
            let class = super::place(wait.ending);
            let parent = classes[class].smoothed(all);
            let own = self.own.get_mut(&wait.session).and_then(|own| own.after[class].as_mut());
            let hazard = match own {
                Some(own) => own.smoothed(parent),
                None => parent,
            };
            gaps::add(hazard, now.since(wait.since), onto);
        }
    }
}
