//! The event engine.
//!
//! Five things happen: a buffer starts, a buffer ends, the controller samples, the GPU is gated, and
//! a commit wakes it. Between them nothing changes but what can be integrated exactly, so the only
//! tick is the controller's own. All arithmetic on time is in integer nanoseconds.

mod gating;

use crate::meter::Meter;
use crate::queue::{NEVER, Pending, Queue, Running, Turns};
use crate::window::Window;
use crate::work::{Progress, Rates, Work};
use crate::{BufferId, Completion, Counters, QueueId};
use everwarm_dvfs::{Chip, Controller};
use everwarm_units::{Hertz, Instant, PState, Span};
use everwarm_workload::Kernel;
use std::collections::VecDeque;

/// A simulated GPU.
#[derive(Clone, Debug)]
pub struct Machine {
    chip: Chip,
    controller: Controller,
    meter: Meter,
    window: Window,
    queues: Vec<Queue>,
    completions: VecDeque<Completion>,
    /// When the host learns of the next completion.
    observed: u64,
    now: u64,
    /// When the engine has something to do next; kept up to date by [`Machine::plan`].
    due: u64,
    /// Buffers that wait or run.
    unfinished: usize,
    /// Buffers that run.
    running: usize,
    /// What running work is spent at; kept up to date with the clock and `memory_ready`.
    rates: Rates,
    /// The next sample; `None` while gated.
    sample_at: Option<u64>,
    /// Since when nothing runs; `None` while something does, and before the first work.
    idle_since: Option<u64>,
    running_since: Option<u64>,
    gated_at: Option<u64>,
    /// Earliest start of any buffer: a wake is in progress until then.
    awake_at: u64,
    /// The next buffer to start is the first one after gating, and pays this stall.
    first_after_wake: Option<u64>,
    /// The last wake that found memory unwired.
    wiring_since: Option<u64>,
    pinned: Option<PState>,
    queues_opened: u32,
    /// A closed queue has not drained yet.
    closing: bool,
    buffers: u64,
    turns: Turns,
}

impl Machine {
    /// A machine at time 0, gated and idle since long before.
    pub fn new(chip: Chip) -> Self {
        Machine {
            controller: Controller::new(&chip),
            meter: Meter::new(&chip),
            window: Window::new(chip.controller.credited_gap),
            queues: Vec::new(),
            completions: VecDeque::new(),
            observed: NEVER,
            now: 0,
            due: NEVER,
            unfinished: 0,
            running: 0,
            rates: Rates::new(&chip, Hertz::ZERO, 0),
            sample_at: None,
            idle_since: None,
            running_since: None,
            gated_at: None,
            awake_at: 0,
            first_after_wake: None,
            wiring_since: None,
            pinned: None,
            queues_opened: 0,
            closing: false,
            buffers: 0,
            turns: Turns::new(chip.kernels.beside_share),
            chip,
        }
    }

    /// The chip it simulates.
    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    /// The present.
    #[inline]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Opens a queue.
    pub fn open_queue(&mut self) -> QueueId {
        let id = QueueId(self.queues_opened);
        self.queues_opened += 1;
        self.queues.push(Queue::new(id));
        id
    }

    /// Closes a queue, as when its process dies: the buffer that runs ends unheard, what waits
    /// behind it never begins, and no more completions are told.
    pub fn close_queue(&mut self, queue: QueueId) {
        self.completions.retain(|c| c.queue != queue);
        self.settle_observed();
        if let Some(found) = self.queues.iter_mut().find(|q| q.id == queue) {
            found.closed = true;
            self.closing = true;
            self.unfinished -= found.pending.len();
            found.pending.clear();
            found.settle();
        }
        self.forget_drained_queues();
        if self.sample_at.is_some() && self.running == 0 {
            self.idle_after_close();
        }
        self.plan();
    }

    /// Commits a command buffer at `at`; an instant before [`Machine::now`] counts as now.
    ///
    /// # Panics
    /// If the machine has no such open queue.
    pub fn commit(&mut self, at: Instant, queue: QueueId, kernel: &Kernel) -> BufferId {
        self.advance(at);
        let now = self.now;
        let work = Work::of(kernel, &self.chip);
        let host = &self.chip.host;
        let (to_start, to_firmware) = (host.commit_to_start, host.commit_to_firmware);
        if self.sample_at.is_none() {
            self.wake(self.wiring(kernel));
        }
        let id = BufferId(self.buffers);
        self.buffers += 1;
        let wired = self.wiring_since.map_or(0, |since| since + self.wiring(kernel).as_nanos());
        let ready = (now + to_start.as_nanos()).max(self.awake_at).max(wired);
        // Known as long before its start as with a GPU that is awake: a wake is not utilisation.
        let known = ready - to_start.saturating_sub(to_firmware).as_nanos();
        let found = self.queues.iter_mut().find(|q| q.id == queue && !q.closed);
        let found = found.unwrap_or_else(|| panic!("{queue:?} is not open"));
        let was_drained = found.is_drained();
        found.pending.push_back(Pending { id, committed: now, known, ready, work });
        self.unfinished += 1;
        // Behind others it changes nothing about what comes next.
        if was_drained {
            found.settle();
            self.plan();
        }
        id
    }

    /// How long `kernel` occupies the GPU (start to end) if it runs alone and wholly at `pstate`.
    ///
    /// # Panics
    /// If the chip has no such p-state, or it is the off state.
    pub fn execution(&self, kernel: &Kernel, pstate: PState) -> Span {
        assert!(self.is_clocked(pstate), "{} has no p-state {pstate}", self.chip.name);
        let rates = Rates::new(&self.chip, self.chip.clock(pstate), 0);
        Span::ns(Progress::new(Work::of(kernel, &self.chip), 0, &rates).end(&rates))
    }

    /// Holds the clock at `pstate` whenever the GPU is powered, or with `None` gives it back to the
    /// controller.
    ///
    /// # Panics
    /// If the chip has no such p-state, or it is the off state.
    pub fn pin(&mut self, pstate: Option<PState>) {
        let valid = pstate.is_none_or(|p| self.is_clocked(p));
        assert!(valid, "{} has no p-state {pstate:?}", self.chip.name);
        self.pinned = pstate;
        if self.sample_at.is_some() {
            self.switch(self.controller.pstate());
            self.plan();
        }
    }

    /// The fastest p-state.
    pub fn top(&self) -> PState {
        self.chip.top()
    }

    /// When something observable may happen next; `None` while nothing is outstanding.
    #[inline]
    pub fn next_event(&self) -> Option<Instant> {
        let engine = if self.unfinished == 0 { NEVER } else { self.due };
        match self.observed.min(engine) {
            NEVER => None,
            next => Some(Instant::from_nanos(next.max(self.now))),
        }
    }

    /// Lets time pass until `to`; nothing happens if that is past.
    #[inline]
    pub fn advance(&mut self, to: Instant) {
        let to = to.as_nanos();
        while self.due <= to && self.due != NEVER {
            self.step();
        }
        self.now = self.now.max(to);
    }

    /// The next completion observed by now, in the order of observation.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        if self.observed > self.now {
            return None;
        }
        self.poll_ended()
    }

    /// The next completion whose buffer has ended by now, though the host may learn of it only
    /// later ([`Completion::observed`]): for callers who take it there themselves.
    #[inline]
    pub fn poll_ended(&mut self) -> Option<Completion> {
        let completion = self.completions.pop_front();
        self.settle_observed();
        completion
    }

    /// The completions have changed.
    #[inline]
    fn settle_observed(&mut self) {
        self.observed = self.completions.front().map_or(NEVER, |c| c.observed.as_nanos());
    }

    /// The counters now.
    pub fn counters(&self) -> Counters {
        let (residency, mut gpu_energy) = self.meter.read(self.now);
        for running in self.queues.iter().filter_map(|q| q.running.as_ref()) {
            gpu_energy += self.meter.drawn(&running.progress, self.now);
        }
        let running = self.running_since.map_or(0, |since| self.now - since);
        Counters {
            at: self.now(),
            residency,
            gpu_energy,
            cpu_energy: self.chip.host.submission_energy * self.buffers as f64,
            pstate: self.meter.pstate(),
            busy: Span::ns(self.meter.busy() + running),
        }
    }

    fn is_clocked(&self, pstate: PState) -> bool {
        pstate != PState::OFF && pstate <= self.top()
    }

    /// Works out what is due next; called after every change.
    fn plan(&mut self) {
        let own = self.sample_at.unwrap_or(NEVER).min(self.gate_at().unwrap_or(NEVER));
        self.due = self.queues.iter().fold(own, |due, queue| due.min(self.turns.next_event(queue)));
    }

    /// Everything that is due now, in a fixed order: ends free the GPU, the sample sets the clock
    /// that a start then sees.
    fn step(&mut self) {
        self.now = self.now.max(self.due);
        self.end_buffers();
        if self.sample_at.is_some_and(|at| at <= self.now) {
            self.sample();
        }
        self.start_buffers();
        if self.gate_at().is_some_and(|at| at <= self.now) {
            self.gate();
        }
        self.plan();
    }

    /// What the queues run that has come to its end.
    fn end_buffers(&mut self) {
        let now = self.now;
        let before = self.running;
        let host = &self.chip.host;
        for queue in self.queues.iter_mut().filter(|q| q.next <= now) {
            let Some(running) = &queue.running else { continue };
            self.meter.count(&running.progress, now);
            if !queue.closed {
                let observed = now + host.completion_to_host.as_nanos();
                self.observed = self.observed.min(observed);
                self.completions.push_back(Completion {
                    buffer: running.id,
                    queue: queue.id,
                    committed: Instant::from_nanos(running.committed),
                    gpu_start: Instant::from_nanos(running.start),
                    gpu_end: Instant::from_nanos(now),
                    observed: Instant::from_nanos(observed),
                    pstate: running.pstate,
                });
            }
            queue.running = None;
            queue.free_at = now + host.buffer_gap.as_nanos();
            queue.settle();
            self.running -= 1;
            self.unfinished -= 1;
        }
        if self.running < before {
            self.after_end();
        }
    }

    fn after_end(&mut self) {
        self.turns.make_room();
        self.forget_drained_queues();
        if self.running > 0 {
            return;
        }
        if let Some(since) = self.running_since.take() {
            self.meter.add_busy(self.now - since);
        }
        self.idle_since = Some(self.now);
        if self.known_since().is_none_or(|at| at > self.now) {
            self.window.vacate(self.now);
        }
    }

    fn forget_drained_queues(&mut self) {
        if self.closing {
            self.queues.retain(|q| !(q.closed && q.is_drained()));
            self.closing = self.queues.iter().any(|q| q.closed);
        }
    }

    /// Since when the firmware knows of a buffer that waits.
    fn known_since(&self) -> Option<u64> {
        self.queues.iter().filter_map(|q| q.pending.front().map(|p| p.known)).min()
    }

    /// Tells the window of work that the firmware has come to know of meanwhile.
    fn note_occupied(&mut self) {
        if self.window.is_occupied() {
            return;
        }
        if let Some(known) = self.known_since().filter(|&at| at <= self.now) {
            self.window.occupy(known);
        }
    }

    fn sample(&mut self) {
        self.note_occupied();
        let sample = self.window.close(self.now);
        let pstate = self.controller.sample(&sample);
        self.sample_at = Some(self.now + self.chip.controller.sample_period.as_nanos());
        self.switch(pstate);
    }

    fn start_buffers(&mut self) {
        while let Some(index) = self.turns.choose(&mut self.queues, self.now) {
            self.note_occupied();
            self.begin(index);
        }
    }

    /// The next buffer of queue `index` starts.
    fn begin(&mut self, index: usize) {
        let now = self.now;
        let queue = &mut self.queues[index];
        let Some(pending) = queue.pending.pop_front() else { return };
        let mut work = pending.work;
        if let Some(stall) = self.first_after_wake.take() {
            work.fixed += stall as f64;
            self.rates.memory_ready = now + self.chip.wake.memory_ready.as_nanos();
        }
        self.running += 1;
        self.idle_since = None;
        self.running_since.get_or_insert(now);
        let progress = Progress::new(work, now, &self.rates);
        queue.running = Some(Running {
            id: pending.id,
            committed: pending.committed,
            start: now,
            pstate: self.meter.pstate(),
            end: progress.end(&self.rates),
            progress,
        });
        queue.settle();
    }

    /// The clock changes (or is found unchanged) at this instant.
    fn switch(&mut self, asked: PState) {
        let pstate = self.pinned.unwrap_or(asked);
        if pstate == self.meter.pstate() {
            return;
        }
        let rates = Rates::new(&self.chip, self.chip.clock(pstate), self.rates.memory_ready);
        for queue in &mut self.queues {
            if let Some(running) = &mut queue.running {
                self.meter.count(&running.progress, self.now);
                running.progress.change(self.now, &self.rates, &rates);
                running.end = running.progress.end(&rates);
                queue.settle();
            }
        }
        self.meter.switch(self.now, pstate);
        self.rates = rates;
    }
}
