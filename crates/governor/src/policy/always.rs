//! Always warm.
//!
//! The other end of the trade-off: no request is ever clock-cold, for some 0.6 W day and night
//! (M2). It rests only where the governor makes it rest: at the energy cap, without power, and
//! until the end of a request that was already running when the hold could have begun. The cap is
//! what ends it.

use super::{Policy, Traffic, Wish};
use crate::Event;
use everwarm_units::Instant;

pub(super) const ABOUT: &str = "holds all the time, up to the energy cap";

pub(super) struct Always;

impl Policy for Always {
    fn on_event(&mut self, _now: Instant, _event: &Event, _traffic: Traffic) {}

    fn wish(&mut self, _now: Instant, _traffic: Traffic) -> Wish {
        Wish { hold_until: Some(Instant::FAR_FUTURE), ..Wish::default() }
    }
}
