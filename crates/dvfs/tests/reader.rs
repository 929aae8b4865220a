//! Whatever is done to a chip file, it is read or refused with a place, and never half read.

use everwarm_dvfs::{Chip, Traced};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// One change of a text.
#[derive(Clone, Debug)]
enum Edit {
    Cut(Index, usize),
    Insert(Index, &'static str),
    DropLine(Index),
    RepeatLine(Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let words = select(vec![
        "\"",
        "'",
        "[",
        "]",
        "{",
        "}",
        "=",
        "#",
        "\n",
        ".",
        ",",
        "-1",
        "1e999",
        "nan",
        "inf",
        "\u{e9}",
        "\u{1F980}",
        "true",
        "x = 1\n",
        "[controller]\n",
        "[[pstates]]\n",
        "like = \"m2\"\n",
        "\"\"\"",
        "0x10",
        "1_000",
        " ms",
        "1979-05-27",
        "power_model = 1\n",
        "\r",
        "\0",
    ]);
    prop_oneof![
        (any::<Index>(), 1usize..12).prop_map(|(at, n)| Edit::Cut(at, n)),
        (any::<Index>(), words).prop_map(|(at, word)| Edit::Insert(at, word)),
        any::<Index>().prop_map(Edit::DropLine),
        any::<Index>().prop_map(Edit::RepeatLine),
    ]
}

fn apply(text: &str, edit: &Edit) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut lines: Vec<&str> = text.lines().collect();
    match edit {
        Edit::Cut(at, n) => {
            let at = at.index(chars.len() + 1);
            chars[..at].iter().chain(chars.iter().skip(at + n)).collect()
        }
        Edit::Insert(at, word) => {
            let at = at.index(chars.len() + 1);
            let (before, after) = chars.split_at(at);
            before.iter().copied().chain(word.chars()).chain(after.iter().copied()).collect()
        }
        Edit::DropLine(at) if !lines.is_empty() => {
            lines.remove(at.index(lines.len()));
            lines.join("\n")
        }
        Edit::RepeatLine(at) if !lines.is_empty() => {
            let at = at.index(lines.len());
            lines.insert(at, lines[at]);
            lines.join("\n")
        }
        _ => text.to_owned(),
    }
}

/// The place of an error in one of these files: a line and column that the text has.
fn has_place(error: &str, files: &[(String, &str)]) -> bool {
    files.iter().any(|(name, text)| {
        let Some(rest) = error.strip_prefix(&format!("{name}:")) else { return false };
        let mut parts = rest.splitn(3, ':');
        let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok()).unwrap_or(0);
        let (line, column) = (number(), number());
        // The end of a text is a place, too.
        let shown = text.split('\n').nth(line.wrapping_sub(1));
        shown.is_some_and(|shown| (1..=shown.chars().count() + 1).contains(&column))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_changed_file_is_read_or_refused_with_a_place(
        name in select(Chip::names()), edits in prop::collection::vec(edit(), 1..4),
    ) {
        let good = Chip::built_in_text(name).unwrap();
        let text = edits.iter().fold(good.to_owned(), |text, edit| apply(&text, edit));
        let child = "like = \"parent.toml\"\nid = \"child\"\nname = \"Child\"\ncores = 3\n\
                     pstates = [{ clock = \"1 GHz\", voltage = \"1 V\", power_limit = \"1 W\" }]\n";
        let parents = |_: &str, wanted: &str| match wanted {
            "parent.toml" => Ok(("parent.toml".to_owned(), text.clone())),
            _ => Err("no such file".to_owned()),
        };
        for (file, own) in [("parent.toml", text.as_str()), ("child.toml", child)] {
            match Traced::from_toml(file, own, &parents) {
                Ok(traced) => {
                    let whole = traced.to_toml();
                    let again = Chip::from_toml(&whole);
                    prop_assert_eq!(again, Ok(traced.chip), "{}", whole);
                }
                Err(error) => {
                    let error = error.to_string();
                    let built_in = Chip::names().into_iter().map(|name| {
                        (format!("{name} (built in)"), Chip::built_in_text(name).unwrap())
                    });
                    let own = [("parent.toml", text.as_str()), ("child.toml", child)];
                    let own = own.map(|(name, text)| (name.to_owned(), text));
                    let files: Vec<_> = own.into_iter().chain(built_in).collect();
                    prop_assert!(has_place(&error, &files), "{}", error);
                }
            }
        }
    }
}
