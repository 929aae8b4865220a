//! The server's own requests on the simulated GPU: one at a time, each a host program.
//!
//! Programs are stepped in the engine's virtual time, so that a thread that woke late changes
//! nothing of what they commit and when. It knows tokens and time, not HTTP.

use crate::lateness::Lateness;
use everwarm_sim::{BufferId, Completion, Machine, QueueId};
use everwarm_units::{Instant, Span};
use everwarm_workload::{Action, Host, Op, Program, Runtime, Seen, Transformer};
use std::collections::{HashMap, VecDeque};
use tokio::sync::mpsc::UnboundedSender;

/// A request of the HTTP side.
pub(crate) struct Job {
    pub id: u64,
    pub prompt_tokens: u32,
    pub answer_tokens: u32,
    pub events: UnboundedSender<JobEvent>,
}

/// What became of a job, with the instants of the simulation.
#[derive(Clone, Debug)]
pub(crate) enum JobEvent {
    /// It left the queue.
    Started,
    /// One more token is out.
    Token { at: Instant },
    /// All tokens are out.
    Finished(Summary),
}

/// The times of a finished job.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    pub queued: Span,
    pub tokenize: Span,
    /// From the end of tokenising to the first token.
    pub prompt: Span,
    /// From the first token to the last.
    pub predicted: Span,
    pub prefill_gpu_start: Instant,
    pub lateness: Lateness,
}

/// The place where one job runs while others wait.
pub(crate) struct Slot {
    runtime: Runtime,
    queue: QueueId,
    waiting: VecDeque<(Instant, Job)>,
    running: Option<Running>,
    /// Completions that the host will have observed at their instants.
    coming: VecDeque<Completion>,
    /// Buffers of the running job: the number its program knows them by.
    numbers: HashMap<BufferId, u64>,
}

struct Running {
    job: Job,
    host: Host,
    wake: Option<Instant>,
    committed: u64,
    arrived: Instant,
    started: Instant,
    tokenized: Instant,
    prefill_gpu_start: Option<Instant>,
    first_token: Option<Instant>,
    lateness: Lateness,
}

impl Slot {
    pub(crate) fn new(runtime: Runtime, queue: QueueId) -> Self {
        Slot {
            runtime,
            queue,
            waiting: VecDeque::new(),
            running: None,
            coming: VecDeque::new(),
            numbers: HashMap::new(),
        }
    }

    pub(crate) fn queue(&self) -> QueueId {
        self.queue
    }

    /// When the running job must be stepped, whatever the GPU does.
    pub(crate) fn wake(&self) -> Option<Instant> {
        let program = self.running.as_ref().and_then(|running| running.wake);
        let observes = self.coming.front().map(|completion| completion.observed);
        [program, observes].into_iter().flatten().min()
    }

    pub(crate) fn submit(&mut self, now: Instant, job: Job, machine: &mut Machine) {
        self.waiting.push_back((now, job));
        self.step(now, machine);
    }

    /// Ends a job whose client has gone. What it has committed still runs, as on a real GPU.
    pub(crate) fn cancel(&mut self, now: Instant, id: u64, machine: &mut Machine) {
        self.waiting.retain(|(_, job)| job.id != id);
        if self.running.as_ref().is_some_and(|running| running.job.id == id) {
            self.running = None;
            self.numbers.clear();
            self.step(now, machine);
        }
    }

    /// A buffer of ours has ended; the running job learns of it when a host would.
    pub(crate) fn on_completion(&mut self, completion: Completion) {
        self.coming.push_back(completion);
    }

    fn observe(&mut self, c: &Completion) {
        // One of a cancelled job has no number any more.
        let Some(number) = self.numbers.remove(&c.buffer) else { return };
        let running = self.running.as_mut().expect("numbers are of the running job");
        running.prefill_gpu_start.get_or_insert(c.gpu_start);
        running.host.on_completion(Seen {
            number,
            committed: c.committed,
            gpu_start: c.gpu_start,
            gpu_end: c.gpu_end,
            observed: c.observed,
        });
    }

    /// Counts a sample of lateness against the running job.
    pub(crate) fn note_late(&mut self, late: Span) {
        if let Some(running) = &mut self.running {
            running.lateness.note(late);
        }
    }

    /// Carries out what the running job does at `now`, and begins the next one when it has ended.
    pub(crate) fn step(&mut self, now: Instant, machine: &mut Machine) {
        while let Some(completion) = self.coming.pop_front_if(|c| c.observed <= now) {
            self.observe(&completion);
        }
        loop {
            if self.running.is_none() {
                let Some((arrived, job)) = self.waiting.pop_front() else { return };
                self.running = Some(self.begin(now, arrived, job));
            }
            let running = self.running.as_mut().expect("just begun");
            match running.host.poll(now) {
                Action::Commit(kernel) => {
                    let buffer = machine.commit(now, self.queue, &kernel);
                    self.numbers.insert(buffer, running.committed);
                    running.committed += 1;
                }
                Action::Mark(Transformer::TOKEN) => running.token(now),
                Action::Mark(_) => {}
                Action::WaitUntil(t) => {
                    running.wake = Some(t);
                    return;
                }
                Action::WaitForCompletion => {
                    running.wake = None;
                    return;
                }
                Action::Done => {
                    self.running.take().expect("it is running").finish(now);
                    self.numbers.clear();
                }
            }
        }
    }

    fn begin(&self, now: Instant, arrived: Instant, job: Job) -> Running {
        let tokenize = self.runtime.tokenize(job.prompt_tokens);
        let respond = self.runtime.respond(job.prompt_tokens, job.answer_tokens);
        // A closed channel means that a cancel is on its way.
        let _ = job.events.send(JobEvent::Started);
        Running {
            job,
            host: Host::new(Box::new(After { first: Some(tokenize), then: respond })),
            wake: None,
            committed: 0,
            arrived,
            started: now,
            tokenized: now + tokenize,
            prefill_gpu_start: None,
            first_token: None,
            lateness: Lateness::default(),
        }
    }
}

impl Running {
    fn token(&mut self, now: Instant) {
        self.first_token.get_or_insert(now);
        let _ = self.job.events.send(JobEvent::Token { at: now });
    }

    fn finish(self, now: Instant) {
        let first_token = self.first_token.unwrap_or(now);
        let _ = self.job.events.send(JobEvent::Finished(Summary {
            queued: self.started.since(self.arrived),
            tokenize: self.tokenized.since(self.started),
            prompt: first_token.since(self.tokenized),
            predicted: now.since(first_token),
            prefill_gpu_start: self.prefill_gpu_start.unwrap_or(first_token),
            lateness: self.lateness,
        }));
    }
}

/// Host work, then a program.
struct After {
    first: Option<Span>,
    then: Box<dyn Program>,
}

impl Program for After {
    fn next(&mut self, now: Instant, seen: Option<&Seen>) -> Op {
        match self.first.take() {
            Some(span) => Op::Pass(span),
            None => self.then.next(now, seen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwarm_dvfs::Chip;
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    fn bench() -> (Machine, Slot) {
        let mut machine = Machine::new(Chip::built_in("m2").unwrap());
        let queue = machine.open_queue();
        (machine, Slot::new(Runtime::built_in("mlx").unwrap(), queue))
    }

    fn job(id: u64, answer_tokens: u32) -> (Job, UnboundedReceiver<JobEvent>) {
        let (events, received) = unbounded_channel();
        (Job { id, prompt_tokens: 16, answer_tokens, events }, received)
    }

    /// Runs in virtual time until `to` or until nothing is left to do.
    fn run(machine: &mut Machine, slot: &mut Slot, to: Instant) {
        loop {
            let next = [machine.next_event(), slot.wake()].into_iter().flatten().min();
            match next.filter(|t| *t <= to) {
                Some(t) => {
                    machine.advance(t);
                    while let Some(completion) = machine.poll_ended() {
                        slot.on_completion(completion);
                    }
                    slot.step(t, machine);
                }
                None => return,
            }
        }
    }

    fn drain(received: &mut UnboundedReceiver<JobEvent>) -> Vec<JobEvent> {
        std::iter::from_fn(|| received.try_recv().ok()).collect()
    }

    #[test]
    fn jobs_run_one_after_the_other() {
        let (mut machine, mut slot) = bench();
        let (first, mut first_events) = job(1, 3);
        let (second, mut second_events) = job(2, 1);
        slot.submit(Instant::ZERO, first, &mut machine);
        slot.submit(Instant::ZERO, second, &mut machine);
        run(&mut machine, &mut slot, Instant::FAR_FUTURE);
        let (first, second) = (drain(&mut first_events), drain(&mut second_events));
        let [JobEvent::Started, tokens @ .., JobEvent::Finished(summary)] = &first[..] else {
            panic!("{first:?}");
        };
        assert_eq!(tokens.len(), 3);
        let JobEvent::Token { at } = tokens[2] else { panic!("{tokens:?}") };
        let spans = [summary.queued, summary.tokenize, summary.prompt, summary.predicted];
        assert_eq!(spans.into_iter().sum::<Span>(), at.since(Instant::ZERO));
        let JobEvent::Finished(waited) = &second[2] else { panic!("{second:?}") };
        assert_eq!(waited.queued, at.since(Instant::ZERO), "it began with the first's last token");
    }

    #[test]
    fn a_cancelled_job_commits_nothing_more() {
        let (mut machine, mut slot) = bench();
        let (job, mut events) = job(1, 1000);
        slot.submit(Instant::ZERO, job, &mut machine);
        let gone = Instant::ZERO + Span::ms(800);
        run(&mut machine, &mut slot, gone);
        slot.cancel(gone, 1, &mut machine);
        assert!(drain(&mut events).len() > 3, "it was in the middle of its answer");
        run(&mut machine, &mut slot, Instant::FAR_FUTURE);
        assert!(drain(&mut events).is_empty());
        let busy_after = machine.now().since(gone);
        assert!(busy_after < Span::ms(100), "the GPU was busy for {busy_after} more");
    }
}
