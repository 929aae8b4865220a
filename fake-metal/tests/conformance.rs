//! The conformance suite of all backends, on the unchanged Metal backend and the fake Metal; and
//! that afterwards nothing is left and no rule was broken.

extern crate fake_metal;

#[macro_use]
#[path = "../../crates/gpu/tests/suite/mod.rs"]
mod suite;

use everwarm_gpu::{Backend, open};
use std::sync::{Mutex, PoisonError};

/// One check at a time: they share the device, and what is left is counted.
static ALONE: Mutex<()> = Mutex::new(());

fn on_the_fake(check: impl Fn(&mut dyn Backend)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // The first handle of a process measures; what it makes stays with the process.
    drop(open("metal:0").expect("the fake device opens"));
    fake_metal::gpu::wait_until_idle();
    let before = left();
    let mut backend = open("metal:0").expect("the fake device opens");
    check(backend.as_mut());
    drop(backend);
    fake_metal::gpu::wait_until_idle();
    assert_eq!(left(), before, "objects and blocks, after and before");
    assert_eq!(fake_metal::rules::all(), [], "rules broken");
}

/// Objects and blocks that there are.
fn left() -> (isize, isize) {
    (fake_metal::objects::alive(), fake_metal::blocks::alive())
}

suite!(on_the_fake);
