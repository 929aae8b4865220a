//! One trace, one policy: requests are served one after the other, the governor is told what a proxy
//! would tell it, and what it asks for is carried out on a device of figures.

use crate::device::{Device, Warmth};
use crate::hindsight::Gap;
use crate::outcome::Outcome;
use crate::trace::{Request, Start, Trace};
use everwarm_governor::{Action, Config, Ending, Entry, Event, Governor, HintSource};
use everwarm_units::{Instant, Joules, Span};
use std::collections::VecDeque;

/// A device that has never worked has been idle for long.
const BEGINS: Instant = Instant::from_nanos(Span::s(24 * 3600).as_nanos());

/// Something announces each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hints {
    /// So long ahead, or at the end of the request before it.
    pub lead: Span,
    /// As the hint says it.
    pub confidence: f64,
}

/// Replays `trace` on `device` under a policy.
///
/// A request begins when its turn comes: at its arrival, or when those before it are done.
pub fn run(
    trace: &Trace,
    device: &Device,
    policy: &Entry,
    config: &Config,
    hints: Option<Hints>,
) -> Outcome {
    let outcome = Outcome {
        policy: policy.name.to_owned(),
        ttft: Vec::with_capacity(trace.requests.len()),
        gaps: Vec::with_capacity(trace.requests.len()),
        ..Outcome::default()
    };
    let mut engine = Engine {
        device,
        governor: Governor::new(policy, config.clone()),
        now: BEGINS,
        wake: None,
        holding: false,
        charged: None,
        unreported: Joules::ZERO,
        warmth: Warmth::GONE,
        warmings: 0,
        waiting: VecDeque::new(),
        running: None,
        ended: (Instant::ZERO, Ending::Unknown),
        outcome,
    };
    engine.lead_through(&trace.requests, hints);
    engine.outcome
}

/// A request that is being served.
struct Running {
    request: Request,
    first_token: Instant,
    end: Instant,
    decoding: bool,
}

struct Engine<'a> {
    device: &'a Device,
    governor: Governor,
    now: Instant,
    /// The governor wants to be asked then.
    wake: Option<Instant>,
    holding: bool,
    /// A hold uses energy since then.
    charged: Option<Instant>,
    /// Used, and the governor doesn't know it yet.
    unreported: Joules,
    warmth: Warmth,
    /// Pre-warms and holds since a request last began.
    warmings: u64,
    waiting: VecDeque<(Instant, Request)>,
    running: Option<Running>,
    /// When the last request ended, and how.
    ended: (Instant, Ending),
    outcome: Outcome,
}

impl Engine<'_> {
    fn lead_through(&mut self, requests: &[Request], hints: Option<Hints>) {
        // Whoever sends all this keeps its connection.
        self.tell(BEGINS, Event::ConnectionAccepted);
        let mut requests = requests.iter().peekable();
        let mut hinted = false;
        let mut first = None;
        loop {
            let arrival = requests.peek().and_then(|request| self.arrival(request));
            let ends = self.running.as_ref();
            let turn = ends.map(|r| if r.decoding { r.end } else { r.first_token });
            match (arrival, turn) {
                (None, None) => break,
                (Some(at), turn) if turn.is_none_or(|turn| at < turn) => {
                    if let Some(hints) = hints.filter(|_| !hinted) {
                        hinted = true;
                        self.hint(at, hints);
                        continue;
                    }
                    hinted = false;
                    first.get_or_insert(at);
                    let request = *requests.next().expect("it was peeked at");
                    self.arrives(at, request);
                }
                (_, Some(turn)) => self.goes_on(turn),
                (Some(_), None) => unreachable!("an arrival without a turn is taken above"),
            }
        }
        if self.holding {
            self.charge(self.now, false);
        }
        self.outcome.false_warms += self.warmings;
        self.outcome.span = self.ended.0.since(first.unwrap_or_default());
    }

    /// When a request comes, if that can be told yet.
    fn arrival(&self, request: &Request) -> Option<Instant> {
        match request.start {
            Start::At(at) => Some((BEGINS + at).max(self.now)),
            Start::After(_) if self.running.is_some() => None,
            Start::After(gap) => Some(self.ended.0.max(BEGINS) + gap),
        }
    }

    fn hint(&mut self, arrival: Instant, hints: Hints) {
        let ahead = arrival.since(self.now).min(hints.lead);
        let at = Instant::ZERO + arrival.since(Instant::ZERO).saturating_sub(ahead);
        let (expected, confidence) = (Some(ahead), hints.confidence);
        let source = HintSource::Schedule;
        self.tell(at, Event::Hint { source, expected, confidence, session: None });
    }

    fn arrives(&mut self, at: Instant, request: Request) {
        self.tell(at, Event::RequestHead { work: true });
        if let Some(session) = request.session {
            self.tell(at, Event::SessionKnown { session, since: Span::ZERO });
        }
        self.tell(at, Event::RequestForwarded { work: true });
        self.waiting.push_back((at, request));
        if self.running.is_none() {
            self.begins();
        }
    }

    /// The next request that waits has its turn.
    fn begins(&mut self) {
        let Some((arrived, request)) = self.waiting.pop_front() else { return };
        let (device, tokens) = (self.device, request.prompt_tokens);
        let first_buffer = self.now + device.host;
        let lost = self.warmth.lost(device, tokens, first_buffer);
        let idle = first_buffer.since(self.ended.0);
        self.outcome.gaps.push(Gap { after: self.ended.1, idle, tokens });
        let helped = lost < device.lost(tokens, idle);
        self.outcome.false_warms += self.warmings.saturating_sub(u64::from(helped));
        self.warmings = 0;
        let first_token = first_buffer + device.prefill(tokens) + lost;
        let decode =
            device.decode.as_secs() * f64::from(request.generated_tokens.saturating_sub(1));
        let end = first_token + Span::from_secs(decode);
        self.outcome.lost += lost;
        self.outcome.ttft.push(first_token.since(arrived));
        self.charge(self.now, false);
        self.warmth.begin(first_buffer, Some(end));
        self.running = Some(Running { request, first_token, end, decoding: false });
    }

    fn goes_on(&mut self, at: Instant) {
        let running = self.running.as_mut().expect("its turn came");
        if !running.decoding {
            running.decoding = true;
            self.tell(at, Event::DecodeRunning);
            return;
        }
        let Request { session, ending, .. } = running.request;
        self.running = None;
        // A hold that went on beside the request goes on.
        self.warmth.until = (!self.holding).then_some(at);
        self.ended = (at, ending);
        self.charge(at, self.holding);
        self.tell(at, Event::ResponseFinished { work: true, session, ending });
        if self.running.is_none() {
            self.begins();
        }
    }

    /// Lets the governor act until `at`, and tells it.
    fn tell(&mut self, at: Instant, event: Event) {
        while let Some(wake) = self.wake.filter(|wake| *wake < at) {
            self.now = self.now.max(wake);
            self.obey();
        }
        self.now = self.now.max(at);
        self.governor.on_event(self.now, event);
        self.obey();
    }

    fn obey(&mut self) {
        let now = self.now;
        loop {
            match self.governor.poll(now) {
                Action::Prewarm => {
                    self.outcome.prewarms += 1;
                    self.warmings += 1;
                    self.used(self.device.prewarm_energy);
                    if self.running.is_none() {
                        self.warmth.begin(now, Some(now + self.device.prewarm_span));
                    }
                }
                Action::Hold => {
                    self.holding = true;
                    self.outcome.holds += 1;
                    self.warmings += 1;
                    if self.running.is_none() {
                        self.warmth.begin(now, None);
                        self.charged = Some(now);
                    }
                }
                Action::Release(_) => {
                    self.holding = false;
                    if self.running.is_none() {
                        self.warmth.end(now);
                    }
                    self.charge(now, false);
                }
                Action::WaitUntil(at) => break self.wake = Some(at),
                Action::WaitForEvent => break self.wake = None,
            }
        }
    }

    /// Books a hold up to now; from now on it counts, or not.
    fn charge(&mut self, now: Instant, on: bool) {
        if let Some(since) = std::mem::replace(&mut self.charged, on.then_some(now)) {
            self.used(self.device.hold_power * now.since(since));
        }
        if self.unreported > Joules::ZERO {
            let energy = std::mem::take(&mut self.unreported);
            self.governor.on_event(now, Event::Energy(energy));
        }
    }

    fn used(&mut self, energy: Joules) {
        self.outcome.energy += energy;
        self.unreported += energy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::device;
    use everwarm_governor::policy;

    fn trace(gaps_ms: &[u64]) -> Trace {
        let request = |gap: &u64| Request {
            start: Start::After(Span::ms(*gap)),
            session: None,
            prompt_tokens: 100,
            generated_tokens: 6,
            ending: Ending::Turn,
        };
        Trace { name: "t".to_owned(), requests: gaps_ms.iter().map(request).collect() }
    }

    fn replay(trace: &Trace, name: &str, hints: Option<Hints>) -> Outcome {
        let config =
            Config { costs: device().costs(100), cap: Joules::wh(9.0), ..Config::default() };
        run(trace, &device(), policy(name).unwrap(), &config, hints)
    }

    #[test]
    fn never_loses_what_the_curve_says_and_uses_nothing() {
        let outcome = replay(&trace(&[1000, 50, 298, 9000]), "never", None);
        // 2 ms of host time count as idle.
        assert_eq!(outcome.ttft, [222, 202, 212, 222].map(Span::ms));
        assert_eq!(outcome.lost, Span::ms(20 + 10 + 20));
        assert_eq!((outcome.energy, outcome.false_warms), (Joules::ZERO, 0));
        // The first arrives after 1 s; then four services of 300 ms and what lies between.
        assert_eq!(outcome.span, Span::ms(9348 + 4 * 302 + 50));
    }

    #[test]
    fn always_loses_nothing_and_pays_for_the_time_between_requests_alone() {
        let outcome = replay(&trace(&[1000, 50, 298, 9000]), "always", None);
        assert_eq!(outcome.lost, Span::ZERO);
        let held = 1.0 + 0.05 + 0.298 + 9.0;
        assert!((outcome.energy.as_j() - 0.5 * held).abs() < 1e-6, "{}", outcome.energy);
        assert_eq!(outcome.false_warms, 0);
    }

    #[test]
    fn the_governors_cap_holds_whatever_is_asked() {
        let config = Config { cap: Joules::j(1.0), ..Config::default() };
        let slow = trace(&[60_000, 60_000, 60_000]);
        let outcome = run(&slow, &device(), policy("always").unwrap(), &config, None);
        assert!(outcome.energy <= Joules::j(1.0), "{}", outcome.energy);
        assert!(outcome.lost > Span::ZERO);
    }

    #[test]
    fn a_hint_ahead_saves_what_a_requests_own_head_cannot() {
        let slow = trace(&[600_000, 600_000]);
        let hints = Hints { lead: Span::ms(200), confidence: 1.0 };
        assert!(replay(&slow, "study", None).lost > Span::ZERO);
        assert_eq!(replay(&slow, "study", Some(hints)).lost, Span::ZERO);
    }

    #[test]
    fn requests_that_come_too_soon_wait_for_their_turn() {
        let mut together = trace(&[0, 0, 0]);
        together.requests.iter_mut().for_each(|request| request.start = Start::At(Span::ms(7)));
        let outcome = replay(&together, "never", None);
        assert_eq!(outcome.ttft, [222, 222 + 302, 222 + 604].map(Span::ms));
    }
}
