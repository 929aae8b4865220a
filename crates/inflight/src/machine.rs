//! The state machine: requests in, chunks to encode out, completions in.
//!
//! It keeps the order and the bounds and takes the measurements; `choose.rs` decides what follows
//! from them. The next request's first chunk is a chunk like any other, so it is committed while
//! the last one of the request before still runs.

use crate::choose::Chooser;
use crate::limits::Limits;
use crate::verdict::Verdict;
use everwarm_units::{Instant, Span};
use std::collections::VecDeque;

/// A queue that was empty for longer has let the GPU be switched off, and its next start shows a
/// wake. Source: the firmware's documented 2 ms on Apple's M1 and M2 families.
const GATED_AFTER: Span = Span::ms(2);

/// A request, by its running number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request(pub u64);

/// The work of one command buffer: some units of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Whose.
    pub request: Request,
    /// The first unit, from 0.
    pub first: u64,
    /// How many.
    pub units: u32,
    /// True if the request ends with it.
    pub last: bool,
}

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Encode this as one command buffer and commit it; then [`InFlight::on_commit`], or
    /// [`InFlight::on_refusal`] if the device would not take it.
    Encode(Chunk),
    /// Wait until the oldest buffer has ended; then [`InFlight::on_completion`].
    WaitForCompletion,
    /// Nothing is in flight and nothing waits.
    WaitForRequest,
}

/// How the oldest buffer in flight ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// When the host learned of it: a completion handler's own time where there is one.
    pub observed: Instant,
    /// When the GPU began and ended it, on the host's clock; `None` where the runtime can't tell.
    ///
    /// Gaps and kernel times are then told from `observed` and [`Limits::round_trip`]. A thread that
    /// only looks after it has encoded sees ends late: kernels seem longer, gaps shorter than they
    /// are, and a host that is too slow may not be found out.
    pub gpu: Option<(Instant, Instant)>,
}

/// A chunk that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Which one.
    pub chunk: Chunk,
    /// The queue gap before it, where it was the host's to keep short: `None` after a time without
    /// work to encode.
    pub gap: Option<Span>,
}

/// What is kept at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Command buffers in flight, as far as [`Limits::latency_max`] allows.
    pub in_flight: usize,
    /// Units in a command buffer.
    pub chunk: u32,
    /// How long a cancelled request may still run: all that in flight, by the longest seen. `None`
    /// before any was.
    pub latency: Option<Span>,
}

/// There is no room for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{limit} requests already wait for the GPU")]
pub struct Full {
    /// [`Limits::requests_max`].
    pub limit: usize,
}

/// Keeps command buffers ahead; the crate's page has the contract.
#[derive(Debug)]
pub struct InFlight {
    limits: Limits,
    chooser: Chooser,
    requests: u64,
    waiting: VecDeque<Waiting>,
    flying: VecDeque<Flying>,
    encoding: Option<Chunk>,
    /// No chunk was there to encode since the last commit: the gap is not the host's.
    lull: bool,
    /// The host waits for a completion.
    blocked: bool,
    /// Since when the host could have been encoding the next chunk.
    free_since: Instant,
    before: Option<Before>,
}

/// A request and what is still to be encoded of it; at least one unit.
#[derive(Debug)]
struct Waiting {
    request: Request,
    next: u64,
    end: u64,
}

#[derive(Debug)]
struct Flying {
    chunk: Chunk,
    size: usize,
    setting: u64,
    committed: Instant,
    after_lull: bool,
}

/// The buffer that ended last.
#[derive(Clone, Copy, Debug)]
struct Before {
    gpu_end: Instant,
    observed: Instant,
}

impl InFlight {
    /// Nothing to do yet.
    ///
    /// # Panics
    /// If a limit allows nothing at all; the message says which.
    pub fn new(limits: Limits) -> Self {
        limits.check();
        InFlight {
            limits,
            chooser: Chooser::new(limits),
            requests: 0,
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            encoding: None,
            lull: true,
            blocked: false,
            free_since: Instant::ZERO,
            before: None,
        }
    }

    /// Takes a request of so many units, behind those that wait.
    ///
    /// # Errors
    /// [`Full`] if too many wait.
    ///
    /// # Panics
    /// If it has no units.
    pub fn submit(&mut self, units: u64) -> Result<Request, Full> {
        assert!(units > 0, "a request of 0 units; expected at least 1");
        if self.waiting.len() >= self.limits.requests_max {
            return Err(Full { limit: self.limits.requests_max });
        }
        let request = Request(self.requests);
        self.requests += 1;
        self.waiting.push_back(Waiting { request, next: 0, end: units });
        Ok(request)
    }

    /// Encodes no more of a request; returns how many of its buffers are still in flight. Those run
    /// to their end and are reported as any other.
    ///
    /// A chunk of it that is being encoded may still be committed, or given back by
    /// [`InFlight::on_refusal`].
    pub fn cancel(&mut self, request: Request) -> usize {
        self.waiting.retain(|waiting| waiting.request != request);
        self.flying.iter().filter(|flying| flying.chunk.request == request).count()
    }

    /// What to do at `now`.
    ///
    /// # Panics
    /// If a chunk is still being encoded.
    pub fn poll(&mut self, now: Instant) -> Action {
        assert!(self.encoding.is_none(), "the last chunk was neither committed nor refused");
        let Some(chunk) = self.next_chunk() else {
            self.lull = true;
            return match self.flying.is_empty() {
                true => Action::WaitForRequest,
                false => Action::WaitForCompletion,
            };
        };
        if !self.has_room(chunk.units) {
            self.blocked = true;
            return Action::WaitForCompletion;
        }
        if self.lull {
            self.free_since = now;
        }
        self.blocked = false;
        self.encoding = Some(chunk);
        Action::Encode(chunk)
    }

    /// The chunk that was to be encoded has been committed at `now`.
    ///
    /// # Panics
    /// If there was none.
    pub fn on_commit(&mut self, now: Instant) {
        let chunk = self.encoding.take().expect("a commit without a chunk to encode");
        let size = self.chooser.size();
        if self.is_typical(&chunk, size) {
            self.chooser.on_encode(size, now.since(self.free_since));
        }
        self.flying.push_back(Flying {
            chunk,
            size,
            setting: self.chooser.setting(),
            committed: now,
            after_lull: self.lull,
        });
        (self.free_since, self.lull) = (now, false);
        // A request that was cancelled meanwhile is gone already.
        if let Some(front) = self.waiting.front_mut().filter(|w| w.request == chunk.request) {
            front.next += u64::from(chunk.units);
            if front.next >= front.end {
                self.waiting.pop_front();
            }
        }
    }

    /// The chunk that was to be encoded was not committed: it will be asked for again, unless its
    /// request is cancelled.
    pub fn on_refusal(&mut self) {
        self.encoding = None;
    }

    /// The oldest buffer in flight has ended.
    ///
    /// # Panics
    /// If none is in flight.
    pub fn on_completion(&mut self, done: Done) -> Landed {
        let flying = self.flying.pop_front().expect("a completion with nothing in flight");
        if self.blocked {
            (self.blocked, self.free_since) = (false, done.observed);
        }
        let (gap, gpu_start, gpu_end) = self.timeline(&flying, done);
        if self.is_typical(&flying.chunk, flying.size) {
            self.chooser.on_kernel(flying.size, gpu_end.since(gpu_start));
        }
        let gap = gap.filter(|_| !flying.after_lull);
        if let Some(gap) = gap {
            self.measure_round_trip(&flying, done);
            self.chooser.on_gap(flying.size, flying.setting, gap);
        }
        self.before = Some(Before { gpu_end, observed: done.observed });
        Landed { chunk: flying.chunk, gap }
    }

    /// Command buffers in flight.
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// Requests of which something is still to be encoded.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Depth and size as they are kept now.
    pub fn plan(&self) -> Plan {
        let chunk = self.chooser.estimate().units;
        let longest = self.chooser.longest(chunk);
        let allowed = longest.map_or(usize::MAX, |longest| {
            let most = self.limits.latency_max.as_nanos() / longest.as_nanos().max(1);
            usize::try_from(most).unwrap_or(usize::MAX).max(1)
        });
        let in_flight = self.chooser.depth().min(allowed);
        Plan { in_flight, chunk, latency: longest.map(|longest| longest * in_flight as u64) }
    }

    /// Whether the gap stays under its budget; if not, why.
    pub fn verdict(&self) -> Verdict {
        self.chooser.verdict
    }

    /// The next chunk: the rest of a request is cut evenly, so that no small one is left over, but
    /// not below the smallest size.
    fn next_chunk(&self) -> Option<Chunk> {
        let Waiting { request, next, end } = self.waiting.front()?;
        let (left, size) = (end - next, u64::from(self.chooser.estimate().units));
        let even = left.div_ceil(left.div_ceil(size));
        let units = even.max(u64::from(self.limits.chunk_min)).min(left);
        let units = u32::try_from(units).expect("no more than a size");
        let last = u64::from(units) == left;
        Some(Chunk { request: *request, first: *next, units, last })
    }

    /// Whether a chunk of so many units may be put in flight now.
    fn has_room(&self, units: u32) -> bool {
        if self.flying.is_empty() {
            return true;
        }
        if self.flying.len() >= self.chooser.depth() {
            return false;
        }
        let units = self.flying.iter().map(|flying| flying.chunk.units).chain([units]);
        let longest: Option<Span> = units.map(|units| self.chooser.longest(units)).sum();
        longest.is_none_or(|longest| longest <= self.limits.latency_max)
    }

    /// Whether a chunk says something of its size. A short rest of a request does not, but of the
    /// smallest size.
    fn is_typical(&self, chunk: &Chunk, size: usize) -> bool {
        size == 0 || u64::from(chunk.units) * 2 > u64::from(self.chooser.units(size))
    }

    /// The gap before a buffer, its start and its end: from the device, or told from the host's
    /// side, where it starts no sooner than it can after its commit.
    fn timeline(&self, flying: &Flying, done: Done) -> (Option<Span>, Instant, Instant) {
        if let Some((gpu_start, gpu_end)) = done.gpu {
            let gap = self.before.map(|before| gpu_start.since(before.gpu_end));
            return (gap, gpu_start, gpu_end);
        }
        // On this axis a buffer ends when the host sees it, and the whole round trip lies before
        // the start.
        let earliest = flying.committed + self.limits.round_trip;
        let gpu_start = self.before.map_or(earliest, |b| b.gpu_end.max(earliest));
        let gap = self.before.map(|before| gpu_start.since(before.gpu_end));
        (gap, gpu_start.min(done.observed), done.observed)
    }

    /// A buffer that was committed to an empty queue shows the round trip, unless it shows a wake.
    fn measure_round_trip(&mut self, flying: &Flying, done: Done) {
        let (Some(before), Some((gpu_start, _))) = (self.before, done.gpu) else { return };
        let drained = flying.committed >= before.gpu_end;
        if drained && gpu_start.since(before.gpu_end) < GATED_AFTER {
            let seen = before.observed.since(before.gpu_end);
            self.chooser.on_round_trip(seen + gpu_start.since(flying.committed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host and a GPU in made-up time.
    struct World {
        ahead: InFlight,
        now: Instant,
        gpu_free: Instant,
        running: VecDeque<(Instant, Instant)>,
        /// For each buffer, and for each unit in it.
        encode: [Span; 2],
        kernel: Span,
        round_trip: Span,
        stamps: bool,
    }

    impl World {
        fn new(limits: Limits) -> Self {
            World {
                ahead: InFlight::new(limits),
                now: Instant::ZERO,
                gpu_free: Instant::ZERO,
                running: VecDeque::new(),
                encode: [Span::us(300), Span::ZERO],
                kernel: Span::us(600),
                round_trip: Span::us(300),
                stamps: true,
            }
        }

        /// Carries out one action; what landed, if anything did, or `None` when idle.
        fn step(&mut self) -> Option<Option<Landed>> {
            let units = match self.ahead.poll(self.now) {
                Action::WaitForRequest => return None,
                Action::WaitForCompletion => return Some(Some(self.land())),
                Action::Encode(chunk) => u64::from(chunk.units),
            };
            self.now += self.encode[0] + self.encode[1] * units;
            let gpu_start = self.gpu_free.max(self.now + self.round_trip / 2);
            self.gpu_free = gpu_start + self.kernel * units;
            self.running.push_back((gpu_start, self.gpu_free));
            self.ahead.on_commit(self.now);
            Some(None)
        }

        fn land(&mut self) -> Landed {
            let gpu = self.running.pop_front().unwrap();
            let observed = gpu.1 + self.round_trip / 2;
            self.now = self.now.max(observed);
            self.ahead.on_completion(Done { observed, gpu: self.stamps.then_some(gpu) })
        }

        fn work(&mut self, units: u64) {
            self.ahead.submit(units).unwrap();
            while self.step().is_some() {}
        }
    }

    fn limits() -> Limits {
        Limits::for_gap(Span::us(500))
    }

    #[test]
    fn the_verdict_follows_a_host_that_changes() {
        let mut world = World::new(limits());
        assert_eq!(world.ahead.verdict(), Verdict::Learning);
        world.work(200);
        assert_eq!(world.ahead.verdict(), Verdict::Holds);
        world.encode[0] = Span::us(1500);
        world.work(1000);
        let Verdict::TooSlow(shortfall) = world.ahead.verdict() else { panic!("{world:?}") };
        assert_eq!(shortfall.over(), Span::us(400)); // 1500 - 600 - 500
        world.encode[0] = Span::us(300);
        world.work(200);
        assert_eq!(world.ahead.verdict(), Verdict::Holds);
    }

    #[test]
    fn the_depth_is_right_after_a_few_buffers() {
        let mut world = World::new(limits());
        (world.encode[0], world.kernel) = (Span::us(50), Span::us(60));
        world.work(8);
        assert_eq!(world.ahead.plan().in_flight, 7); // 300 and 50 us behind six kernels
    }

    #[test]
    fn a_round_trip_that_cannot_be_measured_is_met_all_the_same() {
        let mut world = World::new(limits());
        world.round_trip = Span::ms(3); // the queue is empty for so long that it could be a wake
        world.work(1000);
        assert_eq!(world.ahead.verdict(), Verdict::Holds, "{world:?}");
        assert!((6..=10).contains(&world.ahead.plan().in_flight), "{world:?}");
    }

    #[test]
    fn size_is_left_alone_where_it_does_not_help_and_tried_again_when_it_may() {
        let mut world = World::new(Limits { chunk_max: 8, ..limits() });
        world.encode = [Span::us(50), Span::us(1500)];
        world.work(2000);
        assert!(matches!(world.ahead.verdict(), Verdict::TooSlow(_)), "{world:?}");
        assert_eq!(world.ahead.plan().chunk, 1);
        world.encode = [Span::us(1500), Span::us(50)];
        world.work(10_000);
        assert_eq!(world.ahead.verdict(), Verdict::Holds, "{world:?}");
        assert!(world.ahead.plan().chunk > 1, "{world:?}");
    }

    #[test]
    fn a_chunk_is_halved_again_and_depth_given_back_when_the_host_is_faster() {
        let mut world = World::new(Limits { chunk_max: 8, ..limits() });
        (world.encode[0], world.round_trip) = (Span::us(4000), Span::ms(3));
        world.work(4000);
        let slow = world.ahead.plan();
        assert!(slow.chunk > 1 && slow.in_flight > 2, "{world:?}");
        (world.encode[0], world.round_trip) = (Span::us(100), Span::us(300));
        world.work(60_000);
        let Plan { chunk, in_flight, .. } = world.ahead.plan();
        assert_eq!((chunk, in_flight), (1, 2), "{slow:?}");
    }

    /// As long as a completion handler says when it was called.
    #[test]
    fn a_runtime_without_gpu_times_gets_the_same_verdicts() {
        for (encode, holds) in [(300, true), (1500, false)] {
            let mut world = World::new(limits());
            (world.stamps, world.encode[0]) = (false, Span::us(encode));
            world.work(1000);
            assert_eq!(world.ahead.verdict() == Verdict::Holds, holds, "{encode} {world:?}");
        }
    }

    #[test]
    fn time_without_requests_is_not_the_hosts_fault() {
        let mut world = World::new(limits());
        for _ in 0..300 {
            world.now += Span::ms(1);
            world.work(2);
        }
        // One gap in two lies between requests.
        assert_eq!(world.ahead.verdict(), Verdict::Holds);
    }

    #[test]
    fn a_cancelled_request_encodes_no_more_and_the_next_one_does() {
        let mut world = World::new(limits());
        let (first, second) = (world.ahead.submit(50).unwrap(), world.ahead.submit(3).unwrap());
        while world.ahead.in_flight() < 2 {
            world.step();
        }
        assert_eq!(world.ahead.cancel(first), 2);
        let mut landed = Vec::new();
        while let Some(step) = world.step() {
            landed.extend(step.map(|landed| landed.chunk.request));
        }
        assert_eq!(landed, [first, first, second, second, second]);
        assert_eq!(world.ahead.cancel(first), 0);
    }

    #[test]
    fn a_chunk_that_was_refused_comes_again_unless_cancelled() {
        let mut ahead = InFlight::new(limits());
        let request = ahead.submit(2).unwrap();
        let asked = ahead.poll(Instant::ZERO);
        ahead.on_refusal();
        assert_eq!(ahead.poll(Instant::ZERO), asked);
        ahead.cancel(request);
        ahead.on_refusal();
        assert_eq!(ahead.poll(Instant::ZERO), Action::WaitForRequest);
    }

    #[test]
    fn no_more_requests_wait_than_allowed() {
        let mut ahead = InFlight::new(Limits { requests_max: 2, ..limits() });
        assert!(ahead.submit(1).is_ok() && ahead.submit(1).is_ok());
        assert_eq!(ahead.submit(1), Err(Full { limit: 2 }));
    }

    #[test]
    fn a_rest_is_spread_over_the_chunks_before_it() {
        let check = |units, min, max, expected: &[u32]| {
            let mut ahead = InFlight::new(Limits { chunk_min: min, chunk_max: max, ..limits() });
            ahead.submit(units).unwrap();
            let mut chunks = Vec::new();
            while let Action::Encode(chunk) = ahead.poll(Instant::ZERO) {
                ahead.on_commit(Instant::ZERO);
                ahead.on_completion(Done { observed: Instant::ZERO, gpu: None });
                chunks.push(chunk.units);
            }
            assert_eq!(chunks, expected, "{units} in {min} to {max}");
        };
        check(20, 8, 8, &[8, 8, 4]);
        check(20, 4, 8, &[4, 4, 4, 4, 4]);
        check(5, 8, 8, &[5]);
    }

    impl std::fmt::Debug for World {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{:?} {:?}", self.ahead.verdict(), self.ahead.plan())
        }
    }
}
