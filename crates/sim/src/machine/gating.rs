//! Losing power and getting it back.
//!
//! The GPU is gated some time after its last work and woken by a commit. What a wake costs depends
//! on how long nothing ran; the first buffer after it pays for a cold memory path, and after deep
//! idle for a stall. Memory that nobody keeps wired is unwired meanwhile: from the wake on, whoever
//! woke the GPU, it is wired again, and work waits for what it needs of it.

use super::Machine;
use everwarm_units::{PState, Span};
use everwarm_workload::Kernel;

impl Machine {
    /// What is left may be no work at all, for which the GPU may even be waking right now.
    pub(super) fn idle_after_close(&mut self) {
        if self.first_after_wake.is_some() {
            self.idle_since = Some(self.now.max(self.awake_at));
        }
        if self.window.is_occupied() && self.known_since().is_none_or(|at| at > self.now) {
            self.window.vacate(self.now);
        }
    }

    /// When the GPU is gated if nothing is committed.
    pub(super) fn gate_at(&self) -> Option<u64> {
        // Idle and unfinished is a queue between two buffers.
        if self.unfinished > 0 || self.sample_at.is_none() {
            return None;
        }
        Some(self.idle_since? + self.chip.controller.idle_off_delay.as_nanos())
    }

    pub(super) fn gate(&mut self) {
        let last = self.window.close(self.now);
        self.controller.power_off(&last);
        self.sample_at = None;
        self.gated_at = Some(self.now);
        self.meter.switch(self.now, PState::OFF);
    }

    /// Work arrives that finds the GPU gated and whose memory takes `wiring_time` to be wired, should
    /// it not be.
    pub(super) fn wake(&mut self, wiring: Span) {
        let now = self.now;
        let wake = &self.chip.wake;
        let idle = self.idle_since.map_or(Span::MAX, |since| Span::ns(now - since));
        let off = self.gated_at.map_or(Span::MAX, |at| Span::ns(now - at));
        let deep = idle >= wake.deep_idle_after;
        self.awake_at = now + wake.latency(idle).as_nanos();
        if idle >= wake.unwired_after {
            self.wiring_since = Some(now);
            // The driver holds the work back until its memory is wired; only then is it the GPU's.
            self.awake_at += wiring.as_nanos();
        }
        self.first_after_wake = Some(if deep { wake.deep_idle_stall.as_nanos() } else { 0 });
        // The timer runs from power-on; only a wake longer than its period puts it off.
        self.window.open(self.awake_at);
        let period = self.chip.controller.sample_period.as_nanos();
        let base = if self.awake_at < now + period { now } else { self.awake_at };
        self.sample_at = Some(base + period);
        let pstate = self.controller.power_on(off);
        self.switch(pstate);
    }

    /// How long the memory of `kernel` takes to be wired if it is not.
    pub fn wiring(&self, kernel: &Kernel) -> Span {
        if kernel.resident() == 0.0 {
            return Span::ZERO;
        }
        let time = kernel.resident() / self.chip.wake.wiring_rate.as_b_s();
        // Whatever a caller makes up must not run the clock over.
        Span::from_secs(time.min(3600.0))
    }
}
