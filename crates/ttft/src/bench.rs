//! Carries out a plan.

use crate::Error;
use crate::admin::Admin;
use crate::client::{Client, Reply};
use crate::gpu::{Gpu, spent};
use crate::hold::Hold;
use crate::plan::{Plan, Step};
use crate::prompt::Prompts;
use crate::results::Results;
use crate::sample::{Label, Sample, wrong_length};
use crate::target::Target;
use everwarm_gpu::{Counters, Monotonic};
use everwarm_units::Span;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;

/// Requests in a row that may fail before the server counts as gone.
const FAILURES_MAX: u32 = 3;

/// Attempts at a prompt of the wanted length before measuring.
const LESSONS: u32 = 4;

/// Where to measure, and with what.
#[derive(Clone, Debug)]
pub struct Config {
    /// The server or the proxy in front of it: `http://127.0.0.1:8081`, with the path of a
    /// completions API if it is not `/v1/chat/completions`.
    pub url: String,
    /// The proxy's admin port; needed by the pre-warm conditions.
    pub admin: Option<String>,
    /// The device that the server runs on, by the wall clock; needed by the hold conditions.
    pub device: Option<String>,
    /// The command that holds the device warm until it is asked to end.
    pub hold: Option<Vec<OsString>>,
    /// The model to ask for, where the server has several.
    pub model: Option<String>,
    /// Sent as a bearer token.
    pub api_key: Option<String>,
    /// One connection for all requests instead of a fresh one each.
    pub keep_alive: bool,
    /// How long a request may take.
    pub timeout: Span,
}

/// What a bench tells while it runs.
#[derive(Debug)]
pub enum Progress<'a> {
    /// The server has been tried with each prompt length; so many requests follow.
    Ready(usize),
    /// One request is done.
    Done(&'a Sample),
    /// The last one was void and is repeated later.
    Again,
}

/// A bench in front of a server.
pub struct Bench {
    plan: Plan,
    runtime: tokio::runtime::Runtime,
    client: Client,
    chat: bool,
    model: Option<String>,
    admin: Option<Admin>,
    policy: &'static str,
    gpu: Option<Gpu>,
    hold: Option<Vec<OsString>>,
    prompts: Prompts,
    /// The server's count of a prompt of each length, by the last attempt before measuring.
    expected: BTreeMap<u32, u64>,
    url: String,
    device: Option<String>,
}

impl Bench {
    /// A bench that has opened its device but sent nothing yet.
    ///
    /// # Errors
    /// A bad address, a bad plan, a condition that lacks what it needs, or a device that can't be
    /// opened.
    pub fn new(plan: Plan, config: Config) -> Result<Self, Error> {
        plan.check()?;
        needs(&plan, &config)?;
        let base = Target::parse("--url", &config.url)?;
        let target = api(base);
        let chat = !target.path.ends_with("/completions") || target.path.contains("/chat/");
        let admin = config.admin.as_deref().map(|text| Target::parse("--admin", text));
        let admin = admin.transpose()?.map(Admin::new);
        let gpu = config.device.as_deref().map(Gpu::open).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let key = config.api_key.as_deref();
        Ok(Bench {
            runtime: runtime.map_err(Error::Runtime)?,
            url: target.to_string(),
            client: Client::new(target, config.keep_alive, config.timeout, key),
            chat,
            model: config.model,
            admin,
            policy: "",
            gpu,
            hold: config.hold,
            prompts: Prompts::new(plan.seed, chat),
            expected: BTreeMap::new(),
            device: config.device,
            plan,
        })
    }

    /// Tries each prompt length once, then measures.
    ///
    /// # Errors
    /// What the server says when the very first requests fail, or when it has stopped answering;
    /// a device that was lost; a hold that can't be started.
    pub fn run(mut self, mut progress: impl FnMut(Progress<'_>)) -> Result<Results, Error> {
        let started = Monotonic::now();
        let needs_no_warming = self.plan.conditions.first().map_or("never", |c| c.policy());
        self.set_policy(needs_no_warming).map_err(Error::Admin)?;
        self.try_lengths()?;
        progress(Progress::Ready(self.plan.steps()));
        let mut samples: Vec<Sample> = Vec::new();
        let mut failures = 0;
        for round in 0..self.plan.rounds_max() {
            let mut queue: VecDeque<Step> = self.plan.round(round).into();
            while let Some(step) = queue.pop_front() {
                let sample = self.sample(step)?;
                failures = if sample.error.is_some() { failures + 1 } else { 0 };
                progress(Progress::Done(&sample));
                if failures == FAILURES_MAX {
                    let why = sample.error.unwrap_or_default();
                    return Err(Error::Server(format!(
                        "{FAILURES_MAX} requests in a row failed: {why}"
                    )));
                }
                let void = !sample.is_valid();
                samples.push(sample);
                if void && self.may_repeat(step, &samples, started) {
                    queue.push_back(step);
                    progress(Progress::Again);
                }
            }
        }
        Ok(self.results(samples, Monotonic::now().since(started)))
    }

    fn results(self, samples: Vec<Sample>, took: Span) -> Results {
        let name = self.gpu.as_ref().map(|gpu| gpu.name().to_owned());
        let simulated = self.gpu.as_ref().map(Gpu::simulated);
        let pre_warms = self.plan.conditions.iter().any(|c| c.pre_warms());
        // A proxy that has gone by now is no reason to lose what was measured.
        let proxy_remark = self
            .admin
            .as_ref()
            .filter(|_| pre_warms)
            .and_then(|admin| self.runtime.block_on(admin.remark()).unwrap_or_default());
        Results {
            url: self.url,
            device: self.device,
            device_name: name,
            simulated,
            plan: self.plan,
            proxy_remark,
            took,
            samples,
        }
    }

    /// A void sample is repeated at the end of its round, within bounds.
    fn may_repeat(&self, step: Step, samples: &[Sample], started: Monotonic) -> bool {
        let same = |s: &&Sample| s.tokens == step.tokens && s.condition == step.condition;
        let void = samples.iter().filter(same).filter(|s| !s.is_valid()).count();
        let in_time = Monotonic::now().since(started) < self.plan.repeat_until;
        void <= self.plan.repeats_max as usize && in_time
    }

    /// Sends one request of each length, so that a server that can't be measured says so at
    /// once, and learns from its counts how many words make a length.
    fn try_lengths(&mut self) -> Result<(), Error> {
        let mut lengths: Vec<u32> = self.plan.rounds.iter().map(|(tokens, _)| *tokens).collect();
        // The shortest first: what it teaches keeps the longest from being far too long.
        lengths.sort_unstable();
        for tokens in lengths {
            for _ in 0..LESSONS {
                let reply = self.ask(tokens).map_err(Error::Server)?;
                let Some(counted) = reply.prompt_tokens else { break };
                self.expected.insert(tokens, counted);
                let counted = u32::try_from(counted).unwrap_or(u32::MAX);
                if !self.prompts.learn(tokens, counted) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// One request with what comes before it. A failure of the request is in the sample.
    fn sample(&mut self, step: Step) -> Result<Sample, Error> {
        let condition = step.condition;
        let sample = Sample::new(step);
        if let Err(error) = self.set_policy(condition.policy()) {
            return Ok(sample.failed(error));
        }
        let before = self.counters()?;
        let mut hold = match (&self.hold, condition.holds()) {
            (Some(command), true) => Some(Hold::start(command)?),
            _ => None,
        };
        let begun = Monotonic::now();
        if let Err(error) = self.wait_idly(step, begun) {
            return Ok(sample.failed(error));
        }
        if let Some(hold) = &mut hold {
            hold.check()?;
        }
        if condition.burns() {
            match &mut self.gpu {
                Some(gpu) => gpu.burn(self.plan.burn)?,
                // Without a device, a throw-away request is the work.
                None => {
                    if let Err(error) = self.ask(step.tokens) {
                        return Ok(sample.failed(error));
                    }
                }
            }
        }
        let asked = self.ask(step.tokens);
        let after = self.counters()?;
        if let Some(hold) = hold {
            hold.stop()?;
        }
        match asked {
            Ok(reply) => self.fill(sample, &reply, before.zip(after)),
            Err(error) => Ok(sample.failed(error)),
        }
    }

    /// Lets the idle time pass, with the hint in it where there is one.
    fn wait_idly(&self, step: Step, begun: Monotonic) -> Result<(), String> {
        let until = |span: Span| {
            let passed = Monotonic::now().since(begun);
            std::thread::sleep(span.saturating_sub(passed).into());
        };
        if step.condition == crate::Condition::PreWarmHint
            && let Some(admin) = &self.admin
        {
            until(self.plan.idle.saturating_sub(self.plan.hint_lead));
            self.runtime.block_on(admin.hint(self.plan.hint_lead))?;
        }
        until(self.plan.idle);
        Ok(())
    }

    fn fill(
        &self,
        mut sample: Sample,
        reply: &Reply,
        energy: Option<(Counters, Counters)>,
    ) -> Result<Sample, Error> {
        sample.sent_ns = Some(reply.sent.0);
        sample.connect_ms = Some(reply.connect.as_ms());
        sample.ttft_ms = Some(reply.ttft.as_ms());
        sample.total_ms = Some(reply.total.as_ms());
        sample.prompt_tokens = reply.prompt_tokens;
        sample.completion_tokens = reply.completion_tokens;
        sample.prompt_ms = reply.timing("prompt_ms");
        sample.tokenize_ms = reply.timing("tokenize_ms");
        sample.overhead_ms = overhead(reply);
        sample.late_max_ms = reply.timing("late_max_ms");
        sample.late_p99_ms = reply.timing("late_p99_ms");
        if let Some((before, after)) = energy {
            sample.gpu_j = spent(before.gpu_energy, after.gpu_energy).map(|e| e.as_j());
            sample.cpu_j = spent(before.cpu_energy, after.cpu_energy).map(|e| e.as_j());
        }
        if sample.condition.pre_warms() {
            match self.lead(reply) {
                Ok(lead) => sample.lead_ms = lead,
                Err(error) => return Ok(sample.failed(error)),
            }
        }
        let late = sample.late_max_ms.is_some_and(|late| {
            let outside = sample.overhead_ms.unwrap_or(0.0);
            late > self.plan.late_max.as_ms() || outside > self.plan.overhead_max.as_ms()
        });
        let expected = self.expected.get(&sample.tokens).copied();
        let length = expected.unwrap_or(u64::from(sample.tokens));
        // A template is alike in all prompts and may well be in the cache.
        let cached = reply.timing("cache_n").is_some_and(|n| n * 2.0 > length as f64);
        let other = |counted| wrong_length(length, counted);
        sample.labels.extend(late.then_some(Label::Late));
        sample.labels.extend(cached.then_some(Label::Cached));
        sample.labels.extend(sample.prompt_tokens.is_some_and(other).then_some(Label::Tokens));
        Ok(sample)
    }

    /// From the submission of this request's pre-warm to the start of its prefill on the GPU;
    /// `None` if either is unknown.
    fn lead(&self, reply: &Reply) -> Result<Option<f64>, String> {
        let Some(admin) = &self.admin else { return Ok(None) };
        let last = self.runtime.block_on(admin.last_prewarm())?;
        let prefill = reply.timings.as_ref().and_then(|t| t["prefill_gpu_start_ns"].as_u64());
        // One from long before is another request's.
        let earliest = reply.sent.0.saturating_sub((self.plan.hint_lead * 2).as_nanos());
        let own = last.filter(|prewarm| prewarm.submitted.0 >= earliest);
        Ok(own.zip(prefill).map(|(own, prefill)| (prefill as f64 - own.submitted.0 as f64) / 1e6))
    }

    fn counters(&mut self) -> Result<Option<Counters>, Error> {
        self.gpu.as_mut().map(Gpu::counters).transpose()
    }

    fn set_policy(&mut self, policy: &'static str) -> Result<(), String> {
        if let Some(admin) = &self.admin
            && self.policy != policy
        {
            self.runtime.block_on(admin.policy(policy))?;
            self.policy = policy;
        }
        Ok(())
    }

    fn ask(&mut self, tokens: u32) -> Result<Reply, String> {
        let prompt = self.prompts.next(tokens);
        let mut body = serde_json::json!({
            "max_tokens": self.plan.answer_tokens,
            "temperature": 0,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        if let Some(model) = &self.model {
            body["model"] = model.as_str().into();
        }
        match self.chat {
            true => body["messages"] = serde_json::json!([{"role": "user", "content": prompt}]),
            false => body["prompt"] = prompt.into(),
        }
        self.runtime.block_on(self.client.ask(body.to_string()))
    }
}

/// TTFT at the client without what the server says of it; `None` if it says nothing.
fn overhead(reply: &Reply) -> Option<f64> {
    let waited = ["queue_ms", "tokenize_ms"].map(|name| reply.timing(name).unwrap_or(0.0));
    Some(reply.ttft.as_ms() - reply.timing("prompt_ms")? - waited.iter().sum::<f64>())
}

/// The completions API below an address that does not name one itself.
fn api(base: Target) -> Target {
    let path = base.path.trim_end_matches('/').to_owned();
    match path.as_str() {
        "" => base.with_path("/v1/chat/completions"),
        path if path.ends_with("/v1") => base.with_path(&format!("{path}/chat/completions")),
        path => base.with_path(path),
    }
}

/// Each condition has what it needs.
fn needs(plan: &Plan, config: &Config) -> Result<(), Error> {
    for condition in &plan.conditions {
        let lacks = if condition.pre_warms() && config.admin.is_none() {
            "the proxy's admin port, to set its policy and to send the hint; \
             expected --admin http://127.0.0.1:8082 (`everwarm proxy` prints it)"
        } else if condition.holds() && (config.device.is_none() || config.hold.is_none()) {
            "the GPU that is to be held; expected --device (`everwarm devices` lists them, \
             `everwarm sim-server` prints its own)"
        } else {
            continue;
        };
        return Err(Error::Plan(format!("the condition {condition} needs {lacks}")));
    }
    Ok(())
}
