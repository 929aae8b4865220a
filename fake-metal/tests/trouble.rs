//! The unchanged Metal backend on a fake device in trouble.

extern crate fake_metal;

mod troubles;

use std::sync::{Mutex, PoisonError};

static ALONE: Mutex<()> = Mutex::new(());

fn check(trouble: fn()) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    trouble();
    assert_eq!(fake_metal::rules::all(), [], "rules broken");
}

#[test]
fn a_lost_device_stays_lost() {
    check(troubles::lost);
}

#[test]
fn lack_of_memory_passes() {
    check(troubles::out_of_memory);
}

#[test]
fn handlers_may_overtake_each_other() {
    check(troubles::overtaking);
}

#[test]
fn too_many_are_refused() {
    check(troubles::too_many);
}

#[test]
fn what_can_not_be_used_says_why() {
    check(troubles::unusable);
}
