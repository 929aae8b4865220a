//! Which Mac this is: names, and the built-in chip that it is most like.

use std::fmt::Write;

/// What a Mac says of itself; what it does not say is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The chip's name: "Apple M2 Pro" (`machdep.cpu.brand_string`).
    pub chip: Option<String>,
    /// The model: "Mac14,9" (`hw.model`).
    pub model: Option<String>,
    /// The version of macOS: "15.5" (`kern.osproductversion`).
    pub macos: Option<String>,
    /// Its build: "24F74" (`kern.osversion`).
    pub build: Option<String>,
    /// The GPU's cores (`gpu-core-count` of the accelerator).
    pub gpu_cores: Option<u32>,
}

/// A chip by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chip {
    /// 1 for M1.
    pub generation: u8,
    /// Its size.
    pub tier: Tier,
}

/// The sizes that a chip is made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// "M2".
    Base,
    /// "M2 Pro".
    Pro,
    /// "M2 Max".
    Max,
    /// "M2 Ultra".
    Ultra,
}

impl Chip {
    /// Reads "Apple M2 Pro". `None` for a name of another form, such as a virtual machine's or an
    /// A-series chip's.
    pub fn of_name(name: &str) -> Option<Chip> {
        let mut words = name.split_whitespace();
        let number = words.find_map(|word| word.strip_prefix('M')?.parse::<u8>().ok());
        let generation = number.filter(|n| *n > 0)?;
        let tier = match words.next() {
            None => Tier::Base,
            Some("Pro") => Tier::Pro,
            Some("Max") => Tier::Max,
            Some("Ultra") => Tier::Ultra,
            Some(_) => return None,
        };
        Some(Chip { generation, tier })
    }
}

impl Machine {
    /// For people: "Apple M2 Pro (Mac14,9)".
    pub fn name(&self) -> String {
        let mut name = self.chip.clone().unwrap_or_else(|| "an unnamed chip".to_owned());
        if let Some(model) = &self.model {
            let _ = write!(name, " ({model})");
        }
        name
    }

    /// The built-in chip whose values stand for what a Mac doesn't tell. A later generation is
    /// taken for an M2 of its size, a chip of unknown name for an M2.
    pub fn like(&self) -> &'static str {
        let chip = self.chip.as_deref().and_then(Chip::of_name);
        match chip.map(|chip| (chip.generation, chip.tier)) {
            Some((1, Tier::Base)) => "m1",
            Some((1, Tier::Pro)) => "m1-pro",
            Some((1, Tier::Max)) => "m1-max",
            Some((1, Tier::Ultra)) => "m1-ultra",
            Some((_, Tier::Pro)) => "m2-pro",
            Some((_, Tier::Max)) => "m2-max",
            Some((_, Tier::Ultra)) => "m2-ultra",
            Some((_, Tier::Base)) | None => "m2",
        }
    }

    /// Everything as (what, value) for a record; what is unknown says so.
    pub fn facts(&self) -> Vec<(String, String)> {
        let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "not told".to_owned());
        let macos = match (&self.macos, &self.build) {
            (Some(version), Some(build)) => format!("{version} ({build})"),
            (version, _) => or(version),
        };
        let cores = self.gpu_cores.map(|cores| cores.to_string());
        let facts = [
            ("chip", or(&self.chip)),
            ("model", or(&self.model)),
            ("macOS", macos),
            ("GPU cores", or(&cores)),
        ];
        facts.map(|(what, value)| (what.to_owned(), value)).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chips_name_is_read_or_it_is_none() {
        let check = |name: &str, like: &str, known: bool| {
            let machine = Machine { chip: Some(name.into()), ..Machine::default() };
            assert_eq!((machine.like(), Chip::of_name(name).is_some()), (like, known), "{name}");
        };
        check("Apple M1", "m1", true);
        check("Apple M1 Ultra", "m1-ultra", true);
        check("Apple M2 Max", "m2-max", true);
        check("Apple M3 Pro", "m2-pro", true);
        check("Apple M4", "m2", true);
        check("Apple M4 Max", "m2-max", true);
        check("Apple M10 Ultra", "m2-ultra", true);
        check("Apple M2 Mega", "m2", false);
        check("Apple A18 Pro", "m2", false);
        check("VirtualApple @ 2.50GHz processor", "m2", false);
        check("", "m2", false);
        assert_eq!(Machine::default().like(), "m2");
    }
}
