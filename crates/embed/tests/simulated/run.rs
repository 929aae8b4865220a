//! One run of the helper on a simulated device, and everything that could be seen of it.

use everwarm_embed::inflight::{Chunk, InFlight, Landed, Limits, Plan, Turn, Verdict, turn};
use everwarm_embed::units::{PState, Span};
use everwarm_embed::{DeviceQueue, Kernel, gpu};
use gpu::Completion;

/// A host's encoding and a unit's kernel.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// For each command buffer.
    pub buffer: Span,
    /// For each unit in it.
    pub unit: Span,
    /// Up to so much more or less, as a share. Unit: percent.
    pub jitter_pct: u64,
    /// A unit's execution at the top clock, without the fixed cost of a buffer.
    pub kernel: Span,
}

impl Host {
    pub fn encode(&self, units: u32) -> Span {
        self.buffer + self.unit * u64::from(units)
    }
}

/// A chunk as it ran.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    pub landed: Landed,
    pub completion: Completion,
}

#[derive(Debug)]
pub struct Outcome {
    pub ran: Vec<Ran>,
    pub in_flight_max: usize,
    pub verdict: Verdict,
    pub plan: Plan,
}

impl Outcome {
    /// The chunks of the last part of the run, and those of them with a gap of the host's making.
    pub fn late(&self, share: f64) -> &[Ran] {
        &self.ran[((1.0 - share) * self.ran.len() as f64) as usize..]
    }

    /// Share of the gaps in the last part that exceed `limit`.
    pub fn exceed(&self, share: f64, limit: Span) -> f64 {
        let gaps: Vec<Span> = self.late(share).iter().filter_map(|r| r.landed.gap).collect();
        gaps.iter().filter(|gap| **gap > limit).count() as f64 / gaps.len().max(1) as f64
    }

    pub fn last_pstate(&self) -> PState {
        self.ran.last().unwrap().completion.pstate.unwrap()
    }

    /// Units a second of the last part, from its first start to its last end.
    pub fn rate(&self, share: f64) -> f64 {
        let late = self.late(share);
        let units: u64 = late.iter().map(|r| u64::from(r.landed.chunk.units)).sum();
        let (first, last) = (late[0].completion.gpu_start, late[late.len() - 1].completion.gpu_end);
        units as f64 / last.since(first).as_secs()
    }
}

/// Runs requests of so many units each, all submitted after half a second without work.
pub fn run(id: &str, host: Host, limits: Limits, requests: &[u64]) -> Outcome {
    let device = gpu::open(id).unwrap();
    let shape = device.device().clone();
    let mut noise = 1u64;
    let mut queue = DeviceQueue::new(device, |device, chunk: &Chunk| {
        // Knuth's constants: any generator would do.
        noise =
            noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let percent = 100 - host.jitter_pct + (noise >> 33) % (2 * host.jitter_pct + 1);
        let encoded = device.now() + host.encode(chunk.units) * percent / 100;
        device.sleep_until(encoded);
        shape.fma(host.kernel * u64::from(chunk.units), Kernel::FMA_THREADS)
    })
    .unwrap();
    let idle = queue.backend().now() + Span::ms(500);
    queue.backend().sleep_until(idle);
    let mut ahead = InFlight::new(limits);
    for units in requests {
        ahead.submit(*units).unwrap();
    }
    let (mut ran, mut in_flight_max) = (Vec::new(), 0);
    loop {
        match turn(&mut ahead, &mut queue).unwrap() {
            Turn::Landed(landed) => ran.push(Ran { landed, completion: *queue.last().unwrap() }),
            Turn::Committed(_) => in_flight_max = in_flight_max.max(ahead.in_flight()),
            Turn::Idle => break,
            Turn::Woken => unreachable!("nothing else wakes it"),
        }
    }
    Outcome { ran, in_flight_max, verdict: ahead.verdict(), plan: ahead.plan() }
}
