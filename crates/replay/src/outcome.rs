//! What came of a replay.

use crate::device::Quantiles;
use crate::hindsight::Gap;
use everwarm_units::{Joules, Span};

/// What came of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The policy's name.
    pub policy: String,
    /// TTFT of each request, in the order of their starts.
    pub ttft: Vec<Span>,
    /// What all requests together lost to idle.
    pub lost: Span,
    /// From the first arrival to the last end.
    pub span: Span,
    /// What warming used, above idle. A hold beside a running request counts nothing.
    pub energy: Joules,
    /// Pre-warm kernels.
    pub prewarms: u64,
    /// Holds that were begun.
    pub holds: u64,
    /// Pre-warms and holds that took nothing from any request.
    pub false_warms: u64,
    /// What was between requests, for [`crate::History`].
    pub gaps: Vec<Gap>,
}

impl Outcome {
    /// The TTFT's distribution; `None` without requests.
    pub fn quantiles(&self) -> Option<Quantiles> {
        let mut all: Vec<f64> = self.ttft.iter().map(|span| span.as_ms()).collect();
        all.sort_by(f64::total_cmp);
        let q = |q| everwarm_stats::quantile(&all, q);
        Some(Quantiles { p50: q(0.5)?, p95: q(0.95)?, p99: q(0.99)? })
    }

    /// The share of what requests lose without warming that this took away; 0 where nothing is lost.
    pub fn removed(&self, never: &Outcome) -> f64 {
        if never.lost.is_zero() { 0.0 } else { 1.0 - self.lost.share_of(never.lost) }
    }

    /// At this rate. Unit: Wh.
    pub fn wh_per_day(&self) -> f64 {
        let days = self.span.as_secs() / 86_400.0;
        if days > 0.0 { self.energy.as_wh() / days } else { 0.0 }
    }
}
