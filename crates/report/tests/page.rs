//! The page and the picture, from results as a bench prints them.

use everwarm_report::{GENERATOR, Results, page, picture, story};

const ROWS: &str = r#"
  {"prompt_tokens": 16, "condition": "busy", "runtime": "mlx", "ttft_ms": {"median": 116.4, "lo": 116, "hi": 117},
   "penalty_removed": 1, "samples": 2},
  {"prompt_tokens": 16, "condition": "idle", "runtime": "mlx", "ttft_ms": {"median": 149.9, "lo": 149, "hi": 151},
   "penalty_removed": 0, "gpu_j": 1.25, "samples": 2},
  {"prompt_tokens": 16, "condition": "hold", "runtime": "mlx", "ttft_ms": {"median": 117.4, "lo": null, "hi": null},
   "penalty_removed": 0.97, "penalty_removed_interval": [0.93, 0.99], "samples": 2}"#;

const RUN: &str = r#"{"runtime": "mlx", "device_name": "<M2> & sons", "simulated": true,
  "late": {"p99_ms": 0.25, "max_ms": 1.5, "limit_ms": 2}, "took_ms": 9000, "samples": [
   {"tokens": 16, "condition": "idle", "ttft_ms": 149.5, "labels": []},
   {"tokens": 16, "condition": "idle", "ttft_ms": 171, "labels": ["late"], "moon": "full"},
   {"tokens": 16, "condition": "busy", "ttft_ms": null, "labels": ["error"]}]}"#;

fn results(rows: &str) -> Results {
    let json = format!(
        r#"{{"rows": [{rows}], "runs": [{RUN}], "command": "everwarm demo", "everwarm": "0.1.0"}}"#
    );
    Results::from_json(&json).unwrap()
}

#[test]
fn a_page_tells_the_story_and_loads_nothing() {
    let html = page(&results(ROWS));
    assert!(html.starts_with("<!doctype html>") && html.contains(GENERATOR));
    assert!(
        html.contains("<h1>A cold first token costs 33.5 ms. A hold takes 97 % of it away.</h1>")
    );
    assert!(html.contains("Simulated: &lt;M2&gt; &amp; sons"), "text is escaped");
    for loading in ["src=", "href=", "url(", "@import", "<script", "<link"] {
        assert!(!html.contains(loading), "{loading} in a page that loads nothing");
    }
    for told in ["149.9", "+33.5 ms", "97 % removed", "93 % \u{2026} 99 %", "everwarm demo", "1.25"]
    {
        assert!(html.contains(told), "{told}");
    }
    assert_eq!(html, page(&results(ROWS)), "equal results give equal bytes");
}

#[test]
fn requests_are_dots_and_void_ones_are_hollow() {
    let svg = picture(&results(ROWS));
    assert_eq!(svg.matches(r#"<circle class="dot" cx"#).count(), 1 + 1, "one request and the key");
    assert_eq!(svg.matches("dot void").count(), 0, "a void one beyond the axis is not drawn");
    let wider = results(&ROWS.replace("\"hi\": 151", "\"hi\": 180"));
    assert_eq!(picture(&wider).matches("dot void").count(), 1);
    assert!(
        svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && svg.ends_with("</svg>\n")
    );
    let idle = svg.find(">idle<").unwrap();
    assert!(idle < svg.find(">busy<").unwrap(), "the trouble comes first");
}

#[test]
fn rows_that_are_not_valid_are_no_numbers() {
    let void = r#"{"prompt_tokens": 16, "condition": "idle", "valid": false, "why": "1 valid of 6",
        "ttft_ms": {"median": null, "lo": null, "hi": null}, "penalty_removed": null}"#;
    let results = results(void);
    assert!(story(&results).headline.starts_with("No number"), "{:?}", story(&results));
    let html = page(&results);
    assert!(html.contains("not valid: 1 valid of 6") && html.contains("1 of 1 rows not valid"));
    assert!(!html.contains(r#"class="work" x="#), "no bar");
}

#[test]
fn no_penalty_is_said_to_be_none() {
    let rows = ROWS
        .replace("149.9", "116.5")
        .replace("\"penalty_removed\": 1", "\"penalty_removed\": null");
    let headline = story(&results(&rows)).headline;
    assert!(headline.starts_with("No cold first token here"), "{headline}");
}

#[test]
fn what_is_no_result_is_explained() {
    let check = |json: &str, expected: &str| {
        let error = Results::from_json(json).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("{}", "missing field `rows`");
    check(r#"{"rows": [{"prompt_tokens": "x"}]}"#, "rows[0].prompt_tokens");
    check("no", "not the JSON of a TTFT bench");
    assert_eq!(
        story(&Results::from_json(r#"{"rows": []}"#).unwrap()).headline,
        "There are no results."
    );
}
