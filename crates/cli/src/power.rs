//! What `hold` and `proxy` share: whether the machine's battery, heat and modes end a hold.

use everwarm_hold::Surroundings;
use std::path::PathBuf;

/// Options of commands that keep a GPU warm.
#[derive(clap::Args)]
pub struct PowerArgs {
    /// Warm also on battery, in low power mode, when the machine is slowed down by heat, and while
    /// its display sleeps. Default: not then. A simulated GPU is always warmed.
    #[arg(long)]
    ignore_power: bool,
    /// Ask this folder for battery, heat and modes: one like Linux' /sys, such as the host's in a
    /// container. Default: the machine itself.
    #[arg(long, value_name = "DIR", conflicts_with = "ignore_power")]
    sysfs: Option<PathBuf>,
}

impl PowerArgs {
    /// What is asked when `device` is to be warmed.
    pub fn surroundings(&self, device: Option<&str>) -> Surroundings {
        let real = device.is_some_and(|device| !device.starts_with("sim:"));
        match &self.sysfs {
            Some(root) => Surroundings::Tree(root.clone()),
            None if real && !self.ignore_power => Surroundings::Machine,
            None => Surroundings::Ignored,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_gpu_has_no_battery_unless_one_is_named() {
        let check = |ignore: bool, sysfs: Option<&str>, device: Option<&str>, expected| {
            let args = PowerArgs { ignore_power: ignore, sysfs: sysfs.map(PathBuf::from) };
            assert_eq!(args.surroundings(device), expected);
        };
        check(false, None, Some("cuda:0"), Surroundings::Machine);
        check(true, None, Some("cuda:0"), Surroundings::Ignored);
        check(false, None, Some("sim:m2"), Surroundings::Ignored);
        check(false, None, None, Surroundings::Ignored);
        check(false, Some("/host/sys"), Some("sim:m2"), Surroundings::Tree("/host/sys".into()));
    }
}
