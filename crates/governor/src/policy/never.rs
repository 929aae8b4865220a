//! Never warm.
//!
//! The trade-off taken to one end: no energy, and every request after half a second of idle pays
//! the whole ramp. It is the control of every comparison, and what to choose where staying warm
//! buys nothing (a GPU whose clock does not fall while a context is open).

use super::{Policy, Traffic, Wish};
use crate::Event;
use everwarm_units::Instant;

pub(super) const ABOUT: &str = "never warms: the control";

pub(super) struct Never;

impl Policy for Never {
    fn on_event(&mut self, _now: Instant, _event: &Event, _traffic: Traffic) {}

    fn wish(&mut self, _now: Instant, _traffic: Traffic) -> Wish {
        Wish::default()
    }
}
