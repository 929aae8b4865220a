//! Examines the devices that are named: `cargo run -p everwarm-doctor --example 01-examine -- sim:m2 sim:m1`

use everwarm_doctor::{Options, Patient, examine, text};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for id in std::env::args().skip(1) {
        let quick = id.starts_with("quick=");
        let id = id.trim_start_matches("quick=");
        let options = if quick { Options::QUICK } else { Options::FULL };
        let diagnosis = examine(&mut Patient::device(id), options, &mut |_| {})?;
        println!("{}", text(&diagnosis));
    }
    Ok(())
}
