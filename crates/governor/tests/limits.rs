//! What holds for every policy of the table, whatever happens to it.

use everwarm_governor::{
    Action, Config, Costs, Ending, Event, Governor, HintSource, POLICIES, Reason, Session,
};
use everwarm_units::{Instant, Joules, Span, Watts};
use proptest::prelude::*;

/// What a caller would see: holds and kernels, and the energy they are estimated at.
struct Watch {
    governor: Governor,
    now: Instant,
    holding: Option<Instant>,
    used: Joules,
    forwarded: u32,
    blocked: bool,
    last_allowance: Instant,
    actions: u32,
}

const POWER: Watts = Watts::w(0.67);
const KERNEL: Joules = Joules::mj(30.0);
const CAP: Joules = Joules::j(50.0);
const HOLD_FOR: Span = Span::s(20);
/// The longest that anything can be wished ahead of an event: a hint's time and its patience.
const WISHED_MAX: Span = Span::s(8 + 5);

fn finished(work: bool, session: Option<u64>) -> Event {
    Event::ResponseFinished { work, session: session.map(Session), ending: Ending::ToolCalls }
}

impl Watch {
    fn new(policy: &everwarm_governor::Entry) -> Self {
        let costs = Costs { hold_power: POWER, prewarm_energy: KERNEL, ..Costs::default() };
        let config = Config { hold_for: HOLD_FOR, cap: CAP, costs, ..Config::default() };
        Watch {
            governor: Governor::new(policy, config),
            now: Instant::ZERO,
            holding: None,
            used: Joules::ZERO,
            forwarded: 0,
            blocked: false,
            last_allowance: Instant::ZERO,
            actions: 0,
        }
    }

    /// Drains `poll` at `now`; returns when to poll again.
    fn drain(&mut self) -> Option<Instant> {
        for _ in 0..8 {
            match self.governor.poll(self.now) {
                Action::Prewarm => {
                    assert_eq!(self.forwarded, 0, "a kernel while a request runs");
                    assert!(!self.blocked, "a kernel without power or device");
                    self.used += KERNEL;
                    self.actions += 1;
                }
                Action::Hold => {
                    assert_eq!(self.forwarded, 0, "a hold begun while a request runs");
                    assert!(!self.blocked, "a hold without power or device");
                    assert_eq!(self.holding.replace(self.now), None, "held twice");
                    self.actions += 1;
                }
                Action::Release(reason) => {
                    let since = self.holding.take().expect("released without a hold");
                    self.used += POWER * self.now.since(since);
                    assert!(!self.blocked || reason != Reason::NotExpected);
                    self.actions += 1;
                }
                Action::WaitUntil(at) => {
                    assert!(at > self.now, "asked to wait for the past");
                    return Some(at);
                }
                Action::WaitForEvent => return None,
            }
            let held = self.holding.map_or(Joules::ZERO, |s| POWER * self.now.since(s));
            assert!(self.used + held <= CAP + Joules::mj(1.0), "{} used", self.used + held);
        }
        panic!("poll does not come to an end");
    }

    /// Lets time pass as the contract says: poll whenever the governor asked for it.
    fn pass(&mut self, span: Span) {
        let end = self.now + span;
        while let Some(at) = self.drain() {
            if at > end {
                break;
            }
            self.now = at;
        }
        self.now = end;
        self.drain();
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::RequestForwarded { work: true } => self.forwarded += 1,
            Event::ResponseFinished { work: true, .. } => self.forwarded -= 1,
            Event::PowerLost => self.blocked = true,
            Event::PowerRestored => self.blocked = false,
            _ => {}
        }
        self.last_allowance = self.now;
        self.governor.on_event(self.now, event);
        self.drain();
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Connection,
    Gone,
    Probe,
    Request { prefill_ms: u64, decode_ms: u64, session: Option<u64>, told: bool },
    Hint { expected_ms: u64, confidence: f64 },
    NoPower(u64),
    Fail,
    Models,
    Preflight,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..30_000).prop_map(Step::Pass),
        2 => Just(Step::Connection),
        1 => Just(Step::Gone),
        1 => Just(Step::Probe),
        3 => (0u64..3000, 0u64..3000, prop::option::of(0u64..4), any::<bool>()).prop_map(
            |(prefill_ms, decode_ms, session, told)| Step::Request {
                prefill_ms,
                decode_ms,
                session,
                told,
            }
        ),
        3 => (0u64..8000, 0.0..1.0)
            .prop_map(|(expected_ms, confidence)| Step::Hint { expected_ms, confidence }),
        1 => (0u64..5000).prop_map(Step::NoPower),
        1 => Just(Step::Fail),
        1 => Just(Step::Models),
        1 => Just(Step::Preflight),
    ]
}

fn play(watch: &mut Watch, step: &Step) {
    match *step {
        Step::Pass(ms) => watch.pass(Span::ms(ms)),
        Step::Connection => watch.event(Event::ConnectionAccepted),
        Step::Models => watch.event(Event::ModelsListed),
        Step::Preflight => watch.event(Event::Preflight),
        Step::Gone => watch.event(Event::ConnectionClosed),
        Step::Probe => {
            watch.event(Event::RequestHead { work: false });
            watch.event(Event::RequestForwarded { work: false });
            watch.event(finished(false, None));
        }
        Step::Request { prefill_ms, decode_ms, session, told } => {
            watch.event(Event::RequestHead { work: true });
            if let Some(session) = session.filter(|_| told) {
                let session = Session(session);
                watch.event(Event::SessionKnown { session, since: Span::ZERO });
            }
            watch.event(Event::RequestForwarded { work: true });
            watch.pass(Span::ms(prefill_ms));
            watch.event(Event::DecodeRunning);
            watch.pass(Span::ms(decode_ms));
            watch.event(finished(true, session));
        }
        Step::Hint { expected_ms, confidence } => watch.event(Event::Hint {
            source: HintSource::KeyStroke,
            expected: Some(Span::ms(expected_ms)),
            confidence,
            session: None,
        }),
        Step::NoPower(ms) => {
            watch.event(Event::PowerLost);
            assert_eq!(watch.holding, None, "held while the machine must save power");
            watch.pass(Span::ms(ms));
            watch.event(Event::PowerRestored);
        }
        Step::Fail => {
            watch.event(Event::WarmingFailed);
            watch.pass(Span::ms(10));
            assert_eq!(watch.holding, None, "held on a device that failed");
            watch.event(Event::WarmingRestored);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Kernels, holds and their energy stay inside the limits (checked at every action), and time
    /// alone ends in a release.
    #[test]
    fn limits_hold(steps in prop::collection::vec(step(), 1..40)) {
        for policy in POLICIES {
            let mut watch = Watch::new(policy);
            for step in &steps {
                play(&mut watch, step);
            }
            watch.pass(Span::s(3600));
            prop_assert_eq!(watch.holding, None, "{} still holds", policy.name);
            if policy.name == "never" {
                prop_assert_eq!(watch.actions, 0);
            }
        }
    }

    /// The study's policy holds no longer after the last event than anything allowed it to.
    #[test]
    fn study_lets_go(steps in prop::collection::vec(step(), 1..40)) {
        let mut watch = Watch::new(&POLICIES[0]);
        for step in &steps {
            play(&mut watch, step);
        }
        let allowed = HOLD_FOR.max(WISHED_MAX);
        let passed = watch.now.since(watch.last_allowance);
        watch.pass(allowed.saturating_sub(passed) + Span::ms(1));
        prop_assert_eq!(watch.holding, None);
    }
}

#[test]
fn what_is_measured_later_takes_nothing_from_what_never_was() {
    let costs = Costs { hold_power: POWER, prewarm_energy: KERNEL, ..Costs::default() };
    let config = Config { hold_for: HOLD_FOR, cap: CAP, costs, ..Config::default() };
    let always = POLICIES.iter().find(|entry| entry.name == "always").unwrap();
    let mut governor = Governor::new(always, config);
    while !matches!(governor.poll(Instant::ZERO), Action::WaitUntil(_) | Action::WaitForEvent) {}
    let at = |seconds| Instant::ZERO + Span::s(seconds);
    // Somebody else's work was in these ten seconds, and not in the next one.
    governor.not_measured(at(10));
    governor.on_event(at(11), Event::Energy(Joules::j(0.1)));
    let (used, _) = governor.energy(at(11));
    let expected = POWER * Span::s(10) + Joules::j(0.1);
    assert!((used.as_j() - expected.as_j()).abs() < 1e-9, "{used} but {expected}");
}
