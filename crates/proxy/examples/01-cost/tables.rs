//! The tables, as markdown.
//!
//! Percentiles are of all samples of all rounds; an interval says where they would lie had other
//! rounds been drawn (95 %, percentile bootstrap over whole rounds, because neighbours in time are
//! not independent). What a round gives one number of has the median of the rounds.

use std::fmt::Write;

use everwarm_stats::{Bootstrap, Interval, median, quantile};

use crate::client::Samples;
use crate::cost::{Condition, Idle, Round};
use crate::peers::Placement;
use crate::prewarm::Delays;

pub fn all(
    conditions: &[Condition],
    idle: &[Idle],
    delays: &Delays,
    placement: Placement,
    rounds: u32,
) -> String {
    let mut text = format!(
        "{rounds} rounds; {} CPUs, the load on one, the proxies on {}.\n",
        placement.cpus(),
        placement.threads()
    );
    for (streaming, title, of) in
        [(false, "one JSON answer", "latency"), (true, "a stream's first content", "latency")]
    {
        let _ = writeln!(
            text,
            "\n| {title} | connections | added {of} p50, us | p99, us | CPU an answer, us | \
             answers/s |\n| --- | ---: | ---: | ---: | ---: | ---: |"
        );
        latency_rows(&mut text, conditions, streaming, |samples| &samples.latencies);
    }
    text += "\n| between pieces of a stream | connections | added delay of a piece p50, us | p99, \
             us | shift against the piece before p50, us | p99, us |\n\
             | --- | ---: | ---: | ---: | ---: | ---: |\n";
    piece_rows(&mut text, conditions);
    text += "\n| memory for an idle connection | KiB, median | least to most |\n\
             | --- | ---: | ---: |\n";
    for Idle { peer, bytes } in idle {
        let kib = |q| quantile(bytes, q).unwrap_or(f64::NAN) / 1024.0;
        let (mid, lo, hi) = (kib(0.5), kib(0.0), kib(1.0));
        let _ = writeln!(text, "| {} | {mid:.1} | {lo:.1} to {hi:.1} |", peer.name());
    }
    if delays.prewarms.is_empty() {
        return text;
    }
    text += "\n| until a pre-warm is submitted | p50, us | p99, us | most, us | samples |\n\
             | --- | ---: | ---: | ---: | ---: |\n";
    for (name, values) in [
        ("from the accept", &delays.prewarms),
        ("from before the client's connect", &delays.connects),
        ("a bare wake-up of a thread", &delays.wakes),
    ] {
        let values: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
        let at = |q| quantile(&values, q).unwrap_or(f64::NAN);
        let (p50, p99, most) = (at(0.5), at(0.99), at(1.0));
        let _ = writeln!(text, "| {name} | {p50:.1} | {p99:.1} | {most:.1} | {} |", values.len());
    }
    text
}

type Values = fn(&Samples) -> &Vec<f32>;

/// The conditions of one load: the direct path, and the proxies.
fn of_load(
    conditions: &[Condition],
    streaming: bool,
    connections: usize,
) -> (&Condition, impl Iterator<Item = &Condition>) {
    let here =
        move |c: &&Condition| c.load.streaming == streaming && c.load.connections == connections;
    let direct = conditions.iter().filter(here).find(|c| c.peer.is_none());
    let proxies = conditions.iter().filter(here).filter(|c| c.peer.is_some());
    (direct.expect("the direct path is measured with every load"), proxies)
}

/// Connections at a time, as they were asked for.
fn loads(conditions: &[Condition]) -> Vec<usize> {
    let direct = conditions.iter().filter(|c| c.peer.is_none() && c.load.streaming);
    direct.map(|c| c.load.connections).collect()
}

fn latency_rows(text: &mut String, conditions: &[Condition], streaming: bool, values: Values) {
    for connections in loads(conditions) {
        let (direct, proxies) = of_load(conditions, streaming, connections);
        let at = |q| point(&pooled(&direct.rounds, values), q);
        let (p50, p99, rate) = (at(0.5), at(0.99), of_rounds(direct, rate));
        let _ = writeln!(
            text,
            "| the direct path itself | {connections} | {p50:.1} | {p99:.1} | | {rate:.0} |"
        );
        for proxy in proxies {
            let (p50, p99) =
                (added(direct, proxy, values, 0.5), added(direct, proxy, values, 0.99));
            let cpu = interval_of_rounds(proxy, cpu);
            let _ = writeln!(
                text,
                "| {} | {connections} | {p50} | {p99} | {cpu} | {:.0} |",
                proxy.peer.map_or("", |peer| peer.name()),
                of_rounds(proxy, crate::tables::rate)
            );
        }
    }
}

fn piece_rows(text: &mut String, conditions: &[Condition]) {
    let (delays, shifts): (Values, Values) = (|s| &s.delays, |s| &s.shifts);
    for connections in loads(conditions) {
        let (direct, proxies) = of_load(conditions, true, connections);
        let shift = |c: &Condition, q| point(&pooled(&c.rounds, shifts), q);
        let own = |q| point(&pooled(&direct.rounds, delays), q);
        let _ = writeln!(
            text,
            "| the direct path itself | {connections} | {:.1} | {:.1} | {:.1} | {:.1} |",
            own(0.5),
            own(0.99),
            shift(direct, 0.5),
            shift(direct, 0.99)
        );
        for proxy in proxies {
            let _ = writeln!(
                text,
                "| {} | {connections} | {} | {} | {:.1} | {:.1} |",
                proxy.peer.map_or("", |peer| peer.name()),
                added(direct, proxy, delays, 0.5),
                added(direct, proxy, delays, 0.99),
                shift(proxy, 0.5),
                shift(proxy, 0.99)
            );
        }
    }
}

/// CPU time of the proxy for an answer. Unit: us.
fn cpu(round: &Round) -> f64 {
    round.cpu_ns as f64 / 1e3 / round.samples.answers as f64
}

fn rate(round: &Round) -> f64 {
    round.samples.answers as f64 / round.seconds
}

fn of_rounds(condition: &Condition, value: fn(&Round) -> f64) -> f64 {
    let values: Vec<f64> = condition.rounds.iter().map(value).collect();
    median(&values).unwrap_or(f64::NAN)
}

fn interval_of_rounds(condition: &Condition, value: fn(&Round) -> f64) -> String {
    let values: Vec<f64> = condition.rounds.iter().map(value).collect();
    shown(Bootstrap::default().median(&values))
}

/// The percentile of `proxy` less that of `direct`. Round n of both is drawn together.
fn added(direct: &Condition, proxy: &Condition, values: Values, q: f64) -> String {
    let rounds: Vec<f64> = (0..direct.rounds.len()).map(|n| n as f64).collect();
    // A resample sorts through all samples; 200 keep an interval's ends steady enough to be read.
    let bootstrap = Bootstrap { resamples: 200, ..Bootstrap::default() };
    shown(bootstrap.percentile(&[&rounds], |drawn| {
        let of = |condition: &Condition| {
            let picked = drawn[0].iter().map(|n| &condition.rounds[*n as usize]);
            point(&pooled(picked, values), q)
        };
        Some(of(proxy) - of(direct))
    }))
}

fn shown(interval: Option<Interval>) -> String {
    match interval {
        Some(Interval { point, lo, hi }) => format!("{point:.1} ({lo:.1} to {hi:.1})"),
        None => "-".to_owned(),
    }
}

fn pooled<'a>(rounds: impl IntoIterator<Item = &'a Round>, values: Values) -> Vec<f32> {
    rounds.into_iter().flat_map(|round| values(&round.samples)).copied().collect()
}

/// The percentile's nearest rank, without sorting.
fn point(values: &[f32], q: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let mut values = values.to_vec();
    let rank = ((values.len() as f64 * q).ceil() as usize).clamp(1, values.len()) - 1;
    f64::from(*values.select_nth_unstable_by(rank, f32::total_cmp).1)
}
