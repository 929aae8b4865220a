//! A hold on a device in virtual time: over in an instant, and nothing real is warmed.

use crate::pump::{Pump, Shape};
use everwarm_governor::{Action, Config, Event, Governor, Reason, policy};
use everwarm_gpu::Error;
use everwarm_units::{Joules, Span};

/// What a hold did.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// How long it held.
    pub held: Span,
    /// What it used, where the device tells.
    pub energy: Option<Joules>,
    /// Kernels that ended.
    pub buffers: u64,
    /// What ended it before its time.
    pub ended_by: Option<Reason>,
}

/// Holds `device`, which must live in virtual time, for `span` or until the cap is reached.
///
/// # Errors
/// What opening or using the device gives.
pub fn virtually(device: &str, span: Span, config: Config, shape: Shape) -> Result<Summary, Error> {
    let mut pump = Pump::open_unpaced(device, shape)?;
    let always = policy("always").expect("the table has it");
    let mut governor = Governor::new(always, config);
    let began = pump.now();
    let before = pump.energy()?;
    let (end, mut read) = (began + span, (began, before));
    let ended_by = 'hold: loop {
        let now = pump.now();
        if now >= end {
            break None;
        }
        if now.since(read.0) >= Span::s(1) {
            let counter = pump.energy()?;
            if let (Some(a), Some(b)) = (read.1, counter) {
                governor.on_event(now, Event::Energy(b - a));
            }
            read = (now, counter);
        }
        let wake = loop {
            match governor.poll(now) {
                Action::Hold => pump.hold()?,
                Action::Prewarm => pump.prewarm()?,
                Action::Release(reason) => break 'hold Some(reason),
                // Without a hold nothing will happen any more: the cap forbids even a beginning.
                _ if pump.turn_in().is_none() => break 'hold Some(Reason::CapReached),
                Action::WaitUntil(at) => break at.min(end),
                Action::WaitForEvent => break end,
            }
        };
        pump.wait(wake)?;
    };
    pump.release();
    let energy = match (before, pump.energy()?) {
        (Some(before), Some(after)) => Some(after - before),
        _ => None,
    };
    let held = pump.now().since(began);
    Ok(Summary { held, energy, buffers: pump.hold_buffers(), ended_by })
}
