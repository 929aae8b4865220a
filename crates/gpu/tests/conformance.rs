//! What every backend must do, walked over the table: a new backend is covered without a change
//! here. Devices that the machine lacks are named and skipped.

#[macro_use]
mod suite;

use everwarm_gpu::backend::TABLE;
use everwarm_gpu::{Backend, open};
use std::sync::{Mutex, PoisonError};

/// One check at a time: a driver that computes on the CPU shares it with its neighbours.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs `check` on each device there is; on one of them alone if the environment names it in
/// `EVERWARM_DEVICE`.
fn each_device(check: impl Fn(&mut dyn Backend)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let only = std::env::var("EVERWARM_DEVICE").ok();
    let wanted = |id: &str| only.as_deref().is_none_or(|only| only == id);
    let mut checked = 0;
    for found in TABLE.iter().flat_map(|entry| (entry.list)()).filter(|f| wanted(&f.id)) {
        match found.state {
            Ok(_) => {
                let mut backend = open(&found.id).expect("a listed device opens");
                check(backend.as_mut());
                checked += 1;
            }
            Err(why) => eprintln!("{} is skipped: {why}", found.id),
        }
    }
    assert!(checked > 0, "at least the simulator is always there, unless {only:?} was asked for");
}

suite!(each_device);

#[test]
fn an_unknown_device_is_refused_with_what_exists() {
    let check = |id: &str, expected: &[&str]| {
        let error = open(id).map(|_| ()).unwrap_err().to_string();
        for part in expected {
            assert!(error.contains(part), "`{error}` names `{part}`");
        }
    };
    check("m2", &["`m2`", "KIND:NAME", "sim:m2"]);
    check("rocm:0", &["`rocm:0`", "no kind `rocm`", "sim:m2"]);
    for entry in TABLE.iter().filter(|entry| entry.hardware) {
        for rest in ["", "x", "-1", "4096", "0 ", "0:0"] {
            let id = format!("{}:{rest}", entry.prefix);
            check(&id, &[&format!("`{id}`"), "sim:m2"]);
        }
    }
    check("sim:m99", &["m99", "m2", "sim:FILE.toml"]);
    check("sim:none.toml", &["none.toml", "can't be read"]);
    for entry in TABLE.iter().filter(|entry| entry.hardware) {
        for found in (entry.list)() {
            if let Err(why) = found.state {
                check(&found.id, &[&why, "sim:m2"]);
            }
        }
    }
}
