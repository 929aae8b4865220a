//! The warmer by the wall clock, on a simulated device that it paces itself.

use everwarm_governor::{Event, HintSource};
use everwarm_hold::{Config, Shape, State, Status, Warmer, virtually};
use everwarm_units::{Joules, Span};
use std::time::{Duration, Instant};

fn config(device: Option<&str>, policy: &str) -> Config {
    Config {
        device: device.map(str::to_owned),
        policy: policy.to_owned(),
        governor: everwarm_governor::Config::default(),
        shape: Shape::default(),
        surroundings: everwarm_hold::Surroundings::Ignored,
    }
}

/// The first status that fits, or a panic with the last one after ten seconds.
fn until(warmer: &Warmer, fits: impl Fn(&Status) -> bool) -> Status {
    let began = Instant::now();
    loop {
        let status = warmer.handle().status();
        if fits(&status) {
            return status;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "never came about; last: {status:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_hint_warms_and_another_policy_lets_go() {
    let warmer = Warmer::spawn(config(Some("sim:m2"), "study")).unwrap();
    let handle = warmer.handle();
    until(&warmer, |s| s.warm.state == State::Resting);
    let told = everwarm_gpu::Monotonic::now().0;
    handle.tell(Event::Hint {
        source: HintSource::KeyStroke,
        expected: None,
        confidence: 1.0,
        session: None,
    });
    let status = until(&warmer, |s| s.last_prewarm.is_some_and(|p| p.gpu_start_ns.is_some()));
    let prewarm = status.last_prewarm.unwrap();
    assert!(prewarm.submitted_ns >= told);
    assert!(prewarm.gpu_start_ns.unwrap() > prewarm.submitted_ns);
    let holding = until(&warmer, |s| s.counters.hold_buffers > 5);
    assert_eq!(holding.warm.state, State::Holding);
    assert_eq!((holding.counters.prewarms, holding.counters.holds), (1, 1));
    handle.follow("never").unwrap();
    let status = until(&warmer, |s| s.warm.state == State::Resting);
    assert_eq!(status.policy, "never");
    assert_eq!(status.counters.releases.iter().sum::<u64>(), 1);
    assert!(status.energy.total_j > 0.0);
    assert!(handle.follow("sometimes").is_err());
}

#[test]
fn a_device_that_is_not_there_is_a_state_and_no_error() {
    let warmer = Warmer::spawn(config(Some("sim:/nowhere/at-all.sock"), "always")).unwrap();
    let handle = warmer.handle();
    for _ in 0..100 {
        handle.tell(Event::ConnectionAccepted);
    }
    let status = until(&warmer, |s| s.counters.failures >= 2);
    assert_eq!(status.warm.state, State::Unavailable);
    assert!(status.warm.why.contains("/nowhere/at-all.sock"), "{}", status.warm.why);
    assert_eq!(status.counters.holds, 0);
    assert!(Warmer::spawn(config(None, "sometimes")).is_err());
}

#[test]
fn without_a_device_nothing_is_counted_as_warmed() {
    let warmer = Warmer::spawn(config(None, "always")).unwrap();
    warmer.handle().tell(Event::ConnectionAccepted);
    let status = until(&warmer, |s| s.warm.state == State::Off);
    assert_eq!((status.counters.holds, status.counters.prewarms), (0, 0));
}

#[test]
fn ten_minutes_in_virtual_time_are_over_at_once_and_alike_every_time() {
    let hold = |cap: Joules| {
        let governor = everwarm_governor::Config { cap, ..Default::default() };
        virtually("sim:m2", Span::s(600), governor, Shape::default()).unwrap()
    };
    let summary = hold(Joules::wh(2.0));
    assert_eq!(summary, hold(Joules::wh(2.0)));
    assert!(summary.held >= Span::s(600) && summary.held < Span::s(601), "{summary:?}");
    assert_eq!(summary.ended_by, None);
    let energy = summary.energy.unwrap();
    // Source: study 4.1 (0.59 W on the GPU rail, 0.08 W of CPU).
    let power = (energy / summary.held).as_w();
    assert!((0.5..0.8).contains(&power), "{power} W");
    let capped = hold(energy / 2.0);
    assert!(capped.ended_by.is_some() && capped.energy.unwrap() <= energy / 2.0, "{capped:?}");
    assert!((capped.held.as_secs() - 300.0).abs() < 5.0, "{capped:?}");
}

#[test]
fn a_machine_on_battery_is_not_warmed_until_it_is_plugged_in() {
    let root = tempfile::tempdir().unwrap();
    let battery = root.path().join("class/power_supply/BAT0");
    std::fs::create_dir_all(&battery).unwrap();
    std::fs::write(battery.join("type"), "Battery").unwrap();
    std::fs::write(battery.join("status"), "Discharging").unwrap();
    let tree = everwarm_hold::Surroundings::Tree(root.path().to_owned());
    let config = Config { surroundings: tree, ..config(Some("sim:m2"), "always") };
    let warmer = Warmer::spawn(config).unwrap();
    warmer.handle().tell(Event::ConnectionAccepted);
    let status = until(&warmer, |s| s.warm.state == State::Resting);
    assert_eq!(status.warm.why, "the machine must save power: it runs on battery");
    assert_eq!((status.counters.holds, status.counters.prewarms), (0, 0));
    warmer.handle().tell(Event::PowerRestored);
    until(&warmer, |s| s.warm.state == State::Holding);
}
