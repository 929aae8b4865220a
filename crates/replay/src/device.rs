//! What requests and warming cost on a device.

use everwarm_governor::{Costs, Penalty};
use everwarm_units::{Instant, Joules, Span, Watts};
use serde::Serialize;

/// A length of prompt that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: u32,
    /// From the first command buffer to the first token, straight after other work.
    pub prefill: Span,
    /// What is added after idle time.
    pub lost: Penalty,
}

/// A device's figures. Between measured points lines are straight; beyond the longest prompt the
/// prefill goes on as steeply, and nothing else grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// For people.
    pub name: String,
    /// By tokens, ascending; at least one.
    pub prompts: Vec<Prompt>,
    /// Of each token after the first.
    pub decode: Span,
    /// From a request's head to its first command buffer: host time, in which a kernel can warm.
    pub host: Span,
    /// Of a hold, above idle.
    pub hold_power: Watts,
    /// Of a pre-warm, above idle.
    pub prewarm_energy: Joules,
    /// How long its kernel runs.
    pub prewarm_span: Span,
    /// The share of the loss that warming leaves, by how long before a request it began: ascending.
    pub left: Vec<(Span, f64)>,
}

/// The time since work within which nothing is lost that a person could measure.
const NOTHING: Span = Span::us(500);

impl Device {
    /// From a request's first command buffer to its first token, when nothing is lost.
    pub fn prefill(&self, tokens: u32) -> Span {
        let (a, b, share) = self.around(tokens);
        // Beyond the ends the line goes on; 0 tokens take no less than nothing.
        let (from, to) = (a.prefill.as_secs(), b.prefill.as_secs());
        Span::from_secs((from + (to - from) * share).max(0.0))
    }

    /// What a prompt loses when the device has been idle for so long.
    pub fn lost(&self, tokens: u32, idle: Span) -> Span {
        let (a, b, share) = self.around(tokens);
        let (from, to) = (a.lost.after(idle).as_secs(), b.lost.after(idle).as_secs());
        Span::from_secs(from + (to - from) * share.clamp(0.0, 1.0))
    }

    /// The share of the loss that is left when warming began so long before.
    pub fn left(&self, lead: Span) -> f64 {
        let next = self.left.partition_point(|(at, _)| *at <= lead);
        match (next.checked_sub(1).map(|i| self.left[i]), self.left.get(next)) {
            (None, None) => 0.0,
            (None, Some((_, first))) => *first,
            (Some((_, last)), None) => last,
            (Some((from, a)), Some((to, b))) => {
                a + (b - a) * lead.saturating_sub(from).share_of(to.saturating_sub(from))
            }
        }
    }

    /// The same for a governor, whose curve is of one length of prompt.
    pub fn costs(&self, tokens: u32) -> Costs {
        let idle: Vec<Span> = (0..48).map(|n| Span::from_ms(5.0 * 1.2_f64.powi(n))).collect();
        let curve: Vec<_> = idle.iter().map(|idle| (*idle, self.lost(tokens, *idle))).collect();
        let free = curve.iter().take_while(|(_, lost)| *lost <= NOTHING).last();
        let lead = self.left.iter().find(|(_, left)| *left < 0.1);
        Costs {
            hold_power: self.hold_power,
            prewarm_energy: self.prewarm_energy,
            prewarm_lead: lead.map_or(self.prewarm_span, |(lead, _)| *lead),
            grace: free.map_or(Span::ZERO, |(idle, _)| *idle),
            penalty: Penalty::new(curve),
        }
    }

    /// The measured lengths around one, and where it lies between them.
    fn around(&self, tokens: u32) -> (&Prompt, &Prompt, f64) {
        let next = self.prompts.partition_point(|p| p.tokens <= tokens);
        let b = next.clamp(1.min(self.prompts.len() - 1), self.prompts.len() - 1);
        let (a, b) = (&self.prompts[b.saturating_sub(1)], &self.prompts[b]);
        let width = f64::from(b.tokens) - f64::from(a.tokens);
        let share =
            if width > 0.0 { (f64::from(tokens) - f64::from(a.tokens)) / width } else { 0.0 };
        (a, b, share)
    }
}

/// How warm a device is: what it did last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Warmth {
    /// Work, or warming, began.
    pub began: Instant,
    /// Idle before that.
    pub idle_before: Span,
    /// And ended; `None`: it goes on.
    pub until: Option<Instant>,
}

impl Warmth {
    /// Idle for longer than anything remembers.
    pub const GONE: Warmth =
        Warmth { began: Instant::ZERO, idle_before: Span::s(86_400), until: Some(Instant::ZERO) };

    /// Begins to work, or to be warmed.
    pub fn begin(&mut self, now: Instant, until: Option<Instant>) {
        let idle_before = self.until.map_or(Span::ZERO, |until| now.since(until));
        // What warms already goes on: the loss that it has taken away stays away.
        if idle_before.is_zero() {
            self.until = until.map(|until| until.max(self.until.unwrap_or(until)));
        } else {
            *self = Warmth { began: now, idle_before, until };
        }
    }

    /// Stops.
    pub fn end(&mut self, now: Instant) {
        self.until = Some(now);
    }

    /// What a prompt loses whose first command buffer comes at `now`.
    pub fn lost(&self, device: &Device, tokens: u32, now: Instant) -> Span {
        let since = self.until.map_or(Span::ZERO, |until| now.since(until));
        let left = device.left(now.since(self.began));
        let before = device.lost(tokens, self.idle_before).as_secs() * left;
        device.lost(tokens, since).max(Span::from_secs(before))
    }
}

/// A distribution of times. Unit: ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    /// Half are below.
    pub p50: f64,
    /// 95 % are below.
    pub p95: f64,
    /// 99 % are below.
    pub p99: f64,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Loses 20 ms per prompt token hundred after half a second, nothing within 100 ms.
    pub(crate) fn device() -> Device {
        let ms = Span::ms;
        let prompt = |tokens, prefill, lost| Prompt {
            tokens,
            prefill: ms(prefill),
            lost: Penalty::new([(ms(100), ms(0)), (ms(500), ms(lost))]),
        };
        Device {
            name: "made up".to_owned(),
            prompts: vec![prompt(100, 200, 20), prompt(200, 400, 40)],
            decode: ms(20),
            host: ms(2),
            hold_power: Watts::w(0.5),
            prewarm_energy: Joules::mj(30.0),
            prewarm_span: ms(6),
            left: vec![(ms(0), 1.0), (ms(10), 0.0)],
        }
    }

    #[test]
    fn lines_are_straight_between_what_was_measured() {
        let device = device();
        assert_eq!(device.prefill(150), Span::ms(300));
        assert_eq!(device.prefill(400), Span::ms(800));
        assert_eq!(device.lost(150, Span::s(1)), Span::ms(30));
        assert_eq!(device.lost(4000, Span::s(1)), Span::ms(40));
        assert_eq!(device.lost(1, Span::ms(300)), Span::ms(10));
        assert_eq!([0, 5, 50].map(|ms| device.left(Span::ms(ms))), [1.0, 0.5, 0.0]);
        let one = Device { prompts: device.prompts[..1].to_vec(), ..device };
        assert_eq!(one.prefill(900), Span::ms(200));
        assert_eq!(one.costs(100).prewarm_lead, Span::ms(10));
    }

    #[test]
    fn warming_takes_the_loss_away_by_its_lead_and_idle_brings_it_back() {
        let (device, at) = (device(), |ms| Instant::ZERO + Span::ms(ms));
        let mut warmth = Warmth::GONE;
        let lost = |warmth: &Warmth, ms| warmth.lost(&device, 100, at(ms));
        assert_eq!(lost(&warmth, 10_000), Span::ms(20));
        warmth.begin(at(10_000), Some(at(10_006)));
        assert_eq!(lost(&warmth, 10_005), Span::ms(10));
        assert_eq!(lost(&warmth, 10_050), Span::ZERO);
        assert_eq!(lost(&warmth, 10_306), Span::ms(10));
        warmth.begin(at(10_004), None);
        assert_eq!(lost(&warmth, 60_000), Span::ZERO);
        warmth.end(at(60_000));
        assert_eq!(lost(&warmth, 60_300), Span::ms(10));
    }
}
