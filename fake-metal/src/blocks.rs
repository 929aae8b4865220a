//! Blocks: closures as Objective-C passes them, copied and counted.
//!
//! The layout is the public one of the blocks ABI. A block begins on the caller's stack; a copy on
//! the heap is counted in the field that the ABI reserves for it.

use crate::classes::Class;
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicIsize, Ordering};

/// The class of blocks on the stack.
#[unsafe(export_name = "_NSConcreteStackBlock")]
pub static STACK: Class = Class::fixed(null(), null(), c"__NSStackBlock", 0);

/// The class of blocks without captures.
#[unsafe(export_name = "_NSConcreteGlobalBlock")]
pub static GLOBAL: Class = Class::fixed(null(), null(), c"__NSGlobalBlock", 0);

const ON_HEAP: i32 = 1 << 24;
const HAS_HELPERS: i32 = 1 << 25;
const IS_GLOBAL: i32 = 1 << 28;

#[repr(C)]
struct Block {
    isa: *const Class,
    flags: i32,
    holders: AtomicI32,
    code: *const c_void,
    descriptor: *const Descriptor,
}

#[repr(C)]
struct Descriptor {
    reserved: usize,
    size: usize,
    // SAFETY: whoever calls the helpers has checked the flag that says that they are there.
    copy: Option<unsafe extern "C-unwind" fn(*mut c_void, *const c_void)>,
    dispose: Option<unsafe extern "C-unwind" fn(*mut c_void)>,
}

/// Blocks on the heap.
static ALIVE: AtomicIsize = AtomicIsize::new(0);

/// How many blocks there are on the heap.
pub fn alive() -> isize {
    ALIVE.load(Ordering::SeqCst)
}

fn layout(descriptor: &Descriptor) -> Layout {
    Layout::from_size_align(descriptor.size, 16).expect("a small size")
}

/// The block at an address and its descriptor.
fn block<'a>(at: *const c_void) -> (&'a Block, &'a Descriptor) {
    // SAFETY: callers pass blocks, which begin so and live through the call.
    let block = unsafe { &*at.cast::<Block>() };
    // SAFETY: as above; a descriptor is constant.
    (block, unsafe { &*block.descriptor })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn _Block_copy(at: *const c_void) -> *mut c_void {
    if at.is_null() {
        return null_mut();
    }
    let (old, descriptor) = block(at);
    if old.flags & IS_GLOBAL != 0 {
        return at.cast_mut();
    }
    if old.flags & ON_HEAP != 0 {
        old.holders.fetch_add(1, Ordering::SeqCst);
        return at.cast_mut();
    }
    // SAFETY: a block is as long as its descriptor says, and not empty.
    let new = unsafe {
        let new = alloc(layout(descriptor));
        assert!(!new.is_null(), "out of memory");
        new.copy_from_nonoverlapping(at.cast(), descriptor.size);
        let head = &mut *new.cast::<Block>();
        head.flags |= ON_HEAP;
        head.holders = AtomicI32::new(1);
        new
    };
    if let Some(copy) = descriptor.copy.filter(|_| old.flags & HAS_HELPERS != 0) {
        // SAFETY: it is the block's own helper, for a copy of itself.
        unsafe { copy(new.cast(), at) };
    }
    ALIVE.fetch_add(1, Ordering::SeqCst);
    new.cast()
}

#[unsafe(no_mangle)]
extern "C-unwind" fn _Block_release(at: *const c_void) {
    if at.is_null() {
        return;
    }
    let (old, descriptor) = block(at);
    if old.flags & ON_HEAP == 0 || old.holders.fetch_sub(1, Ordering::SeqCst) > 1 {
        return;
    }
    if let Some(dispose) = descriptor.dispose.filter(|_| old.flags & HAS_HELPERS != 0) {
        // SAFETY: it is the block's own helper, at its end.
        unsafe { dispose(at.cast_mut()) };
    }
    ALIVE.fetch_sub(1, Ordering::SeqCst);
    // SAFETY: it was allocated so by `_Block_copy`, and nobody holds it.
    unsafe { dealloc(at.cast_mut().cast(), layout(descriptor)) };
}
