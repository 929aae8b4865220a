//! The host program of a `run` step: one kernel again and again.

use crate::scenario::Run;
use everwarm_units::{Instant, Span};
use everwarm_workload::{Kernel, Op, Program, Seen};

/// Share of a gap's error that each further buffer corrects: less than 1, so that noise of single
/// gaps is averaged.
const GAP_GAIN: f64 = 0.5;

/// Commits one kernel as its plan says; ends after the last one has, or at once (`drain`).
pub struct Loop {
    run: Run,
    depth: usize,
    kernel: Kernel,
    began: Option<Instant>,
    committed: u64,
    at: At,
    gap: Option<GapControl>,
}

/// What comes next within one iteration.
enum At {
    Wait,
    Sleep,
    Delay,
    Commit,
    Drain,
    End,
}

impl Loop {
    /// A run of `kernel` with so many buffers in flight.
    pub fn new(run: Run, depth: usize, kernel: Kernel) -> Self {
        let gap = run.gap.map(GapControl::new);
        Loop { run, depth, kernel, began: None, committed: 0, at: At::Wait, gap }
    }

    fn over(&self, now: Instant, began: Instant) -> bool {
        self.run.until.is_over(self.committed, now.since(began))
    }

    /// The number of buffers to wait down to before the next commit, if any must end.
    fn room(&self) -> Option<usize> {
        (self.committed >= self.depth as u64).then(|| self.depth - 1)
    }

    fn sleep(&mut self, seen: Option<&Seen>) -> Span {
        match &mut self.gap {
            Some(gap) => gap.sleep_after(seen),
            None => self.run.sleep,
        }
    }
}

impl Program for Loop {
    fn next(&mut self, now: Instant, seen: Option<&Seen>) -> Op {
        let began = *self.began.get_or_insert(now);
        loop {
            match self.at {
                At::Wait if self.over(now, began) => self.at = At::Drain,
                At::Wait => match self.room() {
                    Some(most) => {
                        self.at = At::Sleep;
                        return Op::Wait(most);
                    }
                    None => self.at = At::Delay,
                },
                At::Sleep => {
                    self.at = At::Delay;
                    let sleep = self.sleep(seen);
                    if !sleep.is_zero() {
                        return Op::Pass(sleep);
                    }
                }
                At::Delay => {
                    self.at = At::Commit;
                    if !self.run.delay.is_zero() {
                        return Op::Pass(self.run.delay);
                    }
                }
                At::Commit if self.over(now, began) => self.at = At::Drain,
                At::Commit => {
                    self.at = At::Wait;
                    self.committed += 1;
                    return Op::Commit(self.kernel);
                }
                At::Drain => {
                    self.at = At::End;
                    if self.run.drain {
                        return Op::Wait(0);
                    }
                }
                At::End => return Op::End,
            }
        }
    }
}

/// Adapts the host's sleep so that the GPU's timeline shows the wanted gap.
///
/// The gap is the sleep and a round trip that the host does not know; it begins without a sleep,
/// learns the round trip from the first gap, and follows it from there.
struct GapControl {
    target: Span,
    /// Unit: ms; may be driven below 0 where the round trip alone is longer than the target.
    sleep_ms: f64,
    gain: f64,
    last: Option<Seen>,
}

impl GapControl {
    fn new(target: Span) -> Self {
        GapControl { target, sleep_ms: 0.0, gain: 1.0, last: None }
    }

    fn sleep_after(&mut self, seen: Option<&Seen>) -> Span {
        if let (Some(seen), Some(last)) = (seen, self.last)
            && seen.number == last.number + 1
        {
            let gap = seen.gpu_start.since(last.gpu_end);
            self.sleep_ms += self.gain * (self.target.as_ms() - gap.as_ms());
            self.sleep_ms = self.sleep_ms.max(0.0);
            self.gain = GAP_GAIN;
        }
        self.last = seen.copied();
        Span::from_ms(self.sleep_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Depth, Until, Work};

    fn run(until: Until, in_flight: usize) -> Run {
        Run {
            work: Work::Exact(Kernel::Empty),
            until,
            in_flight: Depth::Fixed(in_flight),
            sleep: Span::us(10),
            delay: Span::ZERO,
            gap: None,
            drain: true,
        }
    }

    #[test]
    fn operations_come_in_order() {
        let check = |in_flight, expected: &[Op]| {
            let mut program = Loop::new(run(Until::Times(2), in_flight), in_flight, Kernel::Empty);
            for op in expected {
                assert_eq!(program.next(Instant::ZERO, None), *op);
            }
        };
        let commit = || Op::Commit(Kernel::Empty);
        let sleep = || Op::Pass(Span::us(10));
        check(1, &[commit(), Op::Wait(0), sleep(), commit(), Op::Wait(0), Op::End]);
        check(usize::MAX, &[commit(), commit(), Op::Wait(0), Op::End]);
    }

    #[test]
    fn a_gap_is_met_on_a_host_with_an_unknown_round_trip() {
        let mut control = GapControl::new(Span::us(430));
        let (mut end, mut gap) = (Instant::ZERO, Span::ZERO);
        for number in 0..20 {
            let gpu_start = end + gap;
            let gpu_end = gpu_start + Span::us(600);
            end = gpu_end;
            let committed = gpu_start;
            let seen = Seen { number, committed, gpu_start, gpu_end, observed: gpu_end };
            gap = control.sleep_after(Some(&seen)) + Span::us(290);
        }
        assert!((gap.as_us() - 430.0).abs() < 1.0, "{gap}");
    }
}
