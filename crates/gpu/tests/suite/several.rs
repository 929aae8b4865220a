//! Checks with more than one queue, handle, thread or process.

use super::{fma, land};
use everwarm_gpu::{Backend, Completion, Monotonic, open};
use everwarm_units::Span;
use everwarm_workload::Kernel;
use std::process::{Command, Stdio};

/// Names the device to the other process of [`two_processes_work_at_once`].
const DEVICE: &str = "EVERWARM_TEST_DEVICE";

/// Work of one queue, looked at in commit order.
fn in_order(landed: &[&Completion]) {
    for pair in landed.windows(2) {
        assert!(pair[0].ticket < pair[1].ticket, "{pair:?} out of order");
        assert!(pair[0].gpu_end <= pair[1].gpu_start, "{pair:?} overlap");
    }
}

/// A little work through a handle of one's own.
fn some_work(id: &str) {
    let mut backend = open(id).unwrap();
    let queue = backend.queue().unwrap();
    let kernel = fma(backend.as_ref(), Span::us(500));
    for _ in 0..4 {
        for _ in 0..4 {
            backend.commit(queue, &kernel).unwrap();
        }
        let landed = land(backend.as_mut(), 4);
        in_order(&landed.iter().collect::<Vec<_>>());
        assert!(landed.iter().all(|c| c.committed <= c.gpu_start && c.gpu_end <= c.observed));
    }
}

pub fn queues_keep_their_own_order(backend: &mut dyn Backend) {
    let queues = [backend.queue().unwrap(), backend.queue().unwrap()];
    let kernels = [fma(backend, Span::us(300)), fma(backend, Span::us(900))];
    for n in 0..12 {
        backend.commit(queues[n % 2], &kernels[n % 2]).unwrap();
    }
    let landed = land(backend, 12);
    for queue in queues {
        let of_it: Vec<_> = landed.iter().filter(|c| c.queue == queue).collect();
        assert_eq!(of_it.len(), 6);
        in_order(&of_it);
    }
    assert!(landed.windows(2).all(|pair| pair[0].observed <= pair[1].observed), "{landed:?}");
}

pub fn handles_share_one_time_base(backend: &mut dyn Backend) {
    let mut other = open(&backend.device().id).unwrap();
    let (Some(epoch), Some(other_epoch)) = (backend.epoch(), other.epoch()) else {
        assert!(backend.device().virtual_time, "a device by the wall clock says when it began");
        return;
    };
    let kernel = fma(backend, Span::us(300));
    let work = |handle: &mut dyn Backend, epoch: Monotonic| {
        let queue = handle.queue().unwrap();
        handle.commit(queue, &kernel).unwrap();
        let c = land(handle, 1)[0];
        [c.committed, c.gpu_start, c.gpu_end, c.observed].map(|at| epoch.at(at))
    };
    let before = Monotonic::now();
    for _ in 0..3 {
        let first = work(backend, epoch);
        let second = work(other.as_mut(), other_epoch);
        assert!(before <= first[0], "{before:?} {first:?}");
        assert!(first[3] <= second[0], "what was seen before came before: {first:?} {second:?}");
        assert!(first[2] <= second[1], "and ran before: {first:?} {second:?}");
        assert!(second[3] <= Monotonic::now());
    }
}

pub fn two_threads_work_at_once(backend: &mut dyn Backend) {
    let id = &backend.device().id;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| some_work(id));
        }
    });
}

pub fn two_processes_work_at_once(backend: &mut dyn Backend) {
    let id = backend.device().id.clone();
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["another_process", "--test-threads=1"])
        .env(DEVICE, &id)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the test program starts itself");
    while other.try_wait().unwrap().is_none() {
        some_work(&id);
    }
    let output = other.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// What the other process of [`two_processes_work_at_once`] does; on its own it does nothing.
pub fn another_process() {
    if let Ok(id) = std::env::var(DEVICE) {
        some_work(&id);
    }
}

pub fn a_handle_that_ends_leaves_the_others_alone(backend: &mut dyn Backend) {
    let queue = backend.queue().unwrap();
    let long = fma(backend, Span::ms(30));
    for _ in 0..4 {
        backend.commit(queue, &long).unwrap();
    }
    let mut other = open(&backend.device().id).unwrap();
    let other_queue = other.queue().unwrap();
    for _ in 0..4 {
        other.commit(other_queue, &long).unwrap();
    }
    let began = Monotonic::now();
    drop(other);
    let took = Monotonic::now().since(began);
    assert!(took < Span::s(8), "ending with work in flight took {took}");
    assert_eq!(land(backend, 4).len(), 4);
    backend.commit(queue, &Kernel::Empty).unwrap();
    land(backend, 1);
}
