//! When the next request will come: distributions of gaps, learned while they happen.
//!
//! What is learned is a hazard: how likely a request is in the next moment, given that none has come
//! yet. Hazards of independent sources add up, a gap that something else cut short still counts up
//! to there, and what was already waited is simply the place on the axis where one reads. Each
//! distribution ([`Gaps`]) has logarithmic bins, eight a doubling: gaps of milliseconds and of hours
//! take the same room.
//!
//! Few gaps say little about 161 bins, so each level corrects the one above it by a factor, and a factor
//! of expected and seen arrivals moves away from 1 only as far as its evidence goes (a gamma prior on
//! the factor). The levels are: a law that knows no scale, all gaps, gaps after this kind of ending, gaps
//! of this session; and in each of them first whole doublings, then single bins.
//!
//! Older gaps count less, so that a change of habit is followed. Memory is bounded whatever comes
//! ([`Expectation`]). Nothing here knows what warming costs.

mod gaps;
mod sessions;
mod signals;

use gaps::Gaps;
#[cfg(test)]
pub(crate) use gaps::scale_free;
pub(crate) use gaps::{BINS, Hazard, edges};
use sessions::Sessions;
use signals::Signals;

use crate::{Ending, Event, Session};
use everwarm_units::{Instant, Span};
use std::collections::VecDeque;

/// Requests whose session or end is not known yet; the oldest makes room.
const HEADS_MAX: usize = 64;
/// Gaps after which one counts 1/e, of everybody's. Source: guess: some days of a person's requests.
const MEMORY: f32 = 400.0;

/// A request that has begun.
#[derive(Clone, Copy)]
struct Head {
    at: Instant,
    session: Option<Session>,
}

/// What is expected. It takes every event, and says at any instant between requests how likely the
/// next one is from then on.
pub(crate) struct Expectation {
    /// From the end of work to a request of somebody who was not waited for: all, and by ending.
    idle: [Gaps; 4],
    /// From the end of work to any request: by ending.
    any: [Gaps; 3],
    sessions: Sessions,
    signals: Signals,
    heads: VecDeque<Head>,
    /// When work ended, and how; `None` while a request runs.
    ended: Option<(Instant, Ending)>,
    /// The request that ended the last gap, and the gap, until it is known whose it was.
    open: Option<(Instant, Ending, Span)>,
}

fn place(ending: Ending) -> usize {
    match ending {
        Ending::Unknown => 0,
        Ending::Turn => 1,
        Ending::ToolCalls => 2,
    }
}

impl Expectation {
    pub fn new() -> Self {
        Expectation {
            idle: std::array::from_fn(|_| Gaps::new(MEMORY)),
            any: std::array::from_fn(|_| Gaps::new(MEMORY)),
            sessions: Sessions::new(MEMORY),
            signals: Signals::new(),
            heads: VecDeque::new(),
            ended: None,
            open: None,
        }
    }

    /// Since when no request has run, and how the last one ended.
    pub fn ended(&self) -> Option<(Instant, Ending)> {
        self.ended
    }

    /// Takes an event. `requests`: those that run, it counted.
    pub fn on_event(&mut self, now: Instant, event: &Event, requests: u32) {
        match *event {
            Event::RequestHead { work: true } => self.head(now),
            Event::RequestHead { work: false } => self.signals.probe(),
            Event::SessionKnown { session, since } => {
                self.known(session, Instant::ZERO + now.since(Instant::ZERO + since));
            }
            Event::ResponseFinished { work: true, session, ending } => {
                self.finished(now, session, ending, requests);
            }
            Event::ResponseAborted { work: true, session } => {
                self.finished(now, session, Ending::Unknown, requests);
            }
            ref sign if self.heads.is_empty() => self.signals.on_event(now, sign),
            _ => {}
        }
    }

    fn head(&mut self, now: Instant) {
        self.signals.arrived(now);
        if let Some((since, ending)) = self.ended.take() {
            let gap = now.since(since);
            self.any[place(ending)].came(gap);
            self.attribute(None);
            self.open = Some((now, ending, gap));
        }
        if self.heads.len() == HEADS_MAX {
            self.heads.pop_front();
        }
        self.heads.push_back(Head { at: now, session: None });
    }

    /// A request that began at `at` is this session's.
    fn known(&mut self, session: Session, at: Instant) {
        let off = |head: &Head| at.since(head.at).max(head.at.since(at));
        let unknown = self.heads.iter_mut().filter(|head| head.session.is_none());
        let Some(head) = unknown.min_by_key(|head| off(head)) else { return };
        head.session = Some(session);
        let at = head.at;
        self.arrived(session, at);
    }

    fn arrived(&mut self, session: Session, at: Instant) {
        let waited = self.sessions.arrived(session, at);
        if self.open.is_some_and(|(open, ..)| open == at) {
            self.attribute(Some(waited));
        }
    }

    /// The last gap was ended by somebody who was waited for, or not.
    fn attribute(&mut self, waited: Option<bool>) {
        let Some((_, ending, gap)) = self.open.take() else { return };
        for gaps in [0, 1 + place(ending)] {
            match waited {
                Some(true) => self.idle[gaps].cut(gap),
                Some(false) | None => self.idle[gaps].came(gap),
            }
        }
    }

    fn finished(&mut self, now: Instant, session: Option<Session>, ending: Ending, requests: u32) {
        let mine = |head: &Head| head.session == session && session.is_some();
        let found = self.heads.iter().position(mine);
        let found = found.or_else(|| self.heads.iter().position(|head| head.session.is_none()));
        let head = found.and_then(|place| self.heads.remove(place));
        if let Some(session) = session {
            if let Some(head) = head.filter(|head| head.session.is_none()) {
                self.arrived(session, head.at);
            }
            self.sessions.wait(session, now, ending);
        }
        if requests == 0 {
            self.heads.clear();
            self.attribute(None);
            self.ended = Some((now, ending));
        }
    }

    /// How likely the next request is from `now` on, in as many bins as there is room for.
    pub fn hazard(&mut self, now: Instant, from_now: &mut [f64]) {
        from_now.fill(0.0);
        let Some((since, ending)) = self.ended else { return };
        let (all, class) = self.idle.split_at_mut(1);
        let all = all[0].smoothed(gaps::scale_free());
        gaps::add(class[place(ending)].smoothed(all), now.since(since), from_now);
        self.sessions.add(now, from_now);
        self.signals.raise(now, from_now);
    }

    /// How likely any request is after work that ended so, and the share of gaps that follow such.
    pub fn typical(&mut self) -> [(f64, &Hazard); 3] {
        let weight: f64 = self.any.iter().map(Gaps::weight).sum();
        self.any.each_mut().map(|gaps| {
            let share = if weight > 0.0 { gaps.weight() / weight } else { 1.0 / 3.0 };
            (share, gaps.smoothed(gaps::scale_free()))
        })
    }
}

/// How likely a request is within so long.
pub(crate) fn chance(from_now: &Hazard, within: Span) -> f64 {
    1.0 - (-gaps::sum(from_now, within.as_secs())).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HintSource;

    struct Told {
        expectation: Expectation,
        now: Instant,
    }

    impl Told {
        fn new() -> Self {
            Told { expectation: Expectation::new(), now: Instant::ZERO }
        }

        fn request(&mut self, after: Span, session: Option<u64>, ending: Ending) {
            let session = session.map(Session);
            self.now += after;
            self.expectation.on_event(self.now, &Event::RequestHead { work: true }, 1);
            if let Some(session) = session {
                let since = Span::ms(2);
                self.now += since;
                let known = Event::SessionKnown { session, since };
                self.expectation.on_event(self.now, &known, 1);
            }
            self.now += Span::ms(500);
            let finished = Event::ResponseFinished { work: true, session, ending };
            self.expectation.on_event(self.now, &finished, 0);
        }

        fn within(&mut self, after: Span, within: Span) -> f64 {
            let mut hazard = [0.0; BINS];
            self.expectation.hazard(self.now + after, &mut hazard);
            chance(&hazard, within)
        }
    }

    #[test]
    fn a_rhythm_is_learned_and_forgotten() {
        let mut told = Told::new();
        for _ in 0..100 {
            told.request(Span::s(20), None, Ending::Unknown);
        }
        assert!(told.within(Span::ZERO, Span::s(17)) < 0.25);
        assert!(told.within(Span::ZERO, Span::s(23)) > 0.7);
        assert!(told.within(Span::s(17), Span::s(6)) > 0.7);
        for _ in 0..2000 {
            told.request(Span::s(3), None, Ending::Unknown);
        }
        assert!(told.within(Span::ZERO, Span::ms(3600)) > 0.8);
        assert!(told.within(Span::ms(3600), Span::s(10)) < 0.6);
    }

    #[test]
    fn after_tool_calls_is_told_from_after_turns_and_from_session_to_session() {
        let mut told = Told::new();
        for turn in 0..60 {
            for session in [1, 2] {
                let tool = if session == 1 { Span::ms(400) } else { Span::s(9) };
                told.request(Span::s(100 + turn), Some(session), Ending::ToolCalls);
                told.request(tool, Some(session), Ending::Turn);
            }
        }
        assert!(told.within(Span::ZERO, Span::s(12)) < 0.3, "after a turn");
        told.request(Span::s(90), Some(1), Ending::ToolCalls);
        assert!(told.within(Span::ZERO, Span::ms(480)) > 0.6, "the first one's tool");
        told.request(Span::ms(400), Some(1), Ending::Turn);
        told.request(Span::s(90), Some(2), Ending::ToolCalls);
        assert!(told.within(Span::ZERO, Span::s(3)) < 0.4, "the other one's tool");
        assert!(told.within(Span::s(7), Span::s(4)) > 0.6, "the other one's tool, later");
    }

    #[test]
    fn a_hint_is_believed_as_far_as_it_says_and_as_it_has_earned() {
        let hint = |seconds, confidence| Event::Hint {
            source: HintSource::Schedule,
            expected: Some(Span::s(seconds)),
            confidence,
            session: None,
        };
        let heard = |told: &mut Told, confidence| {
            told.request(Span::s(1000), None, Ending::Turn);
            told.expectation.on_event(told.now, &hint(30, confidence), 0);
            told.within(Span::s(25), Span::s(15))
        };
        let mut told = Told::new();
        let (sure, unsure) = (heard(&mut told, 1.0), heard(&mut told, 0.1));
        assert!(sure > 0.5 && unsure < 0.3, "{sure} and {unsure}");
        for _ in 0..40 {
            heard(&mut told, 1.0);
        }
        let lied = heard(&mut told, 1.0);
        assert!(lied < 0.3, "{lied} after forty that were wrong");
    }

    #[test]
    fn a_million_sessions_take_no_more_room_than_a_thousand() {
        let mut told = Told::new();
        for session in 0..1_000_000u64 {
            told.request(Span::ms(700), Some(session), Ending::ToolCalls);
        }
        assert!(told.expectation.sessions.len() <= 1024);
        assert!(told.expectation.heads.is_empty());
    }

    #[test]
    fn what_never_ends_is_forgotten() {
        let mut told = Told::new();
        for n in 0..10_000u64 {
            told.now += Span::ms(3);
            let head = Event::RequestHead { work: true };
            told.expectation.on_event(told.now, &head, n as u32 + 1);
        }
        assert!(told.expectation.heads.len() <= HEADS_MAX);
    }
}
