//! The built-in chips: one file and one line each.

use crate::like::built_in_name;
use crate::{Chip, Error, Traced};

/// Name and text of each built-in chip, the default one first.
const TABLE: &[(&str, &str)] = &[
    ("m2", include_str!("../chips/m2.toml")),
    ("m1", include_str!("../chips/m1.toml")),
    ("m1-mini", include_str!("../chips/m1-mini.toml")),
    ("m1-pro", include_str!("../chips/m1-pro.toml")),
    ("m1-max", include_str!("../chips/m1-max.toml")),
    ("m1-ultra", include_str!("../chips/m1-ultra.toml")),
    ("m2-mini", include_str!("../chips/m2-mini.toml")),
    ("m2-pro", include_str!("../chips/m2-pro.toml")),
    ("m2-pro-mini", include_str!("../chips/m2-pro-mini.toml")),
    ("m2-max", include_str!("../chips/m2-max.toml")),
    ("m2-max-studio", include_str!("../chips/m2-max-studio.toml")),
    ("m2-ultra", include_str!("../chips/m2-ultra.toml")),
];

impl Chip {
    /// Names of the built-in chips, the default one first.
    pub fn names() -> Vec<&'static str> {
        TABLE.iter().map(|(name, _)| *name).collect()
    }

    /// A built-in chip (`m2`, `m1`).
    ///
    /// # Errors
    /// [`Error::Unknown`] lists the ones there are.
    pub fn built_in(name: &str) -> Result<Chip, Error> {
        Ok(Traced::built_in(name)?.chip)
    }

    /// The file of a built-in chip.
    ///
    /// # Errors
    /// [`Error::Unknown`] lists the ones there are.
    pub fn built_in_text(name: &str) -> Result<&'static str, Error> {
        let found = TABLE.iter().find(|(known, _)| *known == name);
        found
            .map(|(_, text)| *text)
            .ok_or_else(|| Error::Unknown { name: name.into(), known: Self::names().join(", ") })
    }
}

impl Traced {
    /// A built-in chip with the origin of each value.
    ///
    /// # Errors
    /// [`Error::Unknown`] lists the ones there are.
    pub fn built_in(name: &str) -> Result<Traced, Error> {
        let text = Chip::built_in_text(name)?;
        let no_files = |_: &str, wanted: &str| Err(format!("a built-in chip is like `{wanted}`"));
        let chip = Traced::from_toml(&built_in_name(name), text, &no_files);
        Ok(chip.unwrap_or_else(|e| panic!("{e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_chip_reads_and_carries_its_name() {
        for name in Chip::names() {
            assert_eq!(Chip::built_in(name).unwrap().id, name);
        }
        let error = Chip::built_in("m9").unwrap_err().to_string();
        assert_eq!(error, format!("no chip `m9`; there are {}", Chip::names().join(", ")));
    }

    #[test]
    fn the_page_names_every_key() {
        let page = include_str!("../../../docs/chips.md");
        let text = Chip::built_in_text("m2").unwrap();
        let keys = text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| {
            let line = line.split('#').next().unwrap_or_default();
            line.split(['{', ',', '[']).filter_map(|part| part.split_once(" = "))
        });
        for (key, _) in keys {
            assert!(page.contains(key.trim()), "`{}` is not in docs/chips.md", key.trim());
        }
    }

    #[test]
    fn the_page_lists_every_chip_as_it_is() {
        let page = include_str!("../../../docs/chips.md");
        for name in Chip::names() {
            let chip = Chip::built_in(name).unwrap();
            let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let row = row.unwrap_or_else(|| panic!("docs/chips.md has no row of {name}"));
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let (cores, base) = (chip.cores.unwrap(), chip.controller.base_pstate);
            assert_eq!(cells[4..6], [cores.to_string(), format!("P{base}")], "{name}");
        }
    }

    #[test]
    fn every_value_names_its_source() {
        for (name, text) in TABLE {
            for (n, line) in text.lines().enumerate() {
                let value = line.contains(" = ") && !line.starts_with('#');
                let is_value = value && !line.starts_with("like = ");
                let opens = line.trim_end().ends_with('[');
                let source = line.rsplit_once('#').map_or("", |(_, source)| source.trim());
                let known = ["documented", "study ", "fitted", "guess", "scaled"];
                let named = known.iter().any(|k| source.starts_with(k));
                assert!(!is_value || opens || named, "{name}.toml:{}: no source: {line}", n + 1);
            }
        }
    }
}
