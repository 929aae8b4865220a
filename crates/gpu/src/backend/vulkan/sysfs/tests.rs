//! Trees of the form of `/sys`, written here after the kernel's documents (each test names its
//! model); none was recorded on the device itself.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes with the value.
struct Tree(PathBuf);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("everwarm-sysfs-{}-{count}", std::process::id());
        let tree = Tree(std::env::temp_dir().join(name));
        for (file, text) in files {
            tree.write(file, text.as_bytes());
        }
        tree
    }

    fn write(&self, file: &str, bytes: &[u8]) {
        let path = self.0.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn find(&self, place: Place) -> Sysfs {
        Sysfs::find(&self.0, &place).unwrap_or_else(|why| panic!("{why}"))
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Counters at the time since the card was found.
fn read(card: &mut Sysfs) -> Counters {
    card.counters(Monotonic::now().on_base(card.epoch))
}

fn node(minor: u32) -> Place {
    Place { render: Some((226, minor)), ..Place::default() }
}

/// A card with amdgpu as its documents describe one, beside the output of a display.
const AMD: [(&str, &str); 11] = [
    ("class/drm/card1/dev", "226:1\n"),
    ("class/drm/card1/device/uevent", "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0b:00.0\n"),
    ("class/drm/card1/device/drm/card1/dev", "226:1\n"),
    ("class/drm/card1-HDMI-A-1/status", "connected\n"),
    ("class/drm/renderD128/dev", "226:128\n"),
    ("class/drm/renderD128/device/drm/card1/dev", "226:1\n"),
    ("class/drm/card1/device/pp_dpm_sclk", "0: 500Mhz\n1: 1800Mhz *\n2: 2475Mhz\n"),
    ("class/drm/card1/device/pp_dpm_mclk", "0: 96Mhz *\n1: 1000Mhz\n"),
    ("class/drm/card1/device/hwmon/hwmon3/power1_average", "31000000\n"),
    ("class/drm/card1/device/hwmon/hwmon3/temp1_input", "43000\n"),
    ("class/drm/card1/device/gpu_metrics", "garbage"),
];

#[test]
fn an_amd_card_is_found_by_its_node_or_its_slot() {
    let tree = Tree::new(&AMD);
    let slot = Place { pci: Some([0, 0x0b, 0, 0]), ..Place::default() };
    let primary = Place { primary: Some((226, 1)), ..Place::default() };
    for place in [node(128), slot, primary] {
        let mut card = tree.find(place);
        assert!(card.about.starts_with("amdgpu at ") && card.about.ends_with("card1"));
        let counters = read(&mut card);
        assert_eq!(counters.clock, Some(Hertz::mhz(1_800.0)));
        assert_eq!(counters.memory_clock, Some(Hertz::mhz(96.0)));
        assert_eq!(counters.power, Some(Watts::w(31.0)));
        assert_eq!(counters.temperature, Some(Celsius::c(43.0)));
        assert_eq!((counters.gpu_energy, counters.residency), (None, None));
    }
    let missing = Sysfs::find(&tree.0, &node(129)).err().unwrap();
    assert!(missing.contains("226:129") && missing.contains("class/drm"), "{missing}");
    let nowhere = Sysfs::find(&tree.0, &Place::default()).err().unwrap();
    assert!(nowhere.contains("does not tell"), "{nowhere}");
}

#[test]
fn an_i915_card_counts_what_it_spends_off() {
    // Modelled on an Arc A770 (i915 with hwmon).
    let unit = "class/drm/card0/gt/gt0/";
    let tree = Tree::new(&[
        ("class/drm/card0/dev", "226:0\n"),
        ("class/drm/card0/device/uevent", "DRIVER=i915\nPCI_SLOT_NAME=0000:03:00.0\n"),
        (&format!("{unit}rps_act_freq_mhz"), "0\n"),
        (&format!("{unit}rc6_residency_ms"), "1000\n"),
        (&format!("{unit}throttle_reason_status"), "1\n"),
        (&format!("{unit}throttle_reason_pl1"), "1\n"),
        (&format!("{unit}throttle_reason_thermal"), "0\n"),
        ("class/drm/card0/device/hwmon/hwmon1/energy1_input", "5000000\n"),
    ]);
    let mut card = tree.find(Place { pci: Some([0, 3, 0, 0]), ..Place::default() });
    let first = read(&mut card);
    assert_eq!(first.clock, None, "a unit that is off has no clock");
    assert_eq!(first.limited_by.unwrap(), ["power cap (PL1)"]);
    // More time off than has passed: the counter is rounded, wall time is not.
    tree.write(&format!("{unit}rc6_residency_ms"), b"900000");
    tree.write("class/drm/card0/device/hwmon/hwmon1/energy1_input", b"7500000");
    let second = read(&mut card);
    assert_eq!(second.gpu_energy, Some(Joules::j(2.5)));
    let (first, residency) = (first.residency.unwrap(), second.residency.unwrap());
    assert_eq!(residency.len(), 2);
    assert!(residency[0] > Span::ZERO && residency[1] == first[1], "{residency:?}");
    let sum: Span = residency.iter().copied().sum();
    assert!(sum <= second.at.since(Instant::ZERO) + Span::ms(50), "{sum}");
    // A counter that was set back takes nothing away.
    tree.write(&format!("{unit}rc6_residency_ms"), b"0");
    tree.write("class/drm/card0/device/hwmon/hwmon1/energy1_input", b"0");
    let third = read(&mut card);
    assert_eq!(third.gpu_energy, Some(Joules::j(2.5)));
    assert!(third.residency.unwrap()[0] >= residency[0]);
}

#[test]
fn an_xe_card_tells_of_its_first_unit() {
    // Modelled on an Arc B580 (xe).
    let tree = Tree::new(&[
        ("class/drm/card0/dev", "226:0\n"),
        ("class/drm/card0/device/uevent", "DRIVER=xe\n"),
        ("class/drm/card0/device/tile0/gt0/freq0/act_freq", "2850\n"),
        ("class/drm/card0/device/tile0/gt0/gtidle/idle_residency_ms", "77\n"),
        ("class/drm/card0/device/hwmon/hwmon2/temp2_label", "pkg\n"),
        ("class/drm/card0/device/hwmon/hwmon2/temp2_input", "52000\n"),
        ("class/drm/card0/device/hwmon/hwmon2/energy1_input", "10\n"),
    ]);
    let mut card = tree.find(Place { primary: Some((226, 0)), ..Place::default() });
    let counters = read(&mut card);
    assert_eq!(counters.clock, Some(Hertz::mhz(2_850.0)));
    assert_eq!(counters.temperature, Some(Celsius::c(52.0)));
    assert_eq!(counters.limited_by, None);
    assert!(counters.residency.is_some() && counters.gpu_energy == Some(Joules::ZERO));
}

#[test]
fn a_phones_gpu_tells_the_time_at_each_clock() {
    // Modelled on a Mali-G610 (panthor), and on an Adreno whose display is another device (msm).
    let stat = |low: u32, high: u32| {
        format!(
            "     From  :   To\n : 1 2 time(ms)\n* 300000000: 0 1 {low}\n 900000000: 1 0 {high}\n"
        )
    };
    for (driver, folder) in [
        ("panthor", "class/drm/card0/device/devfreq/fb000000.gpu/"),
        ("msm_mdss", "class/devfreq/3d00000.gpu/"),
    ] {
        let tree = Tree::new(&[
            ("class/drm/card0/dev", "226:0\n"),
            ("class/drm/card0/device/uevent", &format!("DRIVER={driver}\n")),
            (&format!("{folder}cur_freq"), "300000000\n"),
            (&format!("{folder}trans_stat"), &stat(100, 10)),
        ]);
        let mut card = tree.find(Place { primary: Some((226, 0)), ..Place::default() });
        assert_eq!(card.pstates().unwrap(), [Hertz::mhz(300.0), Hertz::mhz(900.0)]);
        tree.write(&format!("{folder}trans_stat"), stat(100, 1_000_000).as_bytes());
        let counters = read(&mut card);
        let residency = counters.residency.unwrap();
        assert_eq!((residency[0], residency[1]), (Span::ZERO, Span::ZERO));
        assert!(
            residency[2] > Span::ZERO
                && residency[2] <= counters.at.since(Instant::ZERO) + Span::ms(50)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn garbage_in_any_file_is_harmless(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        words in "[-+0-9a-zA-Z:*. \n]{0,60}",
        driver in prop::sample::select(vec!["amdgpu", "i915", "xe", "panfrost"]),
    ) {
        let device = "class/drm/card0/device/";
        let tree = Tree::new(&[
            ("class/drm/card0/dev", "226:0\n"),
            (&format!("{device}uevent"), &format!("DRIVER={driver}\n")),
        ]);
        let files = [
            "device/pp_dpm_sclk", "device/pp_dpm_mclk", "device/gpu_metrics",
            "device/hwmon/hwmon0/power1_average", "device/hwmon/hwmon0/temp1_input",
            "device/hwmon/hwmon0/energy1_input", "device/hwmon/hwmon0/freq1_label",
            "gt/gt0/rps_act_freq_mhz", "gt/gt0/rc6_residency_ms", "gt/gt0/throttle_reason_pl1",
            "device/tile0/gt0/freq0/act_freq", "device/tile0/gt0/gtidle/idle_residency_ms",
            "device/devfreq/x.gpu/cur_freq", "device/devfreq/x.gpu/trans_stat",
        ];
        let place = Place { primary: Some((226, 0)), ..Place::default() };
        for (n, file) in files.into_iter().enumerate() {
            let path = format!("class/drm/card0/{file}");
            tree.write(&path, if n % 2 == 0 { words.as_bytes() } else { &bytes });
        }
        if let Ok(mut card) = Sysfs::find(&tree.0, &place) {
            read(&mut card);
            for (n, file) in files.into_iter().enumerate() {
                let path = format!("class/drm/card0/{file}");
                tree.write(&path, if n % 2 == 1 { words.as_bytes() } else { &bytes });
            }
            read(&mut card);
        }
    }
}
