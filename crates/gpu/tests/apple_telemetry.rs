//! The decoders of macOS telemetry, on made-up samples (their heads say after what) and on garbage.

use everwarm_dvfs::Traced;
use everwarm_gpu::backend::metal::telemetry::channel::{Channel, Sample, Value};
use everwarm_gpu::backend::metal::telemetry::machine::Machine;
use everwarm_gpu::backend::metal::telemetry::meter::{Meter, slack};
use everwarm_gpu::backend::metal::telemetry::table::{self, Clocks};
use everwarm_gpu::backend::metal::telemetry::tree::{self, Properties, chip_file};
use everwarm_units::{Instant, Joules, PState, Span};
use proptest::prelude::*;

/// The lines of a fixture without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The samples of a fixture, each with its time.
fn samples(text: &str) -> Vec<(Instant, Sample)> {
    let mut all: Vec<(Instant, Vec<Channel>)> = Vec::new();
    for line in lines(text) {
        if let Some(at) = line.strip_prefix("@ ") {
            all.push((Instant::ZERO + at.parse::<Span>().unwrap(), Vec::new()));
            continue;
        }
        let parts: Vec<&str> = line.split('|').map(str::trim).collect();
        let [group, subgroup, name, unit, value] = parts[..] else { panic!("{line}") };
        let state = |word: &str| {
            let (name, ticks) = word.split_once('=').unwrap();
            (name.to_owned(), ticks.parse().unwrap())
        };
        let value = match value.contains('=') {
            true => Value::States(value.split(' ').map(state).collect()),
            false => Value::Simple(value.parse().unwrap()),
        };
        let [group, subgroup, name, unit] = [group, subgroup, name, unit].map(str::to_owned);
        all.last_mut().unwrap().1.push(Channel { group, subgroup, name, unit, value });
    }
    all.into_iter().map(|(at, channels)| (at, Sample::of(&channels))).collect()
}

/// The properties of one node of a fixture.
fn node(text: &str, name: &str) -> Properties {
    let bytes = |text: &str| {
        let (form, values) = text.split_once(' ').unwrap();
        let word = |text: &str| text.parse::<u32>().unwrap().to_le_bytes();
        match form {
            "u32" => word(values).to_vec(),
            "f32" => values.parse::<f32>().unwrap().to_le_bytes().to_vec(),
            _ => values.split([' ', ',']).flat_map(word).collect(),
        }
    };
    let ours = lines(text).filter_map(|line| line.strip_prefix(name)?.strip_prefix('/'));
    let ours = ours.map(|line| line.split_once(": ").unwrap());
    ours.map(|(property, value)| (property.to_owned(), bytes(value))).collect()
}

const M2: (&str, &str) =
    (include_str!("fixtures/apple/m2.samples"), include_str!("fixtures/apple/m2.tree"));
const M4: (&str, &str) =
    (include_str!("fixtures/apple/m4.samples"), include_str!("fixtures/apple/m4.tree"));

fn clocks(tree: &str, states: usize) -> Clocks {
    let (_, table) = table::find(&node(tree, "pmgr"), Some(states)).unwrap();
    Clocks::of(&table).unwrap()
}

fn ms(of: &[Span]) -> Vec<f64> {
    of.iter().map(|span| span.as_ms()).collect()
}

#[test]
fn an_m2_is_read_window_by_window() {
    let mut meter = Meter::new(Some(clocks(M2.1, 8)));
    let mut readings = Vec::new();
    for (at, sample) in samples(M2.0) {
        meter.add(at, sample);
        readings.push(meter.reading());
    }
    let zero = vec![0.0; 9];
    assert_eq!(ms(readings[0].residency.as_ref().unwrap()), zero);
    assert_eq!((readings[0].pstate, readings[0].clock), (None, None));

    assert_eq!(readings[1].pstate, Some(PState::OFF));
    assert_eq!(readings[1].clock, None);
    assert!((readings[1].gpu_energy.unwrap().as_mj() - 80.0).abs() < 1e-6);

    let ramp = [1030.0, 20.0, 0.0, 20.0, 180.0, 0.0, 0.0, 0.0, 0.0];
    assert_eq!(ms(readings[2].residency.as_ref().unwrap()), ramp);
    assert_eq!(readings[2].pstate, None);
    let mean = (20.0 * 444.0 + 20.0 * 808.0 + 180.0 * 968.0) / 220.0;
    assert!((readings[2].clock.unwrap().as_mhz() - mean).abs() < 1e-6);

    assert_eq!(readings[3].pstate, Some(PState(8)));
    assert!((readings[3].clock.unwrap().as_mhz() - 1398.0).abs() < 1e-6);
    assert_eq!(readings[3].breaks, 0);
    assert_eq!(readings[3].missing, []);
}

#[test]
fn an_m4s_states_come_by_ascending_clock() {
    let clocks = clocks(M4.1, 15);
    assert!(!clocks.in_firmware_order());
    let mut meter = Meter::new(Some(clocks));
    for (at, sample) in samples(M4.0) {
        meter.add(at, sample);
    }
    let reading = meter.reading();
    let times = ms(reading.residency.as_ref().unwrap());
    // The firmware's P7 (1053 MHz) is slower than its P6 (1056 MHz).
    assert_eq!(
        (times[0], times[3], times[6], times[7], times[15]),
        (100.0, 150.0, 50.0, 100.0, 100.0)
    );
    let mean = (150.0 * 796.0 + 100.0 * 1056.0 + 50.0 * 1053.0 + 100.0 * 1578.0) / 400.0;
    assert!((reading.clock.unwrap().as_mhz() - mean).abs() < 1e-6);
    assert!((reading.gpu_energy.unwrap().as_j() - 2.0).abs() < 1e-9);
}

/// Two samples, `wall` ms apart, of which the second has so many ms and mJ more; its states may
/// come in another order, or be others.
fn window(first: [&str; 3], names: [&str; 3], counts: [i64; 3], energy: i64, wall: u64) -> Meter {
    let sample = |names: [&str; 3], counts: [i64; 3], energy: i64| {
        let states = names.into_iter().zip(counts).map(|(n, c)| (n.to_owned(), c)).collect();
        let channel = |group: &str, sub: &str, name: &str, unit: &str, value| Channel {
            group: group.into(),
            subgroup: sub.into(),
            name: name.into(),
            unit: unit.into(),
            value,
        };
        let states = Value::States(states);
        let (group, sub) = ("GPU Stats", "GPU Performance States");
        Sample::of(&[
            channel(group, sub, "GPUPH", "ms", states),
            channel("Energy Model", "", "GPU Energy", "mJ", Value::Simple(energy)),
        ])
    };
    let mut meter = Meter::new(None);
    meter.add(Instant::ZERO, sample(first, [1000; 3], 1000));
    let at = Instant::ZERO + Span::ms(wall);
    meter.add(at, sample(names, counts.map(|c| c + 1000), energy + 1000));
    meter
}

#[test]
fn what_does_not_add_up_is_none_and_says_why() {
    let check = |names: ([&str; 3], [&str; 3]), counts, energy, residency: &str, power: &str| {
        let reading = window(names.0, names.1, counts, energy, 1000).reading();
        let why = |field: &str| {
            let found = reading.missing.iter().find(|(name, _)| *name == field);
            found.map_or("", |(_, why)| why.as_str())
        };
        let told = |field, expected: &str| {
            let why = why(field);
            assert!(
                why.contains(expected) && why.is_empty() == expected.is_empty(),
                "{field}: {why}"
            );
        };
        told("residency", residency);
        told("gpu_energy", power);
        assert_eq!(reading.residency.is_none(), !residency.is_empty());
        assert_eq!(reading.gpu_energy.is_none(), !power.is_empty());
    };
    let states = ["OFF", "P1", "P2"];
    let usual = (states, states);
    let (odd, strange) = (["OFF", "ODD", "P2"], ["OFF", "A", "B"]);
    check(usual, [500, 300, 200], 7, "", "");
    check(usual, [500, 300, 220], 7, "", ""); // within the slack
    check(usual, [500, 300, 0], 7, "sum to 800 ms", "");
    check(usual, [500, 300, 9000], 7, "sum to 9.8 s", "");
    // Began anew: after a sleep, or a wrap.
    check(usual, [500, 300, -900], 7, "the counter of `P2` went back", "");
    check(usual, [500, 300, 200], -1, "", "`GPU Energy` went back");
    check(usual, [i64::MIN + 1000; 3], 7, "went back", "");
    check((states, ["DOZE", "P1", "P2"]), [500, 300, 200], 7, "`DOZE` was not there before", "");
    check((states, ["P2", "P1", "OFF"]), [200, 300, 500], 7, "", "");
    check((odd, odd), [500, 300, 200], 7, "`ODD` (300 ms)", "");
    check((odd, odd), [790, 10, 200], 7, "", "");
    check((strange, strange), [500, 300, 200], 7, "unknown meaning", "");
}

#[test]
fn a_break_is_forgiven_once_it_is_a_small_part() {
    let mut meter = window(["OFF", "P1", "P2"], ["OFF", "P1", "P2"], [500, 300, -900], 7, 1000);
    assert_eq!(meter.reading().breaks, 1);
    let (mut off, mut at) = (10_000, Span::s(1));
    let sample = |off: i64| {
        let states = [("OFF", off), ("P1", 1300), ("P2", 100)];
        let states = states.map(|(name, ticks)| (name.to_owned(), ticks)).to_vec();
        let mut sample = Sample::none("not asked for");
        let states = everwarm_gpu::backend::metal::telemetry::channel::States {
            tick_ns: 1e6,
            ticks: states,
        };
        sample.states = Ok(states);
        sample
    };
    meter.add(Instant::ZERO + at, sample(off));
    for _ in 0..200 {
        off += 1000;
        at += Span::s(1);
        meter.add(Instant::ZERO + at, sample(off));
    }
    let reading = meter.reading();
    assert_eq!(reading.breaks, 201, "energy was in none of the later samples");
    assert!(reading.gpu_energy.is_none());
    let sum: Span = reading.residency.unwrap().into_iter().sum();
    let apart = at.saturating_sub(sum);
    assert!(apart <= slack(at) && apart >= Span::ms(900), "{apart}");
}

#[test]
fn tables_are_found_in_hz_and_in_khz() {
    let (name, table) = table::find(&node(M2.1, "pmgr"), Some(8)).unwrap();
    assert_eq!((name.as_str(), table.in_khz, table.points.len()), ("voltage-states9", false, 8));
    assert_eq!(table.points[7].clock.as_mhz(), 1398.0);
    assert_eq!(table.points[0].voltage.unwrap().as_mv().round(), 603.0);
    let (_, table) = table::find(&node(M4.1, "pmgr"), None).unwrap();
    assert_eq!((table.in_khz, table.points.len()), (true, 15));
    assert_eq!(table.points[14].clock.as_mhz(), 1578.0);

    // Another name serves if it alone has as many states; the CPU's table of two does not.
    let mut pmgr = node(M2.1, "pmgr");
    let gpu = pmgr.remove("voltage-states9").unwrap();
    assert!(table::find(&pmgr, Some(8)).unwrap_err().contains("there is no `voltage-states9`"));
    pmgr.insert("voltage-states13".into(), gpu.clone());
    assert_eq!(table::find(&pmgr, Some(8)).unwrap().0, "voltage-states13");
    assert!(table::find(&pmgr, None).is_err());
    let mut other = gpu;
    other[8] = 1;
    pmgr.insert("voltage-states14".into(), other);
    assert!(table::find(&pmgr, Some(8)).unwrap_err().contains("2 others fit"));

    let check = |bytes: &[u8], expected: &str| {
        let error = table::read(bytes).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check(&[], "has 0 bytes");
    check(&[0; 7], "has 7 bytes");
    check(&[0; 16], "no GPU's in Hz or kHz");
    check(&[0xff; 8], "has 4294967295 as its highest");
    check(&[0x46, 0xc5, 0x0b, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0], "too low beside 771398");
}

#[test]
fn the_device_tree_makes_a_chip_file_that_can_be_read() {
    let machine = Machine {
        chip: Some("Apple M2".into()),
        model: Some("Mac14,2".into()),
        gpu_cores: Some(10),
        ..Machine::default()
    };
    let found = tree::parameters(&node(M2.1, "sgx"));
    assert_eq!((found.controller.len(), found.refused.len()), (10, 0));
    assert!(found.others.contains(&("gpu-avg-power-ki-only".into(), "9.375".into())));
    assert!(found.others.contains(&("gpu-se-inactive-threshold".into(), "2500".into())));
    let text = chip_file(&machine, &found, None).unwrap();
    let chip = read(&text);
    let m2 = everwarm_dvfs::Chip::built_in("m2").unwrap();
    assert_eq!(chip.chip.controller, m2.controller);
    assert_eq!(chip.chip.cores, Some(10));
    let clocks = |chip: &everwarm_dvfs::Chip| {
        chip.pstates.iter().map(|p| p.clock.as_mhz()).collect::<Vec<_>>()
    };
    assert_eq!(clocks(&chip.chip), clocks(&m2));
    let gain = chip.values.iter().find(|v| v.path.join(".") == "controller.integral_gain").unwrap();
    assert_eq!(gain.origin(), "device tree: gpu-perf-integral-gain");

    // M4: two states share a voltage, and the base state is the firmware's P3.
    let machine = Machine { chip: Some("Apple M4 \"x\"\n".into()), ..Machine::default() };
    let found = tree::parameters(&node(M4.1, "sgx"));
    let chip = read(&chip_file(&machine, &found, None).unwrap()).chip;
    assert_eq!(
        clocks(&chip),
        [338.0, 618.0, 796.0, 928.0, 1056.0, 1170.0, 1278.0, 1338.0, 1470.0, 1578.0]
    );
    assert_eq!((chip.controller.base_pstate, chip.controller.sample_period), (3, Span::us(8333)));
    // Without its own table the clocks are `pmgr`'s, without both nothing can be said.
    let (_, table) = table::find(&node(M4.1, "pmgr"), None).unwrap();
    let none = tree::Parameters::default();
    assert_eq!(clocks(&read(&chip_file(&machine, &none, Some(&table)).unwrap()).chip).len(), 10);
    assert!(chip_file(&machine, &none, None).is_err());
}

#[test]
fn a_mac_of_any_name_and_table_makes_a_whole_chip() {
    for tree in [M2.1, M4.1] {
        let found = tree::parameters(&node(tree, "sgx"));
        for size in ["", " Pro", " Max", " Ultra"] {
            for generation in 1..=5 {
                let chip = Some(format!("Apple M{generation}{size}"));
                let machine = Machine { chip, gpu_cores: Some(20), ..Machine::default() };
                read(&chip_file(&machine, &found, None).unwrap());
            }
        }
    }
}

#[test]
fn the_page_names_every_property_and_its_key() {
    let page = include_str!("../../../docs/chips.md");
    for (property, key) in tree::keys() {
        let row = page.lines().find(|line| line.contains(&format!("`{property}`")));
        let row = row.unwrap_or_else(|| panic!("{property} is not in docs/chips.md"));
        assert!(row.contains(&format!("`{key}`")), "{property} stands for {key}: {row}");
    }
}

/// On the day when there is a Mac. A virtual one may tell nothing: then it says why.
#[cfg(target_os = "macos")]
#[test]
fn a_mac_tells_or_says_why_not() {
    use everwarm_gpu::backend::metal::telemetry::Telemetry;
    let mut telemetry = Telemetry::open().unwrap();
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let reading = telemetry.read();
        println!("{reading:?}");
        let told = |field: &str| !reading.missing.iter().any(|(missing, _)| *missing == field);
        assert_eq!(told("residency"), reading.residency.is_some());
        assert_eq!(told("gpu_energy"), reading.gpu_energy.is_some());
    }
    let environment = everwarm_gpu::Environment::read();
    for (what, value) in telemetry.facts().into_iter().chain(environment.facts()) {
        println!("{what}: {value}");
        assert!(!what.is_empty() && !value.is_empty());
    }
    println!("{:?}", telemetry.inventory().chip_file());
}

#[cfg(not(target_os = "macos"))]
#[test]
fn elsewhere_than_on_a_mac_everything_says_so() {
    use everwarm_gpu::backend::{metal::telemetry::Telemetry, traced_chip};
    assert_eq!(Telemetry::open().err().unwrap(), "needs macOS");
    let watched = everwarm_gpu::watch("metal:0").err().unwrap().to_string();
    let chip = traced_chip("metal:0").unwrap_err().to_string();
    assert!(watched.contains("needs macOS") && chip.contains("needs macOS"), "{watched}, {chip}");
    assert!(everwarm_gpu::watch("metal:7").err().unwrap().to_string().contains("metal:0"));
    assert!(traced_chip("cuda:0").unwrap_err().to_string().contains("sim:NAME and metal:0"));
}

fn read(text: &str) -> Traced {
    let none = |_: &str, _: &str| Err("a built-in chip was expected".to_owned());
    Traced::from_toml("device tree", text, &none).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn a_property_of_another_form_fills_no_key() {
    let check = |property: &str, bytes: &[u8], expected: &str| {
        let node = Properties::from([(property.to_owned(), bytes.to_vec())]);
        let found = tree::parameters(&node);
        assert_eq!(found.controller, [], "{property}");
        assert!(found.refused[0].contains(expected), "{:?}", found.refused);
    };
    check("gpu-perf-base-pstate", &[1], "has 1 bytes, expected a number of 4");
    check("gpu-perf-base-pstate", &[0; 4], "is 0, expected 1 to 100");
    check("gpu-perf-tgt-utilization", &101u32.to_le_bytes(), "is 101, expected 1 to 100");
    check("gpu-perf-integral-gain", &6u32.to_le_bytes(), "as a float");
    check("gpu-perf-integral-gain", &f32::NAN.to_le_bytes(), "as a float");
    check("perf-states", &[], "has 0 bytes");
}

proptest! {
    #[test]
    fn garbage_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        name in "(gpu-|perf-|voltage-)[a-z0-9-]{0,30}|gpu-perf-base-pstate|perf-states|perf-state-count|voltage-states9",
        states in prop::option::of(0usize..20),
    ) {
        let node = Properties::from([
            (name, bytes.clone()),
            ("perf-states".into(), bytes.clone()),
            ("voltage-states8".into(), bytes.clone()),
        ]);
        let _ = table::find(&node, states);
        let found = tree::parameters(&node);
        if let Ok(text) = chip_file(&Machine::default(), &found, table::read(&bytes).ok().as_ref()) {
            let none = |_: &str, _: &str| Err("none".to_owned());
            // It may be refused for its values, never for its form.
            let read = Traced::from_toml("garbage", &text, &none).map_err(|e| e.to_string());
            prop_assert!(read.as_ref().err().is_none_or(|e| e.contains("expected")), "{read:?}");
        }
    }

    #[test]
    fn a_cut_table_is_read_or_refused(length in 0usize..72) {
        let node = node(M2.1, "sgx");
        let cut = &node["perf-states"][..length];
        let read = table::read(cut);
        prop_assert_eq!(read.is_ok(), length % 8 == 0 && length >= 16, "{:?}", read);
    }

    #[test]
    fn any_samples_sum_to_time_or_are_none(
        samples in prop::collection::vec(
            (
                0u64..3_000,
                prop::collection::vec(
                    (prop::sample::select(vec!["OFF", "P1", "P2", "P15", "ODD", "", "DOWN"]), any::<i64>()),
                    0..6,
                ),
                prop::option::of(any::<i64>()),
                prop::sample::select(vec!["24Mticks", "ms", "moons"]),
            ),
            0..8,
        ),
        small in any::<bool>(),
    ) {
        let clocks = clocks(M4.1, 15);
        let mut meter = Meter::new(Some(clocks));
        let (mut at, mut first) = (Instant::ZERO, None);
        for (pause, states, energy, unit) in samples {
            at += Span::ms(pause);
            let wall = at.since(*first.get_or_insert(at));
            let count = |n: i64| if small { n % 2_000 } else { n };
            let states = states.into_iter().map(|(n, c)| (n.to_owned(), count(c))).collect();
            let mut channels = vec![Channel {
                group: "GPU Stats".into(),
                subgroup: "GPU Performance States".into(),
                name: "GPUPH".into(),
                unit: unit.into(),
                value: Value::States(states),
            }];
            channels.extend(energy.map(|count| Channel {
                group: "Energy Model".into(),
                subgroup: String::new(),
                name: "GPU Energy".into(),
                unit: "uJ".into(),
                value: Value::Simple(count),
            }));
            let before = meter.reading();
            meter.add(at, Sample::of(&channels));
            let reading = meter.reading();
            if let Some(residency) = &reading.residency {
                let sum: Span = residency.iter().copied().sum();
                let apart = sum.saturating_sub(wall) + wall.saturating_sub(sum);
                prop_assert!(apart <= slack(wall) * 2, "{sum} in {wall}");
            }
            if let (Some(before), Some(now)) = (before.gpu_energy, reading.gpu_energy) {
                prop_assert!(now >= before && before >= Joules::ZERO);
            }
        }
    }
}
