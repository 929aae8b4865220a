//! The engine's memory is flat: a queue that has reached its depth allocates nothing more.
//!
//! It stands here as counting allocations takes `unsafe`, which core crates do without.

use everwarm_dvfs::Chip;
use everwarm_sim::Machine;
use everwarm_workload::Kernel;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_deep_queue_allocates_nothing() {
    let mut machine = Machine::new(Chip::built_in("m2").unwrap());
    let queues = [machine.open_queue(), machine.open_queue()];
    let mut outstanding = 0;
    let mut run = |buffers: u32| {
        let mut done = 0;
        while done < buffers {
            while outstanding < 1_000 {
                let kernel =
                    Kernel::Fma { iterations: 50 + done % 300, threads: Kernel::FMA_THREADS };
                machine.commit(machine.now(), queues[outstanding as usize % 2], &kernel);
                outstanding += 1;
            }
            let next = machine.next_event().unwrap();
            machine.advance(next);
            while machine.poll().is_some() {
                (outstanding, done) = (outstanding - 1, done + 1);
            }
        }
    };
    // Past every change of the clock, and until each queue has once been as deep as it gets.
    run(20_000);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    run(200_000);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
}
