//! Each kind of mistake in a scenario or claims file gives its place, the value, and what was
//! expected.

use everwarm_lab::{Claims, Scenario};
use std::path::Path;

/// `expected` are parts of the message; the place is line and column.
fn scenario(text: &str, place: (usize, usize), expected: &[&str]) {
    let error = Scenario::from_toml("bad.toml", text).expect_err(text);
    assert_eq!((error.line, error.column), place, "{error}");
    says(&error.to_string(), expected);
}

fn claims(text: &str, line: usize, expected: &[&str]) {
    let error = Claims::from_toml("bad.toml", text, Path::new(".")).expect_err(text).to_string();
    says(&error, &[&format!("bad.toml:{line}:")]);
    says(&error, expected);
}

fn says(error: &str, expected: &[&str]) {
    for part in expected {
        assert!(error.contains(part), "expected `{part}` in:\n{error}");
    }
}

#[test]
fn keys() {
    scenario("round = 3", (1, 1), &["unknown field `round`", "`rounds`", "`telemetry`"]);
    scenario(
        "rounds = 3\nsteps = [\n  { run = \"empty\", slep = \"1 ms\" },\n]",
        (3, 20),
        &["unknown field `slep`", "`sleep`", "3 |   { run"],
    );
    scenario(
        "[[actor]]\nname = \"a\"\ndepth = 3\nsteps = []",
        (3, 1),
        &["unknown field `depth`", "`background`"],
    );
    scenario(
        "steps = [{ run = { alu = \"1 ms\", treads = 2 } }]",
        (1, 34),
        &["unknown field `treads`"],
    );
    scenario("steps = [{}]", (1, 10), &["a step needs one of idle, run"]);
    scenario("steps = [{ idle = \"1 s\", run = \"empty\" }]", (1, 10), &["can't be idle and run"]);
    scenario(
        "steps = [{ idle = \"1 s\", times = 3 }]",
        (1, 10),
        &["`times` has no meaning in a `idle` step"],
    );
    scenario("rounds = 3", (1, 1), &["nothing to run", "`steps`"]);
}

#[test]
fn the_in_flight_helper() {
    let step = |kernel: &str, rest: &str| format!("steps = [\n  {{ run = {kernel}, {rest} }},\n]");
    let empty = |rest: &str| step("\"empty\"", rest);
    scenario(
        &empty("in_flight = \"many\""),
        (2, 32),
        &["`many` is no depth; expected a whole number of at least 1, \"all\" or \"auto\""],
    );
    scenario(&empty("in_flight = { gap = \"0\" }"), (2, 32), &["a gap of 0 can't be kept"]);
    scenario(
        &empty("in_flight = { mots = 3 }"),
        (2, 34),
        &["unknown field `mots`", "`most`", "`latency`"],
    );
    scenario(
        &empty("in_flight = \"auto\", sleep = \"1 ms\""),
        (2, 3),
        &["decides itself when to wait; expected `delay`"],
    );
    scenario(
        &empty("in_flight = \"auto\", gap = \"1 ms\""),
        (2, 3),
        &["`gap` sets the host's sleep of a run with one buffer in flight"],
    );
    scenario(
        &step("{ matmul = 64 }", "in_flight = { chunk = 2 }"),
        (2, 3),
        &["2 of this kernel in one command buffer are no kernel"],
    );
}

#[test]
fn values() {
    let step = |rest: &str| format!("steps = [\n  {{ run = {{ alu = \"1 ms\" }}, {rest} }},\n]");
    scenario(
        &step("sleep = \"-1 ms\""),
        (2, 37),
        &["`-1 ms` is negative", "a duration such as `8 ms`"],
    );
    scenario(&step("sleep = 5"), (2, 37), &["5 has no unit", "a duration"]);
    scenario(&step("sleep = true"), (2, 37), &["boolean `true`", "a duration"]);
    scenario(&step("gap = \"3 parsecs\""), (2, 35), &["unknown unit `parsecs`", "ns, us, ms"]);
    scenario(&step("in_flight = 0"), (2, 41), &["0 is out of range", "at least 1"]);
    scenario(&step("in_flight = \"most\""), (2, 41), &["`most` is no depth", "\"all\""]);
    scenario(&step("times = 0"), (2, 37), &["0 is out of range"]);
    scenario(&step("times = 2, for = \"1 s\""), (2, 3), &["only one of `times`, `for` and `deep`"]);
    scenario(&step("gap = \"1 ms\", in_flight = 2"), (2, 3), &["`gap` sets the host's sleep"]);
    scenario("rounds = 0\nsteps = []", (1, 10), &["0 is out of range"]);
    scenario("rounds = -3\nsteps = []", (1, 10), &["-3 is out of range"]);
    scenario("telemetry = \"0 ms\"\nsteps = []", (1, 13), &["the telemetry period is 0"]);
    scenario(
        "order = \"random\"\nsteps = []",
        (1, 9),
        &["unknown variant `random`", "`interleaved`"],
    );
    scenario("steps = [{ pin = 0 }]", (1, 18), &["0 is no p-state"]);
    scenario(
        "steps = [{ prefill = 16, runtime = \"vllm\" }]",
        (1, 10),
        &["no runtime `vllm`", "mlx"],
    );
    scenario(
        "steps = [{ idle = \"1 ms\", signal = \"s\", lead = \"2 ms\" }]",
        (1, 10),
        &["lead of 2 ms is longer"],
    );
    scenario("steps = [{ run = \"empty\" ]", (1, 26), &["expected `,`"]);
}

/// What would fill the memory is refused before it is built.
#[test]
fn sizes() {
    let many = vec!["1"; 100].join(", ");
    let sweep = format!("steps = [{{ idle = \"1 s\" }}]\n[sweep]\na = [{many}]\nb = [{many}]\n");
    let sweep = format!("{sweep}c = [{many}]\nd = [{many}]\ne = [{many}]\n");
    scenario(&sweep, (2, 1), &["the sweep has 10000000000 cells", "at most 10000"]);
    scenario(
        "rounds = 4000000000\nsteps = [{ idle = \"1 s\" }]",
        (1, 10),
        &["4000000000 rounds of 1 cells are too many", "at most 1000000"],
    );
    scenario("steps = [{ decode = 4000000000 }]", (1, 10), &["4000000000 tokens are too many"]);
    scenario(
        "steps = [{ steps = [{ idle = \"1 s\" }], repeat = 4000000000 }]",
        (1, 10),
        &["more than 100000 steps"],
    );
}

/// What would never end, ends with a reason.
#[test]
fn endless_runs() {
    let run = |step: &str| {
        let text = format!("steps = [{step}]");
        let scenario = Scenario::from_toml("long.toml", &text).expect(&text);
        everwarm_lab::run(&scenario, "sim:m2").expect_err(&text).to_string()
    };
    says(&run("{ run = { matmul = 4000000000 } }"), &["too long", "one round", "24 h"]);
    says(&run("{ run = \"stream\" }, { idle = \"9999 h\" }, { run = \"stream\" }"), &["24 h"]);
    says(
        &run("{ run = { alu = \"1000 h\" }, label = \"long\" }"),
        &["step `long`", "1000 h", "65536 threads takes at most", "sim:m2"],
    );
}

#[test]
fn kernels() {
    let run = |kernel: &str| format!("steps = [{{ run = {kernel} }}]");
    scenario(&run("\"sort\""), (1, 18), &["unknown kernel `sort`", "alu, stream, touch, matmul"]);
    scenario(&run("{ sort = 3 }"), (1, 20), &["unknown field `sort`", "`alu`", "`matmul`"]);
    scenario(&run("{ }"), (1, 18), &["exactly one of alu, stream"]);
    scenario(&run("{ alu = \"1 ms\", matmul = 3 }"), (1, 18), &["exactly one of"]);
    scenario(&run("{ matmul = 0 }"), (1, 29), &["0 is out of range"]);
    scenario(&run("{ alu = { threads = 3 } }"), (1, 26), &["either `time` or `iterations`"]);
    scenario(&run("{ stream = \"4 ms\" }"), (1, 29), &["unknown unit `ms`", "MB"]);
}

#[test]
fn variables() {
    let sweep = "[sweep]\ngap = [\"1 ms\", \"-2 ms\"]\n";
    let with = |steps: &str| format!("{sweep}[[actor]]\nname = \"a\"\nsteps = [{steps}]");
    scenario(&with("{ idle = \"$gop\" }"), (5, 19), &["no sweep variable `gop`", "there are gap"]);
    // The value is wrong where it stands, not where it is used.
    scenario(&with("{ idle = \"$gap\" }"), (2, 16), &["`-2 ms` is negative"]);
    scenario(&with("{ idle = \"$gap.x\" }"), (5, 19), &["no key `x`"]);
    scenario(
        &with("{ idle = \"1 s\", when = { gup = \"1 ms\" } }"),
        (5, 33),
        &["`gup`", "there are gap"],
    );
    scenario(
        &with("{ idle = \"1 s\", when = { gap = \"3 ms\" } }"),
        (5, 33),
        &["`3 ms` is no value of `gap`", "1 ms"],
    );
    scenario("sweep = { gap = [] }\nsteps = []", (1, 17), &["`gap` must be a list"]);
    scenario("steps = [{ idle = \"$gap\" }]", (1, 19), &["the scenario has no [sweep]"]);
}

#[test]
fn actors() {
    let actors = |a: &str, b: &str| format!("[[actor]]\nname = \"a\"\n{a}\n[[actor]]\n{b}");
    scenario(
        &actors("steps = [{ idle = \"1 s\" }]", "name = \"a\"\nsteps = []"),
        (4, 1),
        &["two actors are called `a`"],
    );
    scenario(
        &actors("steps = [{ await = \"go\" }]", "name = \"b\"\nsteps = [{ signal = \"og\" }]"),
        (3, 10),
        &["awaits `go`", "raised are og"],
    );
    scenario(
        &actors("background = true\nsteps = [{ signal = \"x\" }]", "name = \"b\"\nsteps = []"),
        (1, 1),
        &["would repeat without passing time"],
    );
    scenario(
        &actors(
            "background = true\nsteps = [{ run = \"empty\", for = \"0\" }]",
            "name = \"b\"\nsteps = []",
        ),
        (1, 1),
        &["would repeat without passing time"],
    );
}

#[test]
fn claims_files() {
    let claim = |rest: &str| format!("[[claim]]\nid = \"a\"\n{rest}");
    claims(&claim("expect = [3, 2]"), 3, &["[3, 2] is no range", "low <= high"]);
    claims(&claim("expect = [1, 2, 3]"), 3, &["`expect_list`"]);
    claims(&claim("expect_list = [1, nan]"), 3, &["no number"]);
    claims("[[claim]]\nid = \"\"\nexpect = 1", 1, &["`id` is empty"]);
    claims(&claim("expect = \"fast\""), 3, &["\"fast\" is no number"]);
    claims(&claim("expect = 1\ntol = -1"), 4, &["a tolerance of -1 is impossible"]);
    claims(&claim("unit = \"ms\""), 1, &["the claim `a` expects nothing"]);
    claims(&claim("expect = 1\nunit = \"furlong\""), 4, &["unknown unit `furlong`", "GFLOP/s"]);
    claims(&claim("expect = 1\nexpects = 2"), 4, &["unknown field `expects`", "`expect_list`"]);
    claims(&format!("{0}{0}", claim("expect = 1\n")), 4, &["a second claim with the id `a`"]);
    claims("[[claims]]\nid = \"a\"", 1, &["unknown key `claims`"]);
    claims("", 1, &["no [[claim]]"]);
    let measure =
        |measure: &str| claim(&format!("expect = 1\nscenario = \"ttft\"\nmeasure = {measure}"));
    claims(&measure("{ metric = \"speed\" }"), 5, &["unknown variant `speed`", "`rate`"]);
    claims(&measure("{ metrics = \"rate\" }"), 5, &["unknown field `metrics`", "`metric`"]);
    claims(&measure("{ metric = \"time_until\" }"), 5, &["`time_until` needs `reach`"]);
    claims(&measure("{ metric = \"rate\", at = 8 }"), 5, &["`at` has no meaning for `rate`"]);
    claims(&measure("{ metric = \"wall\", last = 0.5 }"), 5, &["`last` selects nothing of `wall`"]);
    claims(&measure("{ metric = \"rate\", list = [] }"), 5, &["empty `list`"]);
    claims(
        &measure("{ metric = \"rate\", aggregate = \"mode\" }"),
        5,
        &["unknown aggregator `mode`", "median"],
    );
    claims(&measure("{ metric = \"rate\", dispatch = [5, 2] }"), 5, &["[5, 2] is no range"]);
    claims(
        &measure("{ metric = \"rate\", window = [\"2 s\", \"1 s\"] }"),
        5,
        &["no range of time"],
    );
    claims(&measure("{ metric = \"rate\", last = 1.5 }"), 5, &["1.5 is no share"]);
    claims(
        &measure("{ metric = \"rate\", ratio = [{ }] }"),
        5,
        &["`ratio` has 1 measures; expected two"],
    );
    claims(
        &measure("{ metric = \"wall\", removed = { idle = { }, busy = { } } }"),
        5,
        &["`removed` needs `with`"],
    );
    claims(&claim("expect = 1\nmeasure = { metric = \"rate\" }"), 4, &["no `scenario`"]);
    claims(
        &claim(
            "expect = 1\nscenario = { steps = [{ idle = \"soon\" }] }\nmeasure = { metric = \"wall\" }",
        ),
        4,
        &["`soon` does not start with a number"],
    );
}
