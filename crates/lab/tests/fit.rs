//! Chips that nobody has seen are read off from noisy runs, and runs that don't suffice are told.

mod proof;

use everwarm_dvfs::{Chip, Traced};
use everwarm_lab::fit::{Error, Options, fit, read_off};
use proof::{errors, median, random_chip, record};

#[test]
fn random_chips_are_recovered_from_noisy_runs() {
    for seed in [101, 102] {
        let chip = random_chip(seed);
        let (found, missing) = read_off(&record(&chip, seed)).unwrap();
        let errors = errors(&chip, &found);
        for (kind, values) in &errors.kinds {
            let limit = if *kind == "plateau clocks" { 0.01 } else { 0.1 };
            let off = median(values);
            assert!(values.is_empty() || off <= limit, "{}: {kind} off by {off}", chip.id);
        }
        assert!(errors.seen.0 + 2 >= errors.seen.1, "{}: {:?} clocks seen", chip.id, errors.seen);
        assert_eq!(errors.false_clocks, 0, "{}: clocks that are none", chip.id);
        assert!(errors.invented.is_empty(), "{}: {:?} are not so", chip.id, errors.invented);
        let told = |name: &String| missing.iter().any(|(missing, _)| missing == name);
        assert!(errors.missed.iter().all(told), "{}: {:?} untold", chip.id, errors.missed);
    }
}

#[test]
fn the_file_is_a_chip_with_the_clocks_that_were_seen() {
    let chip = random_chip(7);
    let top_clock = Some(chip.clock(chip.top()).as_mhz());
    let options =
        Options { top_clock, default: Traced::built_in("m2").unwrap(), budget: 0, threads: 1 };
    let fitted = fit(&record(&chip, 7), &options, &mut |_, _| {}).unwrap();
    let read = Chip::from_toml(&fitted.chip).unwrap_or_else(|e| panic!("{e}\n{}", fitted.chip));
    let off = read.clock(read.top()).as_hz() / chip.clock(chip.top()).as_hz() - 1.0;
    assert!(off.abs() < 0.01, "{off}");
    assert!(fitted.kept_back.is_some_and(|kept| kept.cells > 5));
    assert!(fitted.chip.contains("# not identified: default"));
}

#[test]
fn a_search_comes_closer_and_does_not_depend_on_threads() {
    let chip = random_chip(11);
    let runs = record(&chip, 11);
    let searched = |threads: usize| {
        let default = Traced::built_in("m2").unwrap();
        let options = Options { top_clock: None, default, budget: 12, threads };
        fit(&runs, &options, &mut |_, _| {}).unwrap()
    };
    let fitted = searched(1);
    assert!(fitted.loss.1 < 0.7 * fitted.loss.0, "{:?}", fitted.loss);
    assert!(fitted.parameters.iter().any(|p| p.key == "controller.filter_periods"));
    Chip::from_toml(&fitted.chip).unwrap_or_else(|e| panic!("{e}\n{}", fitted.chip));
    assert_eq!(searched(3).chip, fitted.chip);
}

/// Starts after seconds wait for more than power; they must not hide when it goes.
#[test]
fn a_few_probes_suffice_for_what_they_show() {
    let chip = Chip::built_in("m2").unwrap();
    let runs: Vec<_> = record(&chip, 3)
        .into_iter()
        .filter(|run| {
            let name = run.manifest.scenario.as_ref().map(|scenario| scenario.name.as_str());
            matches!(name, Some("fit-idle" | "fit-ramp"))
        })
        .collect();
    let (found, _) = read_off(&runs).unwrap();
    let (truth, off) = (chip.controller.idle_off_delay.as_ms(), found["idle-off"].value);
    assert!((off / truth - 1.0).abs() < 0.1, "{off} ms for {truth} ms");
}

#[test]
fn a_run_that_breaks_off_is_used_without_the_cell_in_which_it_does() {
    let scenario = everwarm_lab::scenario("fit-wake").unwrap();
    let run = everwarm_lab::run(&scenario, "sim:m2").unwrap();
    let text = everwarm_lab::SCENARIOS.iter().find(|s| s.name == "fit-wake").unwrap().text;
    let whole = everwarm_lab::records(&run, everwarm_lab::manifest(&run, text)).to_json_lines();
    let rows = whole.windows(18).filter(|w| w == b"{\"kind\":\"dispatch\"").count();
    let cut = whole.windows(18).position(|w| w == b"{\"kind\":\"dispatch\"").unwrap();
    let lines = whole[cut..].split_inclusive(|b| *b == b'\n').take(rows / 12);
    let broken = cut + lines.map(<[u8]>::len).sum::<usize>() - 7;
    let run = everwarm_record::Run::from_json_lines(&whole[..broken]).unwrap();
    assert!(run.truncated.is_some());
    let default = Traced::built_in("m2").unwrap();
    let options = Options { top_clock: None, default, budget: 0, threads: 1 };
    let error = fit(&[run], &options, &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("record `everwarm lab run fit-ramp"), "{error}");
}

#[test]
fn runs_that_do_not_suffice_are_told() {
    assert!(matches!(read_off(&[]), Err(Error::NoRuns)));
    let run = |device: &str| {
        let scenario = everwarm_lab::scenario("fit-wake").unwrap();
        let mut run = everwarm_lab::run(&scenario, "sim:m2").unwrap();
        run.device.id = device.to_owned();
        let text = everwarm_lab::SCENARIOS.iter().find(|s| s.name == "fit-wake").unwrap().text;
        everwarm_lab::records(&run, everwarm_lab::manifest(&run, text))
    };
    let error = read_off(&[run("a"), run("b")]).unwrap_err().to_string();
    assert!(error.contains("different devices: a, b"), "{error}");
    let (_, missing) = read_off(&[run("a")]).unwrap();
    let decay = missing.iter().find(|(name, _)| name == "decay").unwrap();
    assert!(decay.1.contains("everwarm lab run fit-decay"), "{}", decay.1);
    let mut bare = run("a");
    bare.manifest.scenario = None;
    let error = read_off(&[bare]).unwrap_err().to_string();
    assert!(error.contains("has no scenario"), "{error}");
}
