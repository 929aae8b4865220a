//! From a scenario's text to its plan, with every rule that the text must hold.

use super::doc::{ActorDoc, ScenarioDoc, StepDoc};
use super::plan::{Actor, Cell, Part, Run, Scenario, Step, StepKind, Until};
use super::sweep::{Filler, Sweep};
use super::value::{Depth, Duration};
use crate::text::{BadInput, Source};
use everwarm_units::{PState, Span};
use everwarm_workload::Runtime;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Steps of one actor after repetition, at most: a typing error should not fill the memory.
const STEPS_MAX: usize = 100_000;

/// Cells of a sweep, at most; the same reason.
const CELLS_MAX: usize = 10_000;

/// Rounds of all cells together, at most; the same reason.
const ROUNDS_MAX: usize = 1_000_000;

/// Tokens of a prompt or an answer, at most; the same reason.
const TOKENS_MAX: u32 = 1_000_000;

/// Reads a scenario from a document's table; `name` is used where it gives none.
pub fn read<'a>(
    source: Source<'a>,
    doc: Spanned<DeTable<'a>>,
    name: &str,
) -> Result<Scenario, BadInput> {
    let span = doc.span();
    let mut table = doc.into_inner();
    let sweep = Sweep::take(source, &mut table)?;
    if sweep.len() > CELLS_MAX as u128 {
        let why = format!("the sweep has {} cells; expected at most {CELLS_MAX}", sweep.len());
        return Err(source.error(sweep.span.clone(), why));
    }
    let assignments = sweep.cells();
    let mut cells = Vec::new();
    let mut head = None;
    for assignment in assignments {
        let filler = Filler::new(source, &sweep, &assignment)?;
        let mut filled = Spanned::new(span.clone(), DeValue::Table(table.clone()));
        filler.fill(&mut filled)?;
        let doc: ScenarioDoc = source.decode(filled)?;
        let reader = Reader { source, variables: filler.names };
        cells.push(reader.cell(&doc, span.clone())?);
        head = Some(doc);
    }
    let head = head.expect("a sweep has at least one cell");
    let rounds = head.rounds.as_ref().map_or(1, |n| n.get_ref().0);
    if let Err(why) = enough(rounds, cells.len()) {
        let at = head.rounds.as_ref().map_or(span, Spanned::span);
        return Err(source.error(at, why));
    }
    Ok(Scenario {
        name: head.name.unwrap_or_else(|| name.to_owned()),
        about: head.about.unwrap_or_default(),
        rounds,
        seed: head.seed.unwrap_or(1),
        order: head.order.unwrap_or_default(),
        telemetry: head.telemetry.and_then(|t| t.0),
        cells,
    })
}

/// Says why so many rounds of so many cells are too many.
pub fn enough(rounds: u32, cells: usize) -> Result<(), String> {
    match cells.saturating_mul(rounds as usize) > ROUNDS_MAX {
        true => Err(format!(
            "{rounds} rounds of {cells} cells are too many; expected at most {ROUNDS_MAX} in all"
        )),
        false => Ok(()),
    }
}

struct Reader<'a> {
    source: Source<'a>,
    /// The variables of the cell that is being read.
    variables: BTreeMap<String, String>,
}

impl Reader<'_> {
    fn cell(&self, doc: &ScenarioDoc, span: Range<usize>) -> Result<Cell, BadInput> {
        let mut actors = Vec::new();
        if let Some(steps) = &doc.steps {
            let name = "main".to_owned();
            actors.push(Actor { name, background: false, steps: self.steps(steps)? });
        }
        for actor in &doc.actor {
            actors.push(self.actor(actor)?);
        }
        if let Some(twice) = (1..actors.len())
            .find(|&i| actors[..i].iter().any(|before| before.name == actors[i].name))
        {
            let why = format!("two actors are called `{}`", actors[twice].name);
            // A document's `steps` are an actor too, before the others.
            let at = twice.checked_sub(usize::from(doc.steps.is_some()));
            let at = at.and_then(|n| doc.actor.get(n)).map_or(span, Spanned::span);
            return Err(self.source.error(at, why));
        }
        if actors.iter().all(|actor| actor.background) {
            let cell = match self.variables.is_empty() {
                true => String::new(),
                false => format!(" in the cell {:?}", self.variables),
            };
            let why = format!(
                "nothing to run{cell}: expected `steps`, or an [[actor]] with `steps` that is not in the background"
            );
            return Err(self.source.error(span, why));
        }
        self.signals_exist(&actors, doc)?;
        Ok(Cell { variables: self.variables.clone(), actors })
    }

    /// An `await` that no other actor can end would hang.
    fn signals_exist(&self, actors: &[Actor], doc: &ScenarioDoc) -> Result<(), BadInput> {
        let raised: Vec<&str> = actors.iter().flat_map(|a| &a.steps).filter_map(raises).collect();
        let own = doc.steps.iter().flatten();
        let others = doc.actor.iter().flat_map(|actor| &actor.get_ref().steps);
        let mut open: Vec<&Spanned<StepDoc>> = own.chain(others).collect();
        while let Some(step) = open.pop() {
            open.extend(step.get_ref().steps.iter().flatten());
            let Some(name) = &step.get_ref().wait_for else { continue };
            if !raised.contains(&name.as_str()) {
                let known = match raised.as_slice() {
                    [] => "none is raised".to_owned(),
                    all => format!("raised are {}", all.join(", ")),
                };
                let why = format!("a step awaits `{name}`, which no step raises; {known}");
                return Err(self.source.error(step.span(), why));
            }
        }
        Ok(())
    }

    fn actor(&self, doc: &Spanned<ActorDoc>) -> Result<Actor, BadInput> {
        let actor = doc.get_ref();
        let steps = self.steps(&actor.steps)?;
        let passes_time = |step: &Step| match &step.kind {
            StepKind::Idle { span, .. } => !span.is_zero(),
            StepKind::Run(run) => run.drain && run.until != Until::Elapsed(Span::ZERO),
            StepKind::Model { .. } | StepKind::Await(_) => true,
            StepKind::Signal(_) | StepKind::Pin(_) => false,
        };
        if actor.background && !steps.iter().any(passes_time) {
            let why = format!(
                "`{}` would repeat without passing time: expected an idle, run, prefill, decode or await step",
                actor.name
            );
            return Err(self.source.error(doc.span(), why));
        }
        Ok(Actor { name: actor.name.clone(), background: actor.background, steps })
    }

    fn steps(&self, docs: &[Spanned<StepDoc>]) -> Result<Vec<Step>, BadInput> {
        let mut steps = Vec::new();
        for doc in docs {
            self.step(doc, &mut steps)?;
            if steps.len() > STEPS_MAX {
                let why = format!("more than {STEPS_MAX} steps after repetition");
                return Err(self.source.error(doc.span(), why));
            }
        }
        Ok(steps)
    }

    fn step(&self, doc: &Spanned<StepDoc>, into: &mut Vec<Step>) -> Result<(), BadInput> {
        let (step, span) = (doc.get_ref(), doc.span());
        let fail = |why: String| Err(self.source.error(span.clone(), why));
        let main = match step.main_keys().as_slice() {
            [one] => *one,
            [] => {
                return fail("a step needs one of idle, run, prefill, decode, answer, await, signal, pin, steps".into());
            }
            several => {
                return fail(format!("a step can't be {} at once", several.join(" and ")));
            }
        };
        for (key, belongs) in step.other_keys() {
            if !belongs.contains(&main) {
                return fail(format!(
                    "`{key}` has no meaning in a `{main}` step, only with {}",
                    belongs.join(", ")
                ));
            }
        }
        if let Some(inner) = &step.steps {
            let once = self.steps(inner)?;
            let times = step.repeat.map_or(1, |n| n.0 as usize);
            if once.len().saturating_mul(times) > STEPS_MAX {
                return fail(format!("more than {STEPS_MAX} steps after repetition"));
            }
            (0..times).for_each(|_| into.extend(once.iter().cloned()));
            return Ok(());
        }
        let kind = self.kind(step, span.clone())?;
        let label = step.label.clone().unwrap_or_else(|| main.to_owned());
        into.push(Step { label, kind });
        Ok(())
    }

    fn kind(&self, step: &StepDoc, span: Range<usize>) -> Result<StepKind, BadInput> {
        if let Some(Duration(idle)) = step.idle {
            let lead = step.lead.map_or(Span::ZERO, |lead| lead.0);
            if lead > idle {
                let why = format!("the lead of {lead} is longer than the idle time of {idle}");
                return Err(self.source.error(span, why));
            }
            if step.lead.is_some() && step.signal.is_none() {
                return Err(self.source.error(span, "`lead` needs a `signal` to raise"));
            }
            return Ok(StepKind::Idle {
                span: idle,
                jitter: step.jitter.map_or(Span::ZERO, |jitter| jitter.0),
                spin: step.spin.unwrap_or(false),
                signal: step.signal.clone().map(|name| (name, lead)),
            });
        }
        if let Some(name) = &step.wait_for {
            return Ok(StepKind::Await(name.clone()));
        }
        if let Some(name) = &step.signal {
            return Ok(StepKind::Signal(name.clone()));
        }
        if let Some(pin) = step.pin {
            return Ok(StepKind::Pin(pin.0.map(PState)));
        }
        if let Some(work) = step.run {
            return self.run(step, work, span).map(StepKind::Run);
        }
        let asked = [step.prefill, step.decode, step.answer, step.context, step.prompt];
        if let Some(n) = asked.into_iter().flatten().map(|n| n.0).find(|n| *n > TOKENS_MAX) {
            let why = format!("{n} tokens are too many; expected at most {TOKENS_MAX}");
            return Err(self.source.error(span, why));
        }
        let part = match (step.prefill, step.decode, step.answer) {
            (Some(tokens), ..) => Part::Prefill(tokens.0),
            (_, Some(tokens), _) => {
                Part::Decode { context: step.context.map_or(0, |n| n.0), tokens: tokens.0 }
            }
            (.., Some(tokens)) => {
                Part::Answer { prompt: step.prompt.map_or(1, |n| n.0), tokens: tokens.0 }
            }
            _ => unreachable!("the step has a main key"),
        };
        Ok(StepKind::Model { runtime: self.runtime(step, span)?, part })
    }

    fn runtime(&self, step: &StepDoc, span: Range<usize>) -> Result<Box<Runtime>, BadInput> {
        let name = step.runtime.as_deref().unwrap_or("mlx");
        let runtime = match name.ends_with(".toml") {
            true => self.runtime_file(name),
            false => Runtime::built_in(name).map_err(|error| {
                format!("{error}; the name of a runtime file ends in .toml (docs/runtimes.md)")
            }),
        };
        runtime.map(Box::new).map_err(|why| self.source.error(span, why))
    }

    /// A runtime file, relative to the file that names it.
    fn runtime_file(&self, name: &str) -> Result<Runtime, String> {
        let folder = Path::new(self.source.file).parent().unwrap_or(Path::new(""));
        let path = folder.join(name);
        let shown = path.display();
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("the runtime file `{shown}` can't be read: {error}"))?;
        Runtime::from_toml(&text).map_err(|error| format!("{shown}: {error}"))
    }

    fn run(
        &self,
        step: &StepDoc,
        work: super::value::Work,
        span: Range<usize>,
    ) -> Result<Run, BadInput> {
        let fail = |why: &str| Err(self.source.error(span.clone(), why));
        let until = match (step.times, step.span, step.deep) {
            (Some(n), None, None) | (None, None, Some(n)) => Until::Times(n.0),
            (None, Some(span), None) => Until::Elapsed(span.0),
            (None, None, None) => Until::Times(1),
            _ => return fail("a run has only one of `times`, `for` and `deep`"),
        };
        if step.deep.is_some() && step.in_flight.is_some() {
            return fail("`deep` means all in flight; leave out `in_flight`");
        }
        let all = step.deep.map(|_| Depth::Fixed(usize::MAX));
        let in_flight = step.in_flight.or(all).unwrap_or(Depth::Fixed(1));
        if step.gap.is_some() && (in_flight != Depth::Fixed(1) || step.sleep.is_some()) {
            return fail(
                "`gap` sets the host's sleep of a run with one buffer in flight; leave out `sleep`, `in_flight` and `deep`",
            );
        }
        if let Depth::Auto(limits) = in_flight {
            if step.sleep.is_some() {
                return fail(
                    "`sleep` comes after a wait, and in_flight = \"auto\" decides itself when to wait; expected `delay`, which comes before each commit",
                );
            }
            if work.times(limits.chunk_max).is_none() {
                let why = format!(
                    "{} of this kernel in one command buffer are no kernel; expected a smaller `chunk`, or none for matmul",
                    limits.chunk_max
                );
                return fail(&why);
            }
        }
        Ok(Run {
            work,
            until,
            in_flight,
            sleep: step.sleep.map_or(Span::ZERO, |d| d.0),
            delay: step.delay.map_or(Span::ZERO, |d| d.0),
            gap: step.gap.map(|d| d.0),
            drain: step.drain.unwrap_or(true),
        })
    }
}

/// The signal that a step raises.
fn raises(step: &Step) -> Option<&str> {
    match &step.kind {
        StepKind::Signal(name) | StepKind::Idle { signal: Some((name, _)), .. } => Some(name),
        _ => None,
    }
}
