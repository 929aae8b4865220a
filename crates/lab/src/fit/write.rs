//! The fitted chip as a file, each value with where it comes from.

use super::direct::Set;
use everwarm_dvfs::Traced;
use toml::Value;

/// The default chip's file with other values and comments.
pub(super) fn chip_file(default: &Traced, set: &[Set], device: &str) -> String {
    let head = format!(
        "# Fitted to runs of {device}. Each value ends with its interval, or says that the runs do\n\
         # not identify it, or that it was not searched for; the default is that of {}.\n",
        default.chip.id
    );
    let text = default.to_toml();
    let mut out = head;
    let (mut section, mut list) = (String::new(), None::<bool>);
    for line in text.lines().skip(1) {
        if let Some(replaced) = list {
            list = (line != "]").then_some(replaced);
            if !replaced {
                out.push_str(&format!("{line}\n"));
            }
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        }
        let Some((key, rest)) = line.split_once(" = ") else {
            out.push_str(&format!("{line}\n"));
            continue;
        };
        let dotted = format!("{section}{key}");
        let own = set.iter().find(|(name, ..)| *name == dotted);
        if rest == "[" {
            list = Some(own.is_some());
        }
        match (own, dotted.as_str()) {
            (Some((_, Value::Array(all), comment)), _) => {
                out.push_str(&format!("# {comment}\n{key} = [\n"));
                all.iter().for_each(|one| out.push_str(&format!("  {},\n", shown(one))));
                out.push_str("]\n");
            }
            (Some((_, value, comment)), _) => {
                out.push_str(&format!("{key} = {} # {comment}\n", shown(value)));
            }
            (None, "id") => out.push_str("id = \"fitted\"\n"),
            (None, "name") => out.push_str(&format!("name = {} # fitted\n", shown(&device.into()))),
            (None, _) if rest == "[" => out.push_str(&format!("{line}\n")),
            (None, _) => {
                let (value, from) = rest.rsplit_once(" # ").unwrap_or((rest, ""));
                out.push_str(&format!("{key} = {value} # not identified: default, {from}\n"));
            }
        }
    }
    out
}

/// A value on one line.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let pairs: Vec<_> =
                table.iter().map(|(key, value)| format!("{key} = {}", shown(value))).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        other => other.to_string(),
    }
}
