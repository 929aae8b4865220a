//! Makes the page and the picture again from a saved result:
//! `cargo run -p everwarm-report --example 01-page -- demo.json page.html picture.svg`

use everwarm_report::{Results, page, picture};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let [json, html, svg] = &files[..] else {
        return Err("expected three files: demo.json page.html picture.svg".into());
    };
    let results = Results::from_json(&std::fs::read_to_string(json)?)?;
    std::fs::write(html, page(&results))?;
    std::fs::write(svg, picture(&results))?;
    Ok(())
}
