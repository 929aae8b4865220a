//! Battery, heat and modes from trees of the form of `/sys`.

use everwarm_gpu::environment::sysfs::read;
use everwarm_gpu::environment::{Environment, Heat};
use std::path::Path;

/// A tree of these files.
fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }
    root
}

fn of(files: &[(&str, &str)]) -> Environment {
    read(tree(files).path())
}

/// A supply: its name, type, and one more file.
fn supply(name: &str, kind: &str, file: &str, value: &str) -> Vec<(String, String)> {
    let at = |file: &str| format!("class/power_supply/{name}/{file}");
    vec![(at("type"), kind.to_owned()), (at(file), value.to_owned())]
}

#[test]
fn a_machine_that_tells_nothing_is_all_none() {
    assert_eq!(of(&[]), Environment::default());
    assert_eq!(read(Path::new("/nowhere/at/all")), Environment::default());
    let garbage = [
        ("class/power_supply/x/type", "Flywheel"),
        ("class/power_supply/y/online", "1"),
        ("class/power_supply/z/type", "Mains"),
        ("class/power_supply/z/online", "maybe"),
        ("class/thermal/thermal_zone0/temp", "hot"),
        ("class/thermal/thermal_zone1/temp", "50000"),
        ("class/thermal/cooling_device0/cur_state", "-"),
    ];
    assert_eq!(of(&garbage), Environment::default());
}

#[test]
fn the_plug_goes_before_the_battery() {
    let check = |supplies: &[Vec<(String, String)>], expected: Option<bool>| {
        let files: Vec<_> =
            supplies.iter().flatten().map(|(p, t)| (p.as_str(), t.as_str())).collect();
        assert_eq!(of(&files).on_battery, expected, "{files:?}");
    };
    let ac = |online| supply("AC", "Mains", "online", online);
    let battery = |status| supply("BAT0", "Battery", "status", status);
    check(&[ac("1"), battery("Discharging")], Some(false)); // a weak charger
    check(&[ac("0"), battery("Discharging")], Some(true));
    check(&[ac("0"), battery("Unknown")], Some(true));
    check(&[battery("Unknown")], None);
    check(&[battery("Full")], Some(false));
    check(&[ac("0")], None);
    check(&[supply("ups", "UPS", "status", "Discharging")], Some(true));
    check(&[ac("0"), supply("ucsi", "USB", "online", "1"), battery("Charging")], Some(false));
    let mut mouse = supply("hid", "Battery", "status", "Discharging");
    mouse.push(("class/power_supply/hid/scope".into(), "Device".into()));
    check(&[mouse.clone()], None);
    check(&[ac("1"), mouse], Some(false));
}

#[test]
fn heat_is_the_hottest_zones() {
    let zone = |temp: &'static str, extra: &[(&'static str, &'static str)]| {
        let mut files = vec![
            ("class/thermal/thermal_zone0/temp", "30000"),
            ("class/thermal/thermal_zone0/trip_point_0_type", "critical"),
            ("class/thermal/thermal_zone0/trip_point_0_temp", "105000"),
            ("class/thermal/thermal_zone1/temp", temp),
            ("class/thermal/thermal_zone1/trip_point_0_type", "active"),
            ("class/thermal/thermal_zone1/trip_point_0_temp", "20000"),
            ("class/thermal/thermal_zone1/trip_point_1_type", "passive"),
            ("class/thermal/thermal_zone1/trip_point_1_temp", "85000"),
            ("class/thermal/thermal_zone1/trip_point_2_type", "hot"),
            ("class/thermal/thermal_zone1/trip_point_2_temp", "100000"),
            ("class/thermal/thermal_zone1/trip_point_3_type", "critical"),
            ("class/thermal/thermal_zone1/trip_point_3_temp", "-274000"),
        ];
        files.extend_from_slice(extra);
        of(&files).heat
    };
    assert_eq!(zone("84999", &[]), Some(Heat::Nominal));
    assert_eq!(zone("85000", &[]), Some(Heat::Fair));
    assert_eq!(zone("101000", &[]), Some(Heat::Serious));
    let cooled = |kind| {
        [
            ("class/thermal/cooling_device3/type", kind),
            ("class/thermal/cooling_device3/cur_state", "2"),
        ]
    };
    assert_eq!(zone("85000", &cooled("Processor")), Some(Heat::Serious));
    assert_eq!(zone("85000", &cooled("Fan")), Some(Heat::Fair));
    assert_eq!(zone("40000", &cooled("Processor")), Some(Heat::Nominal));
    assert_eq!(
        zone("99999", &[("class/thermal/thermal_zone1/mode", "disabled")]),
        Some(Heat::Nominal)
    );
}

#[test]
fn a_profile_is_a_mode_and_facts_say_what_is_not_told() {
    let profile = |text| of(&[("firmware/acpi/platform_profile", text)]);
    assert_eq!(profile("low-power").low_power_mode, Some(true));
    assert_eq!(profile("balanced").low_power_mode, Some(false));
    let facts: Vec<_> = profile("low-power").facts();
    let fact = |what: &str| facts.iter().find(|(name, _)| name == what).unwrap().1.as_str();
    assert_eq!((fact("low power mode"), fact("power source")), ("on", "not told"));
    assert_eq!((fact("thermal state"), fact("display")), ("not told", "not told"));
}
