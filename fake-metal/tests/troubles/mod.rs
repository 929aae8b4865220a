//! What a healthy device can't be asked: failures, lost devices, handlers that overtake each other.
//! Each check leaves the fake as it was.

use everwarm_gpu::{Backend, Error, open};
use everwarm_units::Span;
use everwarm_workload::Kernel;
use fake_metal::{device, gpu};

fn handle() -> Box<dyn Backend> {
    open("metal:0").expect("the fake device opens")
}

/// The next completion, or the error.
fn next(backend: &mut dyn Backend) -> Result<everwarm_gpu::Completion, Error> {
    let deadline = backend.now() + Span::s(5);
    Ok(backend.wait(deadline)?.expect("it comes within 5 s"))
}

/// A device that was lost says why, again and again.
pub fn lost() {
    let mut backend = handle();
    let queue = backend.queue().unwrap();
    gpu::next_fails(11, "the device was removed");
    backend.commit(queue, &Kernel::Empty).unwrap();
    let error = next(backend.as_mut()).expect_err("a failure is told");
    assert!(
        matches!(&error, Error::Lost { why, .. } if why.contains("removed (code 11)")),
        "{error}"
    );
    let calls: [Option<Error>; 4] = [
        backend.commit(queue, &Kernel::Empty).err(),
        backend.poll().err(),
        backend.queue().err(),
        backend.counters().err(),
    ];
    assert!(
        calls.iter().all(|e| e.as_ref() == Some(&error)),
        "a lost device stays lost: {calls:?}"
    );
}

/// Without memory a command buffer fails, and the next one may do.
pub fn out_of_memory() {
    let mut backend = handle();
    let queue = backend.queue().unwrap();
    gpu::next_fails(8, "insufficient memory");
    backend.commit(queue, &Kernel::Empty).unwrap();
    backend.commit(queue, &Kernel::Empty).unwrap();
    let error = next(backend.as_mut()).expect_err("a failure is told");
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    next(backend.as_mut()).expect("the second one is well");
    device::fill_up(true);
    let error = backend.commit(queue, &Kernel::Stream { bytes: 1 << 28 });
    device::fill_up(false);
    assert!(matches!(error, Err(Error::Memory { .. })), "{error:?}");
    // Each of its matrices is longer than memory in one piece can be.
    let error = backend.commit(queue, &Kernel::Matmul { n: 20_000 });
    assert!(matches!(error, Err(Error::Unsupported { .. })), "{error:?}");
    backend.commit(queue, &Kernel::Empty).expect("and so is the handle");
    next(backend.as_mut()).unwrap();
}

/// Completions come in commit order though handlers don't.
pub fn overtaking() {
    let mut backend = handle();
    let queue = backend.queue().unwrap();
    gpu::let_handlers_overtake(true);
    let kernel = backend.device().fma(Span::us(500), Kernel::FMA_THREADS);
    let tickets: Vec<_> = (0..8).map(|_| backend.commit(queue, &kernel).unwrap()).collect();
    let landed: Vec<_> = (0..8).map(|_| next(backend.as_mut()).unwrap()).collect();
    gpu::let_handlers_overtake(false);
    assert_eq!(landed.iter().map(|c| c.ticket).collect::<Vec<_>>(), tickets);
    for pair in landed.windows(2) {
        assert!(pair[0].gpu_end <= pair[1].gpu_start, "{pair:?} overlap");
        assert!(pair[0].observed <= pair[1].observed, "{pair:?}");
    }
}

/// More than fit are refused and never wait.
pub fn too_many() {
    let mut backend = handle();
    let queue = backend.queue().unwrap();
    let kernel = backend.device().fma(Span::ms(2), Kernel::FMA_THREADS);
    let refused = (0..100).filter(|_| backend.commit(queue, &kernel).is_err()).count();
    assert_eq!(refused, 100 - backend.device().in_flight_max);
}

/// No device, and stamps of another clock, are said at opening.
pub fn unusable() {
    let why = |expected: &str| {
        let error = open("metal:0").map(drop).expect_err("it can't be opened").to_string();
        assert!(error.contains(expected), "{error}");
    };
    device::hide(true);
    why("finds no GPU");
    device::hide(false);
    for seconds in [-3600.0, 3600.0] {
        gpu::shift_stamps(seconds);
        why("is stamped");
    }
    gpu::shift_stamps(0.0);
    drop(handle());
}
