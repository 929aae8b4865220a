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
    settle();
    let before = left();
    let mut backend = open("metal:0").expect("the fake device opens");
    check(backend.as_mut());
    drop(backend);
    settle();
    assert_eq!(left(), before, "objects and blocks, after and before");
    assert_eq!(fake_metal::rules::all(), [], "rules broken");
}

/// Objects and blocks that there are.
fn left() -> (isize, isize) {
    (fake_metal::objects::alive(), fake_metal::blocks::alive())
}

/// Lets what is in flight land.
fn settle() {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(2);
    let mut last = left();
    let mut steady = 0;
    while steady < 10 && std::time::Instant::now() < until {
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        steady = if left() == last { steady + 1 } else { 0 };
        last = left();
    }
}

suite!(on_the_fake);
