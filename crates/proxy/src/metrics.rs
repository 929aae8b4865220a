//! What is counted, for Prometheus.
//!
//! Times are measured here, at the proxy: a TTFT runs from the request's head to the first
//! non-empty content that was forwarded.

use crate::exchange::Outcome;
use everwarm_governor::Reason;
use everwarm_hold::{Handle as Warmer, State};
use everwarm_stream::Meter;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

type Labels = [(&'static str, String); 1];

pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) in_flight: Gauge,
    pub(crate) connections: Gauge,
    pub(crate) accepted: Counter,
    pub(crate) retries: Counter,
    pub(crate) connects: Counter,
    pub(crate) unmetered: Counter,
    requests: Family<Labels, Counter>,
    responses: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
    hints: Family<Labels, Counter>,
    duration: Histogram,
    ttft: Histogram,
    tpot: Histogram,
    prompt_tokens: Counter,
    completion_tokens: Counter,
    stream_errors: Counter,
}

/// From 1 ms to two minutes, finer where a cold prefill differs from a warm one.
const TTFT_BUCKETS: [f64; 22] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18, 0.2, 0.25, 0.3,
    0.5, 1.0, 2.0, 5.0, 20.0, 120.0,
];
const DURATION_BUCKETS: [f64; 10] = [0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0, 300.0];
const TPOT_BUCKETS: [f64; 9] = [0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3, 1.0];

impl Metrics {
    pub(crate) fn new(warmer: Warmer) -> Self {
        let metrics = Metrics {
            registry: Registry::with_prefix("everwarm"),
            in_flight: Gauge::default(),
            connections: Gauge::default(),
            accepted: Counter::default(),
            retries: Counter::default(),
            connects: Counter::default(),
            unmetered: Counter::default(),
            requests: Family::default(),
            responses: Family::default(),
            failures: Family::default(),
            hints: Family::default(),
            duration: Histogram::new(DURATION_BUCKETS),
            ttft: Histogram::new(TTFT_BUCKETS),
            tpot: Histogram::new(TPOT_BUCKETS),
            prompt_tokens: Counter::default(),
            completion_tokens: Counter::default(),
            stream_errors: Counter::default(),
        };
        metrics.registered(warmer)
    }

    fn registered(mut self, warmer: Warmer) -> Self {
        let mut registry = std::mem::take(&mut self.registry);
        let r = &mut registry;
        r.register("requests_in_flight", "Requests between head and end", self.in_flight.clone());
        r.register("connections_open", "Client connections", self.connections.clone());
        r.register("connections", "Client connections accepted", self.accepted.clone());
        r.register("upstream_connections", "Connections opened upstream", self.connects.clone());
        r.register(
            "upstream_retries",
            "Requests sent again because a reused connection was closing",
            self.retries.clone(),
        );
        r.register(
            "unmetered_responses",
            "Responses that passed faster than they could be read along",
            self.unmetered.clone(),
        );
        r.register("requests", "Requests by what became of them", self.requests.clone());
        r.register("responses", "Upstream responses by status", self.responses.clone());
        r.register(
            "upstream_failures",
            "Requests that the upstream gave no response to, by kind",
            self.failures.clone(),
        );
        r.register("hints", "Hints taken on the admin port, by source", self.hints.clone());
        let seconds = Unit::Seconds;
        let duration = self.duration.clone();
        r.register_with_unit("request_duration", "Head to end", seconds.clone(), duration);
        r.register_with_unit(
            "ttft",
            "Request head to first non-empty content, at the proxy",
            seconds.clone(),
            self.ttft.clone(),
        );
        r.register_with_unit(
            "time_per_output_token",
            "Between tokens after the first, at the proxy",
            seconds,
            self.tpot.clone(),
        );
        r.register("prompt_tokens", "As servers told", self.prompt_tokens.clone());
        r.register("completion_tokens", "As servers told", self.completion_tokens.clone());
        r.register(
            "stream_errors",
            "Errors that upstreams sent inside a response",
            self.stream_errors.clone(),
        );
        r.register_collector(Box::new(Warming(warmer)));
        self.registry = registry;
        self
    }

    /// An exchange is over.
    pub(crate) fn ended(&self, outcome: Outcome, after: Duration) {
        let name = match outcome {
            Outcome::Complete => "complete",
            Outcome::ClientAbort => "client_abort",
            Outcome::UpstreamCut => "upstream_cut",
            Outcome::UpstreamFailure => "upstream_failure",
        };
        self.requests.get_or_create(&[("outcome", name.to_owned())]).inc();
        self.duration.observe(after.as_secs_f64());
    }

    /// A response's bytes have been read.
    pub(crate) fn measured(&self, meter: &Meter) {
        if let Some(ttft) = meter.ttft() {
            self.ttft.observe(ttft.as_secs());
        }
        if let Some(tpot) = meter.tpot() {
            self.tpot.observe(tpot.as_secs());
        }
        self.prompt_tokens.inc_by(meter.prompt_tokens().unwrap_or(0));
        self.completion_tokens.inc_by(meter.completion_tokens().unwrap_or(0));
        if meter.error().is_some() {
            self.stream_errors.inc();
        }
    }

    pub(crate) fn response(&self, status: http::StatusCode) {
        self.responses.get_or_create(&[("code", status.as_u16().to_string())]).inc();
    }

    pub(crate) fn failure(&self, kind: &'static str) {
        self.failures.get_or_create(&[("kind", kind.to_owned())]).inc();
    }

    pub(crate) fn hint(&self, source: &'static str) {
        self.hints.get_or_create(&[("source", source.to_owned())]).inc();
    }

    /// All of it as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }
}

/// The warmer's status, read when somebody asks.
#[derive(Debug)]
struct Warming(Warmer);

impl Collector for Warming {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let status = self.0.status();
        let gauge = |e: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64| {
            let metric = ConstGauge::new(value);
            metric.encode(e.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        let counter = |e: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64| {
            let metric = ConstCounter::new(value);
            metric.encode(e.encode_descriptor(name, help, None, metric.metric_type())?)
        };
        let e = &mut encoder;
        let on = |state| f64::from(u8::from(status.warm.state == state));
        gauge(e, "warm_holding", "1 while a hold is on", on(State::Holding))?;
        gauge(e, "warm_unavailable", "1 while the device can't be warmed", on(State::Unavailable))?;
        gauge(e, "energy_cap_joules", "Energy cap of 24 hours", status.energy.cap_j)?;
        gauge(e, "energy_24h_joules", "Used of it", status.energy.used_24h_j)?;
        counter(e, "energy_joules", "Energy used for warming", status.energy.total_j)?;
        let c = status.counters;
        counter(e, "prewarms", "Pre-warm kernels submitted", c.prewarms as f64)?;
        counter(e, "holds", "Holds begun", c.holds as f64)?;
        counter(e, "hold_seconds", "Time spent holding", c.hold_ms as f64 / 1e3)?;
        counter(e, "warming_failures", "Times the device failed", c.failures as f64)?;
        let mut releases =
            e.encode_descriptor("releases", "Holds ended, by reason", None, MetricType::Counter)?;
        for (reason, count) in Reason::ALL.iter().zip(c.releases) {
            ConstCounter::new(count)
                .encode(releases.encode_family(&[("reason", reason.name())])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_every_metric() {
        let page = include_str!("../../../docs/proxy.md");
        let config = everwarm_hold::Config {
            device: None,
            policy: "never".to_owned(),
            governor: everwarm_governor::Config::default(),
            shape: everwarm_hold::Shape::default(),
            surroundings: everwarm_hold::Surroundings::Ignored,
        };
        let warmer = everwarm_hold::Warmer::spawn(config).unwrap();
        let text = Metrics::new(warmer.handle()).text();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let pairs: Vec<_> = types.filter_map(|line| line.split_once(' ')).collect();
        assert!(pairs.len() > 20, "{text}");
        for (name, kind) in pairs {
            let shown = if kind == "counter" { format!("{name}_total") } else { name.to_owned() };
            assert!(page.contains(&format!("`{shown}")), "{shown}");
        }
    }
}
