//! Carries out an examination: the instrument, the probes in turns, and trials where they make sense.

use crate::causes;
use crate::diagnosis::{Diagnosis, Finding, Verdict};
use crate::evidence::{Evidence, Taken, name};
use crate::host::{self, Host, PlainHost, Rests};
use crate::instrument;
use crate::probe::{self, Probe, Take};
use crate::remedies;
use crate::text;
use everwarm_gpu::{Backend, Monotonic};
use everwarm_lab::Session;
use everwarm_units::Span;

/// Why an examination ended without a diagnosis.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The device could not be opened, or is gone.
    #[error(transparent)]
    Device(#[from] everwarm_gpu::Error),
    /// A probe could not be run.
    #[error(transparent)]
    Probe(#[from] everwarm_lab::Error),
}

/// What is examined.
pub struct Patient {
    /// The device's id.
    pub id: String,
    /// Opens a handle on it.
    pub open: Box<dyn Fn() -> Result<Box<dyn Backend>, everwarm_gpu::Error>>,
    /// The host beside it.
    pub host: Box<dyn Host>,
}

impl Patient {
    /// The device `id` on this host.
    pub fn device(id: &str) -> Self {
        let own = id.to_owned();
        Patient {
            id: id.to_owned(),
            open: Box::new(move || everwarm_gpu::open(&own)),
            host: Box::new(PlainHost::default()),
        }
    }
}

/// How to examine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Fewer idle times and no trials.
    pub quick: bool,
    /// When to stop taking samples, on the wall clock; not heeded in virtual time.
    pub budget: Span,
}

impl Options {
    /// Under a minute.
    pub const FULL: Options = Options { quick: false, budget: Span::s(57) };
    /// Under a quarter of one.
    pub const QUICK: Options = Options { quick: true, budget: Span::ms(14_300) };
}

/// How far an examination is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress<'a> {
    /// Samples taken.
    pub done: usize,
    /// Samples that are planned as far as is known.
    pub total: usize,
    /// What is done now.
    pub what: &'a str,
}

/// Examines `patient`.
///
/// # Errors
/// When the device can't be opened, refuses a probe, or is lost.
pub fn examine(
    patient: &mut Patient,
    options: Options,
    told: &mut dyn FnMut(Progress<'_>),
) -> Result<Diagnosis, Error> {
    let takes = probe::causes(options.quick);
    let planned: usize = takes.iter().map(|take| take.times as usize).sum();
    let mut show = |done, total, what: &str| told(Progress { done, total, what });
    show(0, planned, "the instrument");
    let deadline = Monotonic::now().0.saturating_add(options.budget.as_nanos());
    let (mut instrument, rests) = before(patient, options)?;
    let mut bench = Bench::open(patient, deadline)?;
    bench.warm_up()?;
    bench.take(&takes, &mut |done, what| show(done, planned, what))?;
    if !options.quick {
        // What only the longest idle time shows needs more than one sample.
        let odd = causes::odd_after_the_longest(&bench.taken);
        let more = if odd { probe::again("5 s") } else { Vec::new() };
        bench.take(&more, &mut |done, _| show(planned, planned + 2 - done, "again, after 5 s"))?;
    }
    let device = bench.session.device().clone();
    let evidence = Evidence::new(device, std::mem::take(&mut bench.taken));
    instrument.after(&evidence);
    let rows = causes::judge(&evidence, &rests, &instrument, options.quick);
    let seen = rows.iter().any(|row| matches!(row.finding, Finding::Seen { .. }));
    let trials = if seen && !options.quick && instrument.trouble.is_none() {
        let gap = causes::telling_gap(&evidence);
        let takes = probe::remedies(gap);
        let total: usize = takes.iter().map(|take| take.times as usize).sum();
        bench.take(&takes, &mut |done, what| show(planned + done, planned + total, what))?;
        let device = evidence.device.clone();
        remedies::judge(&Evidence::new(device, std::mem::take(&mut bench.taken)), gap)
    } else {
        None
    };
    let took_s = bench.took().as_secs();
    let diagnosis = Diagnosis {
        device: patient.id.clone(),
        device_name: evidence.device.name.clone(),
        simulated: evidence.device.simulated,
        quick: options.quick,
        took_s,
        verdict: Verdict::of(&rows),
        summary: Vec::new(),
        causes: rows,
        trials,
        instrument,
        facts: evidence.device.facts,
    };
    Ok(Diagnosis { summary: text::summary(&diagnosis), ..diagnosis })
}

/// The instrument and the host, before the GPU.
fn before(
    patient: &mut Patient,
    options: Options,
) -> Result<(instrument::Instrument, Rests), Error> {
    let mut backend = (patient.open)()?;
    let instrument = instrument::before(backend.as_mut())?;
    let long = if options.quick { Span::ms(200) } else { Span::ms(600) };
    let rests = host::watch(patient.host.as_mut(), backend.as_mut(), long);
    Ok((instrument, rests))
}

/// The device while samples are taken.
struct Bench {
    session: Session,
    taken: Vec<Taken>,
    begin: Monotonic,
    deadline: Option<u64>,
    /// Time that passed on the device.
    passed: Span,
}

impl Bench {
    fn open(patient: &Patient, deadline: u64) -> Result<Self, Error> {
        let backend = (patient.open)()?;
        let deadline = (!backend.device().virtual_time).then_some(deadline);
        let begin = Monotonic::now();
        let session = Session::new(&patient.id, backend);
        Ok(Bench { session, taken: Vec::new(), begin, deadline, passed: Span::ZERO })
    }

    /// Runs everything once, which compiles, allocates and fills: nothing of it is a sample.
    fn warm_up(&mut self) -> Result<(), Error> {
        for (probe, cell) in [("request", "0"), ("stream", "0"), ("clock", "0")] {
            let probe = Probe::named(probe);
            self.session.run(&probe.scenario, probe.cell(cell), 0)?;
        }
        Ok(())
    }

    /// Takes the samples in turns, as long as there is time.
    fn take(&mut self, takes: &[Take], told: &mut dyn FnMut(usize, &str)) -> Result<(), Error> {
        let probes: Vec<Probe> = takes.iter().map(|take| Probe::named(take.probe)).collect();
        for (done, (index, round)) in probe::turns(takes).into_iter().enumerate() {
            let (take, probe) = (&takes[index], &probes[index]);
            if self.deadline.is_some_and(|deadline| Monotonic::now().0 >= deadline) {
                return Ok(());
            }
            told(done, &format!("{}, {}", take.probe, take.cell));
            let cell = probe.cell(&take.cell);
            let unit = self.session.run(&probe.scenario, cell, round)?;
            self.passed += unit.end.since(unit.begin);
            let cell = name(&probe.scenario.cells[cell].variables);
            self.taken.push(Taken { probe: probe.name, cell, unit });
        }
        Ok(())
    }

    /// How long all of it has taken, by the clock that counts.
    fn took(&self) -> Span {
        match self.deadline {
            Some(_) => Monotonic::now().since(self.begin),
            None => self.passed,
        }
    }
}
