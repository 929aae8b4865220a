//! Reading a chip file that is `like` another one, and where each value comes from.
//!
//! A file may name a parent; what it does not give itself is the parent's, scaled by the rules of
//! [`RULES`](crate::RULES) where the file changes what a rule depends on. Parents have parents. The
//! result is the same as if everything stood in one file. It reads no files: texts of parents that
//! are files come from the caller. Errors stand where a person would correct them, in whatever
//! file that is.

use crate::check::{Wrong, check, check_power_model};
use crate::origin::Traced;
use crate::scale::{RULES, Rule};
use crate::tree::{Key, Made, Node, Place, Source, Sources, Written};
use crate::{Chip, Error, PowerModel};
use everwarm_units::{Hertz, Volts};
use serde::de::DeserializeOwned;

/// The longest line of ancestors; more is a mistake.
const ANCESTORS_MAX: usize = 16;

/// Finds the file that a `like` names: from the name of the file that has it and the name it
/// gives, to a name (for messages, and to tell files apart) and a text.
pub type Parents<'a> = &'a dyn Fn(&str, &str) -> Result<(String, String), String>;

/// Reads the chip `text`, named `name` in errors.
///
/// # Errors
/// [`Error::Invalid`] with file, line, column, the value and what was expected.
pub(crate) fn read(name: &str, text: &str, parents: Parents<'_>) -> Result<Traced, Error> {
    let mut reader = Reader { sources: Sources::new(), parents };
    let tree = reader.tree(name, text, &mut vec![name.to_owned()])?;
    let chip = reader.chip(&tree)?;
    Ok(Traced::new(chip, &tree, &reader.sources))
}

struct Reader<'a> {
    sources: Sources,
    parents: Parents<'a>,
}

impl Reader<'_> {
    /// The whole tree of a file, its ancestors' values in it.
    fn tree(&mut self, name: &str, text: &str, line: &mut Vec<String>) -> Result<Node, Error> {
        let source = self.sources.len();
        self.sources.push(Source { name: name.to_owned(), text: text.to_owned() });
        let mut own = Node::parse(&self.sources, source)?;
        let Some((_, like)) = own.take("like") else {
            self.derive_limits(&mut own)?;
            return Ok(own);
        };
        let (parent_name, parent_text) = self.parent(name, &like, line)?;
        line.push(parent_name.clone());
        let parent = self.tree(&parent_name, &parent_text, line)?;
        if let Some(key) = ["id", "name"].iter().find(|key| own.at(&[key]).is_none()) {
            let message = format!("missing field `{key}`: a chip that is like another has its own");
            return Err(self.error(own.place(), &message));
        }
        let from = self.chip(&parent)?;
        let mut all = parent.overlaid(own.clone());
        self.derive_limits(&mut all)?;
        let to = self.chip_unchecked(&all)?;
        self.scale(&mut all, &own, (&from, &to), source)?;
        Ok(all)
    }

    fn parent(&self, name: &str, like: &Node, line: &[String]) -> Result<(String, String), Error> {
        let expected = format!(
            "expected the id of a built-in chip ({}) or a chip file beside this one",
            Chip::names().join(", ")
        );
        let Some(wanted) = like.as_text() else {
            let Node::Leaf(raw, ..) = like else {
                return Err(self.error(like.place(), &format!("`like` is not a text; {expected}")));
            };
            return Err(self.error(like.place(), &format!("`like` is {raw}; {expected}")));
        };
        let found = match wanted.ends_with(".toml") {
            true => (self.parents)(name, &wanted),
            false => Chip::built_in_text(&wanted)
                .map(|text| (built_in_name(&wanted), text.to_owned()))
                .map_err(|_| format!("there is no chip `{wanted}`")),
        };
        let found =
            found.map_err(|why| self.error(like.place(), &format!("`like`: {why}; {expected}")))?;
        if line.contains(&found.0) {
            let round = line.iter().chain([&found.0]).cloned().collect::<Vec<_>>().join(" -> ");
            return Err(self.error(like.place(), &format!("`like` goes round: {round}")));
        }
        if line.len() > ANCESTORS_MAX {
            let message = format!("more than {ANCESTORS_MAX} files, each `like` the next");
            return Err(self.error(like.place(), &message));
        }
        Ok(found)
    }

    /// Power limits of p-states that have none, from the driver's formula.
    fn derive_limits(&self, tree: &mut Node) -> Result<(), Error> {
        let Some(model) = tree.at(&["power_model"]) else { return Ok(()) };
        let model: PowerModel = self.decode(model)?;
        check_power_model(&model).map_err(|wrong| self.wrong(tree, &wrong))?;
        let Some(Node::List(pstates, _)) = tree.at_mut(&["pstates"]) else { return Ok(()) };
        for (n, state) in pstates.iter_mut().enumerate() {
            let clock = state.at(&["clock"]).and_then(|c| c.as_text()?.parse::<Hertz>().ok());
            let volts = state.at(&["voltage"]).and_then(|v| v.as_text()?.parse::<Volts>().ok());
            let (Some(clock), Some(volts)) = (clock, volts) else { continue };
            let Node::Table(entries, place) = state else { continue };
            // One that was computed for a parent is out of date.
            entries.retain(|(key, node)| {
                key.name != "power_limit" || !matches!(node, Node::Leaf(.., Some(_)))
            });
            if entries.iter().any(|(key, _)| key.name == "power_limit") {
                continue;
            }
            let mw = model.limit(n, clock, volts).as_mw().round();
            let made = Made { by: "power_limit by the driver's power model".into(), scaled: false };
            let leaf = Node::Leaf(format!("\"{} W\"", mw / 1e3), *place, Some(made));
            entries.push((Key { name: "power_limit".into(), place: *place }, leaf));
        }
        Ok(())
    }

    /// Applies the rules to what `own` does not give.
    fn scale(
        &self,
        all: &mut Node,
        own: &Node,
        (from, to): (&Chip, &Chip),
        source: usize,
    ) -> Result<(), Error> {
        for (key, has) in
            [("cores", from.cores.is_some()), ("memory_peak", from.memory_peak.is_some())]
        {
            let Some(given) = own.at(&[key]).filter(|_| !has) else { continue };
            let message =
                format!("`{key}`: {} has none, so nothing can be scaled by it", from.name);
            return Err(self.error(given.place(), &message));
        }
        for rule in RULES {
            let path: Vec<&str> = rule.key.split('.').collect();
            let factor = (rule.factor)(from, to);
            if own.at(&path).is_some() || (factor - 1.0).abs() < 1e-12 {
                continue;
            }
            let place = rule.drivers.iter().find_map(|driver| own.at(&[driver]));
            let place = place.map_or(Place { source, offset: 0, end: 0 }, Node::place);
            if let Some(node) = all.at_mut(&path) {
                scale_leaf(node, rule, factor, place, &from.id);
            }
        }
        Ok(())
    }

    fn chip(&self, tree: &Node) -> Result<Chip, Error> {
        let chip = self.chip_unchecked(tree)?;
        check(&chip).map_err(|wrong| self.wrong(tree, &wrong))?;
        Ok(chip)
    }

    fn chip_unchecked(&self, tree: &Node) -> Result<Chip, Error> {
        let chip: Chip = self.decode(tree)?;
        match chip.pstates.is_empty() {
            true => Err(self.error(tree.deepest(&["pstates"]), "`pstates` is empty")),
            false => Ok(chip),
        }
    }

    fn decode<T: DeserializeOwned>(&self, tree: &Node) -> Result<T, Error> {
        let written = Written::file(tree);
        toml::from_str(&written.text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let place = written.origin(offset).unwrap_or(tree.place());
            let text = &self.sources[place.source].text;
            let message = plain(error.message());
            let message = match key_before(text, place.offset) {
                Some(key) => format!("`{key}`: {message}"),
                None => message,
            };
            self.error(place, &message)
        })
    }

    /// The error about a value of the whole tree, told where it stands.
    fn wrong(&self, tree: &Node, wrong: &Wrong) -> Error {
        let path: Vec<&str> = wrong.path.iter().map(String::as_str).collect();
        let (place, own) = (tree.deepest(&path), tree.place().source);
        let of_parent = match place.source == own {
            true => String::new(),
            false => format!(", with what {} changes", self.sources[own].name),
        };
        self.error(place, &(wrong.message() + &of_parent))
    }

    fn error(&self, place: Place, message: &str) -> Error {
        self.sources[place.source].error(place.offset, message)
    }
}

/// How a built-in chip's file is called in messages.
pub(crate) fn built_in_name(id: &str) -> String {
    format!("{id} (built in)")
}

fn scale_leaf(node: &mut Node, rule: &Rule, factor: f64, place: Place, from: &str) {
    let Node::Leaf(raw, ..) = node else { return };
    let Some(text) = rule.kind.scaled(raw, factor) else { return };
    let shown = (factor * 1e4).round() / 1e4;
    let by = format!("{shown} x the {} of {from}, by {}", raw.trim_matches('"'), rule.by);
    *node = Node::Leaf(text, place, Some(Made { by, scaled: true }));
}

/// The key of the value at `offset`, if it is one that stands behind a key on the same line.
fn key_before(text: &str, offset: usize) -> Option<&str> {
    let before = text.get(..offset)?.lines().next_back()?;
    let rest = before.trim_end().strip_suffix('=')?.trim_end();
    rest.rsplit(['{', ',', ' ']).next()
}

/// The parser's message in the words of somebody who writes a file, not a program.
fn plain(message: &str) -> String {
    let message = message.trim_end().replace('\n', "; ");
    message
        .replace("expected u8", "expected a whole number from 0 to 255")
        .replace("expected u32", "expected a whole number from 0 to 4294967295")
        .replace("expected f64", "expected a number")
        .replace("expected a string", "expected a text in quotes, a quantity with its unit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::How;

    /// Reads `text` as `own.toml`, beside files of the names and texts given.
    fn read_beside(text: &str, files: &[(&str, &str)]) -> Result<Traced, Error> {
        read("own.toml", text, &|_, wanted| {
            let found = files.iter().find(|(name, _)| *name == wanted);
            let found = found.ok_or_else(|| format!("`{wanted}` can't be read: not there"))?;
            Ok((found.0.to_owned(), found.1.to_owned()))
        })
    }

    fn check_error(text: &str, files: &[(&str, &str)], expected: &str) {
        let error = read_beside(text, files).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nexpected {expected}");
    }

    const OWN: &str = "like = \"m2\"\nid = \"own\" # mine\nname = \"Own\"\n";

    #[test]
    fn what_is_not_given_is_taken_over() {
        let m2 = Chip::built_in("m2").unwrap();
        let same = read_beside(OWN, &[]).unwrap().chip;
        assert_eq!(Chip { id: m2.id.clone(), name: m2.name.clone(), ..same }, m2);
        let text = format!("{OWN}controller.base_pstate = 3\n[wake]\ndeep_idle_stall = \"3 ms\"");
        let own = read_beside(&text, &[]).unwrap();
        assert_eq!(own.chip.controller.base_pstate, 3);
        assert_eq!(own.chip.wake.deep_idle_stall.as_ms(), 3.0);
        assert_eq!(own.chip.wake.start, m2.wake.start);
        let how = |path: &str| {
            let found = own.values.iter().find(|v| v.path.join(".") == path).unwrap();
            (found.origins[0].how, found.origins[0].note.clone())
        };
        assert_eq!(how("id"), (How::Given, "mine".to_owned()));
        assert_eq!(how("controller.base_pstate"), (How::Given, String::new()));
        assert_eq!(how("kernels.flops_per_cycle").0, How::Inherited);
        assert!(how("pstates.0").1.starts_with("documented"));
    }

    #[test]
    fn what_grows_with_the_chip_is_scaled() {
        let m2 = Chip::built_in("m2").unwrap();
        let twice = format!("{OWN}cores = {}\nmemory_peak = \"51.2 GB/s\"", 2 * m2.cores.unwrap());
        let own = read_beside(&twice, &[]).unwrap();
        let ratio = |of: fn(&Chip) -> f64| of(&own.chip) / of(&m2);
        let check = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 1e-5, "{got}");
        check(ratio(|c| c.kernels.flops_per_cycle), 2.0);
        check(ratio(|c| c.kernels.fma_threads_per_cycle), 2.0);
        check(ratio(|c| c.kernels.fma_cycles.as_n()), 1.0);
        check(ratio(|c| c.kernels.bandwidth.as_b_s()), 0.5);
        check(ratio(|c| c.power.full.as_w()), 2.0);
        check(ratio(|c| c.power.off.as_w()), 1.0);
        // A grandchild scales on; what a file gives itself no rule touches.
        let again = "like = \"own.toml\"\nid = \"again\"\nname = \"Again\"\npower.full = \"10 W\"\n\
                     pstates = [{ clock = \"699 MHz\", voltage = \"475 mV\" }]";
        let again = read("again.toml", again, &|_, _| Ok(("own.toml".into(), twice.clone())));
        let again = again.unwrap().chip;
        check(again.kernels.bandwidth / m2.kernels.bandwidth, 0.5);
        check(again.power.full.as_w(), 10.0);
        check(again.power.idle / m2.power.idle, 0.25);
    }

    #[test]
    fn limits_that_are_not_given_follow_from_the_drivers_model() {
        let text = format!(
            "{OWN}pstates = [{{ clock = \"612 MHz\", voltage = \"675 mV\" }},\n\
             {{ clock = \"1338 MHz\", voltage = \"915 mV\", power_limit = \"30 W\" }}]"
        );
        let own = read_beside(&text, &[]).unwrap();
        let limits: Vec<_> = own.chip.pstates.iter().map(|p| p.power_limit.as_w()).collect();
        assert!((limits[0] - 6.251).abs() < 0.02 && limits[1] == 30.0, "{limits:?}");
        let origins =
            |n: usize| own.values.iter().find(|v| v.path[1..] == [n.to_string()]).unwrap().origin();
        assert!(origins(0).contains("computed") && !origins(1).contains("computed"));
    }

    #[test]
    fn errors_stand_where_they_can_be_corrected() {
        check_error("like = \"m9\"", &[], "own.toml:1:8: `like`: there is no chip `m9`; expected");
        check_error("like = \"m2\"\nid = \"own\"", &[], "own.toml:1:1: missing field `name`");
        check_error("like = 3", &[], "own.toml:1:8: `like` is 3; expected the id");
        check_error("like = \"x.toml\"", &[], "own.toml:1:8: `like`: `x.toml` can't be read");
        let speed = format!("{OWN}[host]\nspeed = 3");
        check_error(&speed, &[], "own.toml:5:1: unknown field `speed`");
        let period = format!("{OWN}[controller]\n  sample_period = 8");
        check_error(&period, &[], "own.toml:5:19: `sample_period`: invalid type: integer `8`");
        let base = format!(
            "{OWN}pstates = [{{ clock = \"1 GHz\", voltage = \"1 V\" }}]\n[controller]\nbase_pstate = 2"
        );
        check_error(&base, &[], "own.toml:6:15: `controller.base_pstate` is 2; expected a p-state");
        check_error(&format!("{OWN}controller = 3"), &[], "own.toml:4:14");
        check_error(&format!("{OWN}cores = 0"), &[], "own.toml:4:9: `cores` is 0");
        check_error(&format!("{OWN}[host"), &[], "own.toml:4:");
        // A value of the parent that the child makes wrong is told at the parent's.
        let model = format!("{OWN}power_model.current_max = inf");
        check_error(&model, &[], "own.toml:4:27: `power_model.current_max` is inf; expected 0 to");
        check_error(&format!("{OWN}id = \"x\""), &[], "own.toml:4:1: duplicate key `id`");
        let order = format!("{OWN}[controller]\nidle_off_delay = \"9 s\"");
        check_error(&order, &[], "m2 (built in):");
        check_error(&order, &[], "`wake.deep_idle_after` is 1.2 s; expected");
        check_error(&order, &[], ", with what own.toml changes");
    }

    #[test]
    fn a_mistake_of_a_parent_names_the_parent() {
        let own = "like = \"base.toml\"\nid = \"own\"\nname = \"Own\"";
        let base =
            "like = \"m2\"\nid = \"b\"\nname = \"B\"\n[controller]\nfilter_periods = \"five\"";
        check_error(own, &[("base.toml", base)], "base.toml:5:18: `filter_periods`: invalid type");
        let base = "like = \"m2\"\nid = \"b\"\nname = \"B\"\n[controller]\nfilter_periods = 0";
        check_error(
            own,
            &[("base.toml", base)],
            "base.toml:5:18: `controller.filter_periods` is 0",
        );
        let round = [("base.toml", "like = \"own.toml\""), ("own.toml", own)];
        check_error(
            own,
            &round,
            "base.toml:1:8: `like` goes round: own.toml -> base.toml -> own.toml",
        );
        let endless: Parents<'_> =
            &|_, wanted| Ok((wanted.to_owned(), format!("like = \"x{wanted}\"")));
        let error = read("own.toml", own, endless).unwrap_err().to_string();
        assert!(error.contains("more than 16 files, each `like` the next"), "{error}");
    }

    #[test]
    fn the_whole_of_it_as_one_file_is_the_same_chip() {
        for name in Chip::names() {
            let traced = Traced::built_in(name).unwrap();
            let whole = traced.to_toml();
            assert_eq!(Chip::from_toml(&whole).expect(&whole), traced.chip, "{name}");
            assert!(!whole.contains("like ="));
        }
    }
}
