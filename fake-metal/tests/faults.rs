//! Every fault of faults.rs is found, as what it is, when the same checks run that the unchanged
//! backend passes; without a fault they pass here too. Each runs in a process of its own.

// The name under which the checks know the crate.
extern crate everwarm_gpu_faulty as everwarm_gpu;
extern crate fake_metal;

#[allow(dead_code)]
#[path = "../faulty/faults.rs"]
mod faults;
#[allow(dead_code, unused_macros)]
#[path = "../../crates/gpu/tests/suite/mod.rs"]
mod suite;
#[allow(dead_code)]
mod troubles;

use everwarm_gpu::{Backend, open};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Says which fault a process has.
const FAULT: &str = "EVERWARM_FAULT";

/// What the processes run: enough to meet every fault.
#[test]
fn checks() {
    if std::env::var_os(FAULT).is_none() {
        return; // The test below starts it again.
    }
    let left = || (fake_metal::objects::alive(), fake_metal::blocks::alive());
    drop(open("metal:0").unwrap());
    fake_metal::gpu::wait_until_idle();
    let before = left();
    let checks: [fn(&mut dyn Backend); 6] = [
        suite::a_queue_runs_in_commit_order_on_one_time_base,
        suite::every_kernel_runs,
        suite::work_beyond_the_memory_is_refused,
        suite::queues_keep_their_own_order,
        suite::buffers_in_flight_are_limited_and_the_limit_is_told,
        suite::a_handle_can_be_dropped_with_work_in_flight,
    ];
    troubles::too_many();
    for check in checks {
        check(open("metal:0").unwrap().as_mut());
    }
    troubles::overtaking();
    troubles::out_of_memory();
    troubles::lost();
    fake_metal::gpu::wait_until_idle();
    assert_eq!(left(), before, "objects and blocks, after and before");
    assert_eq!(fake_metal::rules::all(), [], "rules broken");
}

/// Runs the checks with a fault; whether they passed, and what they said.
fn run(fault: &str) -> (bool, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["checks", "--exact", "--nocapture", "--test-threads=1"])
        .env(FAULT, fault)
        .stdin(Stdio::null())
        .output()
        .expect("the test program starts itself");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn without_a_fault_the_checks_pass() {
    let (passed, said) = run("none");
    assert!(passed && said.contains("1 passed"), "{said}");
}

#[test]
fn each_fault_is_found() {
    let left = Mutex::new(faults::ALL.iter());
    let missed = Mutex::new(Vec::new());
    let take = || left.lock().unwrap().next();
    let worker = || {
        while let Some(fault) = take() {
            let (passed, said) = run(fault.name);
            if passed || !said.contains(fault.found_as) {
                let verdict = if passed { "passed" } else { "failed otherwise" };
                let end: String = said.lines().take(12).map(|line| format!("  {line}\n")).collect();
                let wanted = fault.found_as;
                missed
                    .lock()
                    .unwrap()
                    .push(format!("{}: {verdict}, not `{wanted}`\n{end}", fault.name));
            }
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(worker))));
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{} of {}:\n{}", missed.len(), faults::ALL.len(), missed.join("\n"));
}
