//! Text that is safe inside HTML and SVG.

/// `text` with the characters escaped that mean something in markup.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A number of milliseconds with as many digits as it deserves.
pub(crate) fn ms(value: f64) -> String {
    if value.abs() < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// A share in percent, without a negative zero.
pub(crate) fn percent(share: f64) -> String {
    let rounded = (share * 100.0).round();
    format!("{:.0} %", if rounded == 0.0 { 0.0 } else { rounded })
}
