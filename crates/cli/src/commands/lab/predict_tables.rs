//! Predictions as tables, for a terminal and for Markdown.

use everwarm_lab::{Base, Prediction};

/// A table with a caption; the first column is text, the others are numbers.
pub(super) struct Table {
    caption: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(caption: &str, head: Vec<String>) -> Table {
        Table { caption: caption.to_owned(), head, rows: Vec::new() }
    }

    /// With aligned columns.
    pub(super) fn text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |n: usize| all().map(|row| row[n].chars().count()).max().unwrap_or(0);
        let line = |row: &Vec<String>| {
            let cell = |(n, text): (usize, &String)| match n {
                0 => format!("{text:width$}", width = width(0)),
                _ => format!("  {text:>width$}", width = width(n)),
            };
            let line: String = row.iter().enumerate().map(cell).collect();
            line.trim_end().to_owned() + "\n"
        };
        format!("{}\n\n{}\n", self.caption, all().map(line).collect::<String>())
    }

    /// As Markdown.
    pub(super) fn markdown(&self) -> String {
        let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
        let rule = format!("| --- |{}\n", " ---: |".repeat(self.head.len() - 1));
        let rows: String = self.rows.iter().map(line).collect();
        format!("{}\n\n{}{rule}{rows}\n", self.caption, line(&self.head))
    }
}

/// All tables of these chips.
pub(super) fn tables(all: &[Prediction]) -> Vec<Table> {
    let mut tables = vec![ramps(all), cliffs(all)];
    tables.extend(penalties(all));
    tables.extend(bases(all));
    tables
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Milliseconds, or that there is no such time.
fn ms(value: Option<f64>) -> String {
    value.map_or("never".to_owned(), |value| decimals(value, 1))
}

fn decimals(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    // A rounded nothing has no sign.
    if text.trim_start_matches('-').chars().all(|c| matches!(c, '0' | '.')) {
        return text.trim_start_matches('-').to_owned();
    }
    text
}

fn ramps(all: &[Prediction]) -> Table {
    let mut head = words(&["chip", "states", "base"]);
    if let Some(first) = all.first() {
        for ramp in &first.ramps {
            let how =
                if ramp.depth == 1 { "loop".to_owned() } else { format!("{} deep", ramp.depth) };
            head.push(format!("{how}, {}: top at", ramp.idle));
            head.push("lost".to_owned());
        }
    }
    let caption = "To the top clock, with kernels of 0.58 ms: a loop that waits for each, and a deep \
                   queue, after a short and a long idle time; and execution time lost. In ms.";
    let mut table = Table::new(caption, head);
    for one in all {
        let mut row = vec![one.chip.clone(), one.top.to_string(), format!("P{}", one.base)];
        row.extend(one.ramps.iter().flat_map(|ramp| [ms(ramp.to_top_ms), ms(ramp.loss_ms)]));
        table.rows.push(row);
    }
    table
}

fn cliffs(all: &[Prediction]) -> Table {
    let mut head = words(&["chip"]);
    if let Some(first) = all.first() {
        for cliff in &first.cliffs {
            head.extend([format!("{} ms kernels hold", cliff.kernel_ms), "then".to_owned()]);
        }
    }
    let caption = "The longest gap between two command buffers at which a loop keeps the top clock, \
                   in ms, and the p-state that it settles at just beyond.";
    let mut table = Table::new(caption, head);
    for one in all {
        let mut row = vec![one.chip.clone()];
        for cliff in &one.cliffs {
            row.push(match (cliff.holds_ms, cliff.falls_to) {
                (None, _) => "none".to_owned(),
                (Some(gap), Some(_)) => decimals(gap, 2),
                (Some(gap), None) => format!("over {}", decimals(gap, 0)),
            });
            row.push(cliff.falls_to.map_or("-".to_owned(), |state| format!("P{state}")));
        }
        table.rows.push(row);
    }
    table
}

/// How a runtime is called in tables.
fn runtime(name: &str) -> &str {
    match name {
        "mlx" => "MLX-like",
        "llamacpp" => "llama.cpp-like",
        other => other,
    }
}

fn penalties(all: &[Prediction]) -> Vec<Table> {
    let Some(first) = all.first() else { return Vec::new() };
    let of = |(n, kind): (usize, &everwarm_lab::Penalty)| {
        let mut head = words(&["chip", "busy"]);
        head.extend(kind.idle.iter().map(|(idle, _)| (*idle).to_owned()));
        let caption = format!(
            "What idle adds to a prefill of {} tokens, {} (Llama-3.2-3B, 4 bits), in ms; busy is the \
             prefill straight after work.",
            kind.tokens,
            runtime(kind.runtime)
        );
        let mut table = Table::new(&caption, head);
        for one in all {
            let penalty = &one.penalties[n];
            let mut row = vec![one.chip.clone(), decimals(penalty.busy_ms, 1)];
            row.extend(penalty.idle.iter().map(|(_, ms)| decimals(*ms, 1)));
            table.rows.push(row);
        }
        table
    };
    first.penalties.iter().enumerate().map(of).collect()
}

/// A quantity that each base p-state has.
type OfBase<'a> = &'a dyn Fn(&Base) -> String;

fn bases(all: &[Prediction]) -> Vec<Table> {
    let Some(first) = all.first().and_then(|one| one.bases.first()) else { return Vec::new() };
    let mut tables = Vec::new();
    for (n, (name, tokens, _)) in first.penalties.iter().enumerate() {
        let caption = format!(
            "Penalty that is left after 1 s of idle if the base p-state is this: {tokens} tokens, {}, \
             in ms.",
            runtime(name)
        );
        tables.push(by_base(all, &caption, &|base| decimals(base.penalties[n].2, 1)));
    }
    let caption = "GPU power while it is powered and has nothing to do, by base p-state, in W. A GPU \
                   that is gated draws the same with any.";
    tables.push(by_base(all, caption, &|base| decimals(base.awake_w, 2)));
    let caption = "GPU power with 1 ms of work (at the top clock) 60 times a second, by base p-state, \
                   in W.";
    tables.push(by_base(all, caption, &|base| decimals(base.frames_w, 2)));
    tables
}

fn by_base(all: &[Prediction], caption: &str, of: OfBase<'_>) -> Table {
    let most = all.iter().map(|one| one.bases.len()).max().unwrap_or(0);
    let mut head = words(&["chip", "has"]);
    head.extend((1..=most).map(|state| format!("P{state}")));
    let mut table = Table::new(caption, head);
    for one in all {
        let mut row = vec![one.chip.clone(), format!("P{}", one.base)];
        row.extend(one.bases.iter().map(of));
        row.resize(most + 2, String::new());
        table.rows.push(row);
    }
    table
}
