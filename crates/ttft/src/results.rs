//! Samples made into rows.

use crate::plan::{Condition, Plan};
use crate::sample::{Label, Sample};
use everwarm_stats::{Bootstrap, Interval, median, quantile};
use everwarm_units::Span;
use serde::{Deserialize, Serialize};

/// What a bench found.
#[derive(Clone, Debug)]
pub struct Results {
    /// Where the requests went.
    pub url: String,
    /// The device, as it was written, if one was given.
    pub device: Option<String>,
    /// The maker's name of it.
    pub device_name: Option<String>,
    /// True for a modelled one.
    pub simulated: Option<bool>,
    /// What was planned.
    pub plan: Plan,
    /// What made the pre-warm conditions something else than their names say, in a sentence.
    pub proxy_remark: Option<String>,
    /// How long it took.
    pub took: Span,
    /// Every request, void ones too.
    pub samples: Vec<Sample>,
}

/// A median with its bootstrap interval; all `None` where there is no number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median.
    pub median: Option<f64>,
    /// Lower end of its 95 % interval; `None` of fewer than two samples.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
}

impl Estimate {
    fn of(point: Option<f64>, interval: Option<Interval>) -> Self {
        Estimate { median: point, lo: interval.map(|i| i.lo), hi: interval.map(|i| i.hi) }
    }
}

/// One condition at one prompt length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Tokens of the prompt: the server's own count where it told, else what was asked for.
    pub prompt_tokens: u64,
    /// Tokens that were asked for.
    pub prompt_tokens_asked: u32,
    /// What came before the requests.
    pub condition: Condition,
    /// False if too few samples are valid; then there is no number.
    pub valid: bool,
    /// Why not.
    pub why: Option<String>,
    /// Time to first token at the client.
    pub ttft_ms: Estimate,
    /// (idle - this) / (idle - busy), of medians; `None` where either is missing or there was no
    /// penalty to remove.
    pub penalty_removed: Option<f64>,
    /// Its 95 % interval; `None` if unknown, and for idle and busy, where it is so by definition.
    pub penalty_removed_interval: Option<[f64; 2]>,
    /// This by busy, a ratio of medians with its interval.
    pub ratio_to_busy: Option<[f64; 3]>,
    /// From the pre-warm's submission to the start of the prefill on the GPU.
    pub lead_ms: Estimate,
    /// Median energy of the GPU rail over the idle time and the request.
    pub gpu_j: Option<f64>,
    /// Median energy of the CPU spent on submission, over the same.
    pub cpu_j: Option<f64>,
    /// Valid samples.
    pub samples: usize,
    /// Void samples of each kind.
    pub void: Vec<(Label, usize)>,
}

/// How late the real-time simulation ran over all requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// What the lateness of 99 of 100 requests stayed under, by each request's own p99.
    pub p99_ms: f64,
    /// The latest of all.
    pub max_ms: f64,
    /// A sample is void above this.
    pub limit_ms: f64,
}

impl Results {
    /// The rows, by prompt length and then by condition.
    pub fn rows(&self) -> Vec<Row> {
        let mut lengths = self.plan.rounds.clone();
        lengths.sort_unstable();
        let conditions =
            || Condition::all().filter(|condition| self.plan.conditions.contains(condition));
        lengths.iter().flat_map(|l| conditions().map(move |c| self.row(*l, c))).collect()
    }

    /// How late the simulation ran; `None` where nothing was simulated by the wall clock.
    pub fn lateness(&self) -> Option<Lateness> {
        let of =
            |f: fn(&Sample) -> Option<f64>| self.samples.iter().filter_map(f).collect::<Vec<_>>();
        Some(Lateness {
            p99_ms: quantile(&of(|s| s.late_p99_ms), 0.99)?,
            max_ms: quantile(&of(|s| s.late_max_ms), 1.0)?,
            limit_ms: self.plan.late_max.as_ms(),
        })
    }

    /// True if every row is valid.
    pub fn is_valid(&self) -> bool {
        self.rows().iter().all(|row| row.valid)
    }

    /// Prompt lengths at which idle is not slower than busy beyond chance, as they were asked for.
    pub fn without_penalty(&self) -> Vec<u32> {
        let unclear = |row: &Row| {
            let lacks = row.penalty_removed.is_none() && row.ratio_to_busy.is_some();
            row.condition == Condition::Idle && row.valid && lacks
        };
        self.rows().iter().filter(|row| unclear(row)).map(|r| r.prompt_tokens_asked).collect()
    }

    /// Everything as JSON: rows first, then what they were made of.
    pub fn to_json(&self) -> serde_json::Value {
        let plan = &self.plan;
        serde_json::json!({
            "rows": self.rows(),
            "valid": self.is_valid(),
            "measured_at": "client",
            "url": self.url,
            "device": self.device,
            "device_name": self.device_name,
            "simulated": self.simulated,
            "proxy_remark": self.proxy_remark,
            "late": self.lateness(),
            "took_ms": self.took.as_ms(),
            "seed": plan.seed,
            "idle_ms": plan.idle.as_ms(),
            "hint_lead_ms": plan.hint_lead.as_ms(),
            "samples": self.samples,
        })
    }

    fn row(&self, (tokens, rounds): (u32, u32), condition: Condition) -> Row {
        let cell = |condition| -> Vec<&Sample> {
            let own = |s: &&Sample| s.tokens == tokens && s.condition == condition;
            self.samples.iter().filter(own).collect()
        };
        let all = cell(condition);
        let valid: Vec<&Sample> = all.iter().copied().filter(|s| s.is_valid()).collect();
        let why = shortfall(&all, valid.len(), rounds);
        let counts: Vec<f64> =
            valid.iter().filter_map(|s| s.prompt_tokens.map(|n| n as f64)).collect();
        let mut row = Row {
            prompt_tokens: median(&counts).map_or(u64::from(tokens), |n| n.round() as u64),
            prompt_tokens_asked: tokens,
            condition,
            valid: why.is_none(),
            why,
            ttft_ms: Estimate::default(),
            penalty_removed: None,
            penalty_removed_interval: None,
            ratio_to_busy: None,
            lead_ms: Estimate::default(),
            gpu_j: None,
            cpu_j: None,
            samples: valid.len(),
            void: tally(&all),
        };
        if row.valid {
            let times = |condition| {
                let cell = cell(condition);
                let usable = cell.iter().filter(|s| s.is_valid()).count();
                let enough = shortfall(&cell, usable, rounds).is_none();
                if enough { of(&cell, |s| s.ttft_ms) } else { Vec::new() }
            };
            let (idle, busy) = (times(Condition::Idle), times(Condition::Busy));
            self.number(&mut row, &valid, &idle, &busy);
        }
        row
    }

    fn number(&self, row: &mut Row, valid: &[&Sample], idle: &[f64], busy: &[f64]) {
        let bootstrap = Bootstrap { seed: self.plan.seed, ..Bootstrap::default() };
        let estimate = |values: &[f64]| Estimate::of(median(values), bootstrap.median(values));
        let own = of(valid, |s| s.ttft_ms);
        row.ttft_ms = estimate(&own);
        row.lead_ms = estimate(&of(valid, |s| s.lead_ms));
        row.gpu_j = median(&of(valid, |s| s.gpu_j));
        row.cpu_j = median(&of(valid, |s| s.cpu_j));
        let ratio = bootstrap.ratio(busy, &own);
        row.ratio_to_busy = ratio.map(|r| [r.point, r.lo, r.hi]);
        // No share of a penalty that may not be there.
        let penalty = bootstrap.difference(busy, idle);
        if penalty.is_some_and(|penalty| penalty.lo <= 0.0) {
            return;
        }
        row.penalty_removed = everwarm_stats::penalty_removed(idle, busy, &own);
        let measured = !matches!(row.condition, Condition::Idle | Condition::Busy);
        let interval = measured.then(|| bootstrap.penalty_removed(idle, busy, &own)).flatten();
        row.penalty_removed_interval = interval.map(|i| [i.lo, i.hi]);
    }
}

/// Why there are too few valid samples; at least three in five of the rounds, and two of several.
fn shortfall(all: &[&Sample], valid: usize, rounds: u32) -> Option<String> {
    let wanted = (rounds as usize * 3).div_ceil(5).max(rounds.min(2) as usize);
    if valid >= wanted {
        return None;
    }
    let kinds = tally(all);
    let told: Vec<String> =
        kinds.iter().map(|(label, n)| format!("{n} {}", in_words(*label))).collect();
    let error = all.iter().rev().find_map(|s| s.error.as_deref());
    let detail = error.map(|e| format!("; the last error: {e}")).unwrap_or_default();
    Some(format!(
        "{valid} valid of {} samples, {wanted} wanted ({}){detail}",
        all.len(),
        told.join(", ")
    ))
}

fn in_words(label: Label) -> &'static str {
    match label {
        Label::Late => "late: the machine was too busy to keep time",
        Label::Tokens => "of another length than the rest",
        Label::Cached => "from the server's prompt cache",
        Label::Error => "failed",
    }
}

fn tally(samples: &[&Sample]) -> Vec<(Label, usize)> {
    let count = |label: Label| samples.iter().filter(|s| s.labels.contains(&label)).count();
    let labels = [Label::Late, Label::Tokens, Label::Cached, Label::Error];
    labels.into_iter().map(|label| (label, count(label))).filter(|(_, n)| *n > 0).collect()
}

/// A quantity of the valid ones among `samples`.
fn of(samples: &[&Sample], f: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
    samples.iter().filter(|s| s.is_valid()).filter_map(|s| f(s)).collect()
}
