//! Reading a chip file.
//!
//! Structure (unknown, missing and mistyped keys, units) is held by the types, what values may be
//! by `check`, and what is not given is taken from the chip that a file is `like`. Every error
//! names the file, line and column.

use crate::like::{Parents, read};
use crate::{Chip, Error, Traced};

impl Chip {
    /// Reads a chip file whose parents, if any, are built in.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the line, the key, the value and what was expected.
    pub fn from_toml(text: &str) -> Result<Chip, Error> {
        Ok(Traced::from_toml("", text, &|_, wanted| {
            Err(format!("`{wanted}` is a file, and this chip is not read from one"))
        })?
        .chip)
    }
}

impl Traced {
    /// Reads a chip file called `name` in errors; `parents` finds files that it is like.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the file, the line, the key, the value and what was expected.
    pub fn from_toml(name: &str, text: &str, parents: Parents<'_>) -> Result<Traced, Error> {
        read(name, text, parents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the M2's file with `from` replaced by `to`; the error must contain `expected`.
    fn check(from: &str, to: &str, expected: &str) {
        let text = Chip::built_in_text("m2").unwrap();
        assert!(text.contains(from), "{from}");
        let error = Chip::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("line ") && error.contains(expected), "{error}");
    }

    #[test]
    fn wrong_files_are_told_the_line_the_value_and_what_was_expected() {
        check("[host]", "[host]\nspeed = 3", "unknown field `speed`, expected one of");
        check("memory_ready = \"0.59 ms\"", "", "missing field `memory_ready`");
        check("\"8 ms\"", "\"8\"", "`8` has no unit; expected a duration");
        check("\"8 ms\"", "\"-8 ms\"", "`-8 ms` is negative");
        check("\"8 ms\"", "8", "`sample_period`: invalid type: integer `8`, expected a text");
        check("base_pstate = 1", "base_pstate = -1", "`base_pstate`: invalid value: integer `-1`");
        check("clock = \"444 MHz\"", "clock = 444", "column 13: `clock`: invalid type");
        check("full = \"8 W\"", "full = \"0.1 W\"", "`power.full` is 0.1 W; expected 0.53 W to");
        check("boost_fade = 0.93", "boost_fade = nan", "is NaN; expected 0 to 1");
        check("\"612 MHz\"", "\"444 MHz\"", "column 13: `pstates.1.clock` is 444 MHz; expected");
        check("base_pstate = 1", "base_pstate = 9", "is 9; expected a p-state from 1 to 8");
        check("_pct = 85", "_pct = 850", "`controller.target_utilization_pct` is 850; expected 1");
        check("id = \"m2\"", "id = \"\"", "`id` is \"\"; expected a short name");
        check("idle = \"50 ms\"", "idle = \"1 ms\"", "idle times in ascending order");
        check("[wake]", "[wake", "");
    }

    #[test]
    fn no_value_may_be_left_out() {
        let text = Chip::built_in_text("m2").unwrap();
        for (n, line) in text.lines().enumerate() {
            let Some((key, _)) =
                line.split_once(" = ").filter(|(key, _)| !key.contains(['#', ' ']))
            else {
                continue;
            };
            if ["cores", "memory_peak"].contains(&key) {
                continue;
            }
            let without = text.lines().enumerate().filter(|(m, _)| *m != n).map(|(_, line)| line);
            let error = Chip::from_toml(&without.collect::<Vec<_>>().join("\n")).unwrap_err();
            let error = error.to_string();
            // A table without its first line is a list of strangers, which is an error as well.
            let told = error.contains(&format!("missing field `{key}`")) || line.ends_with('[');
            assert!(told && error.starts_with("line "), "without {key}: {error}");
        }
    }
}
