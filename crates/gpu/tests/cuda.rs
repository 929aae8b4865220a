//! The CUDA backend, unchanged, on a driver without a GPU: the conformance suite.

#![cfg(target_os = "linux")]

mod cuda_fake;
#[macro_use]
mod suite;

use cuda_fake::{build, fake};
use everwarm_gpu::{Backend, open};
use std::sync::{Mutex, OnceLock, PoisonError};

static ALONE: Mutex<()> = Mutex::new(());

fn on_the_fake(check: impl Fn(&mut dyn Backend)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fake = fake();
    other_processes_find_it();
    let mut backend = open("cuda:0").expect("the fake has a device");
    check(backend.as_mut());
    drop(backend);
    assert_eq!(fake.broken(), "");
    assert_eq!(fake.held(), 0, "all is given back");
}

/// A process that the suite starts loads the libraries by their usual names.
fn other_processes_find_it() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let folder = build(&[]);
        // SAFETY: the tests of this program run one at a time, and none reads the environment.
        unsafe { std::env::set_var("LD_LIBRARY_PATH", folder) };
    });
}

suite!(on_the_fake);
