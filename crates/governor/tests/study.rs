//! The `study` policy, told as stories: what happens, and which actions come when.

use everwarm_governor::{Action, Config, Ending, Event, Governor, HintSource, Reason, policy};
use everwarm_units::{Instant, Joules, Span};

/// Plays `(ms, event)` and returns all actions but the waiting as "ms action" lines.
fn play(config: &Config, story: &[(u64, Event)], until_ms: u64) -> Vec<String> {
    let mut governor = Governor::new(policy("study").unwrap(), config.clone());
    let mut lines = Vec::new();
    let mut wake = None;
    let mut story = story.iter().peekable();
    loop {
        let event_at = story.peek().map(|(ms, _)| Instant::ZERO + Span::ms(*ms));
        let now = match (event_at, wake) {
            (Some(e), Some(w)) => e.min(w),
            (Some(t), None) | (None, Some(t)) => t,
            (None, None) => break,
        };
        if now > Instant::ZERO + Span::ms(until_ms) {
            break;
        }
        if event_at == Some(now) {
            governor.on_event(now, story.next().unwrap().1);
        }
        wake = loop {
            match governor.poll(now) {
                Action::WaitUntil(at) => break Some(at),
                Action::WaitForEvent => break None,
                Action::Prewarm => lines.push(format!("{} prewarm", now.as_ms().round())),
                Action::Hold => lines.push(format!("{} hold", now.as_ms().round())),
                Action::Release(why) => {
                    lines.push(format!("{} release {}", now.as_ms().round(), why.name()));
                }
            }
        };
    }
    lines
}

fn check(story: &[(u64, Event)], expected: &[&str]) {
    assert_eq!(play(&Config::default(), story, 1_000_000), expected);
}

const HEAD: Event = Event::RequestHead { work: true };
const FORWARDED: Event = Event::RequestForwarded { work: true };
const FINISHED: Event =
    Event::ResponseFinished { work: true, session: None, ending: Ending::Unknown };

fn hint(expected_ms: u64) -> Event {
    Event::Hint {
        source: HintSource::KeyStroke,
        expected: Some(Span::ms(expected_ms)),
        confidence: 1.0,
        session: None,
    }
}

#[test]
fn a_request_out_of_nowhere() {
    check(
        &[
            (1000, Event::ConnectionAccepted),
            (1001, HEAD),
            (1001, FORWARDED),
            (1150, Event::DecodeRunning),
            (3000, FINISHED),
        ],
        &[
            "1000 prewarm",
            "1000 hold",
            "1150 release request_runs",
            "3100 hold",
            "63000 release not_expected",
        ],
    );
}

#[test]
fn a_probe_is_let_go_at_once_and_opens_nothing() {
    check(
        &[
            (1000, Event::ConnectionAccepted),
            (1001, Event::RequestHead { work: false }),
            (1001, Event::RequestForwarded { work: false }),
            (1002, Event::ResponseFinished { work: false, session: None, ending: Ending::Unknown }),
        ],
        &["1000 prewarm", "1000 hold", "1001 release not_expected"],
    );
}

#[test]
fn probes_in_a_row_are_not_believed_until_there_is_work() {
    let mut story = Vec::new();
    for second in 1..=20 {
        story.push((second * 1000, Event::ConnectionAccepted));
        story.push((second * 1000 + 1, Event::RequestHead { work: false }));
        story.push((
            second * 1000 + 2,
            Event::ResponseFinished { work: false, session: None, ending: Ending::Unknown },
        ));
        story.push((second * 1000 + 3, Event::ConnectionClosed));
    }
    let prewarms = |lines: &[String]| lines.iter().filter(|l| l.contains("prewarm")).count();
    let config = Config { hold_for: Span::ZERO, ..Config::default() };
    assert_eq!(prewarms(&play(&config, &story, 1_000_000)), 4);
    story.extend([
        (30_000, Event::ConnectionAccepted),
        (30_001, HEAD),
        (30_001, FORWARDED),
        (30_100, FINISHED),
        (40_000, Event::ConnectionAccepted),
    ]);
    let lines = play(&config, &story, 1_000_000);
    assert!(lines.contains(&"30001 prewarm".to_owned()), "{lines:?}");
    assert!(lines.contains(&"40000 prewarm".to_owned()), "{lines:?}");
}

#[test]
fn key_strokes_prolong_one_hold_and_a_pause_ends_it() {
    check(
        &[(0, hint(0)), (300, hint(0)), (600, hint(0))],
        &["0 prewarm", "0 hold", "5600 release not_expected"],
    );
}

#[test]
fn a_hint_for_later_waits() {
    check(&[(0, hint(9000))], &["8000 prewarm", "8000 hold", "14000 release not_expected"]);
}

#[test]
fn a_connection_that_says_nothing_is_let_go() {
    check(&[(0, Event::ConnectionAccepted)], &["0 prewarm", "0 hold", "1000 release not_expected"]);
}

#[test]
fn a_long_prefill_carries_itself() {
    check(&[(0, HEAD), (1, FORWARDED)], &["0 prewarm", "0 hold", "1001 release request_runs"]);
}

#[test]
fn an_agent_that_returns_within_the_grace_needs_no_kernel() {
    check(
        &[
            (0, HEAD),
            (1, FORWARDED),
            (200, FINISHED),
            (260, HEAD),
            (261, FORWARDED),
            (300, FINISHED),
        ],
        &[
            "0 prewarm",
            "0 hold",
            "200 release not_expected",
            "260 hold",
            "300 release not_expected",
            "400 hold",
            "60300 release not_expected",
        ],
    );
}

#[test]
fn no_hold_after_a_request_where_none_is_allowed() {
    let config = Config { hold_for: Span::ZERO, ..Config::default() };
    let lines = play(&config, &[(0, HEAD), (1, FORWARDED), (200, FINISHED)], 1_000_000);
    assert_eq!(lines, ["0 prewarm", "0 hold", "200 release not_expected"]);
}

#[test]
fn the_cap_ends_a_hold_and_a_measurement_corrects_it() {
    let config = Config { cap: Joules::j(6.73), ..Config::default() };
    let story = [(0, HEAD), (0, FORWARDED), (0, FINISHED)];
    // 6.73 J less one kernel done and one kept back: 6.67 J at 0.67 W.
    assert_eq!(play(&config, &story, 100_000).last().unwrap(), "10054 release cap_reached");
    let measured = [story[0], story[1], story[2], (5100, Event::Energy(Joules::j(0.5)))];
    // The kernel and 5 s of holding used only 0.5 J: 6.2 J are left, 9.25 s.
    assert_eq!(play(&config, &measured, 100_000).last().unwrap(), "14353 release cap_reached");
}

#[test]
fn changing_the_policy_releases() {
    let mut governor = Governor::new(policy("always").unwrap(), Config::default());
    assert_eq!(governor.poll(Instant::ZERO), Action::Hold);
    governor.follow(policy("never").unwrap());
    assert_eq!(governor.poll(Instant::ZERO), Action::Release(Reason::PolicyChanged));
    assert_eq!(governor.poll(Instant::ZERO), Action::WaitForEvent);
    assert!(
        policy("sometimes")
            .err()
            .unwrap()
            .to_string()
            .contains("study, learned, ski-rental, timer, never")
    );
}
