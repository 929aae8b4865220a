//! Objects: made, counted, put into pools, ended; and the messages to them.
//!
//! An object is never given back to the allocator. What is used or released after its end is
//! therefore found, and not undefined; a test makes some thousand objects of a hundred bytes.

use crate::classes::{Class, Code, Selector, known, ready, selector};
use crate::rules::{Rule, broken};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr::null;
use std::sync::atomic::{AtomicIsize, Ordering};

/// An object, or a class, which is one too.
#[repr(C)]
pub struct Object {
    isa: *const Class,
}

/// An object's address; null is nobody.
pub type Id = *mut Object;

/// Objects that have been made and have not ended.
static ALIVE: AtomicIsize = AtomicIsize::new(0);

/// How many objects there are.
pub fn alive() -> isize {
    ALIVE.load(Ordering::SeqCst)
}

/// In front of each object: how often it is held.
const HEADER: usize = 16;

/// The class of an object; none of nobody, and none of a metaclass.
pub(crate) fn class_of(object: Id) -> Option<&'static Class> {
    // SAFETY: an object begins with its class, and is never given back.
    known(unsafe { object.as_ref() }?.isa)
}

/// True for what is counted: not for nobody, and not for classes.
fn is_counted(object: Id) -> bool {
    class_of(object).is_some_and(|class| !class.is_meta())
}

fn count(object: Id) -> &'static AtomicIsize {
    // SAFETY: `make` has put it in front of the object, and neither is ever given back.
    unsafe { &*object.byte_sub(HEADER).cast::<AtomicIsize>() }
}

/// `alloc`.
pub extern "C-unwind" fn make(class: *const Class, _selector: Selector) -> Id {
    let size = known(class).expect("an object has a class").size();
    let layout = Layout::from_size_align(HEADER + size, 16).expect("a small size");
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) };
    assert!(!start.is_null(), "out of memory");
    // SAFETY: the header and the object lie in the allocation.
    let object = unsafe {
        start.cast::<AtomicIsize>().write(AtomicIsize::new(1));
        let object = start.add(HEADER).cast::<Object>();
        object.write(Object { isa: class });
        object
    };
    ALIVE.fetch_add(1, Ordering::SeqCst);
    object
}

/// `new`.
pub extern "C-unwind" fn make_and_init(class: *const Class, _selector: Selector) -> Id {
    let object = make(class, null());
    send(object, selector(c"init"))
}

/// `init`, and whatever else answers with the object itself.
pub extern "C-unwind" fn itself(object: Id, _selector: Selector) -> Id {
    object
}

/// `dealloc` of `NSObject`: the end.
pub extern "C-unwind" fn end(_object: Id, _selector: Selector) {
    ALIVE.fetch_sub(1, Ordering::SeqCst);
}

/// Sends a message without arguments.
fn send(object: Id, selector: Selector) -> Id {
    let code = objc_msg_lookup(object, selector);
    // SAFETY: such a method takes an object and a selector. One that answers with nothing leaves a
    // meaningless address, which nobody looks at.
    let code: extern "C-unwind" fn(Id, Selector) -> Id = unsafe { std::mem::transmute(code) };
    code(object, selector)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_msg_lookup(object: Id, selector: Selector) -> Code {
    ready();
    if is_counted(object) && count(object).load(Ordering::SeqCst) < 0 {
        broken(Rule::Ownership, format!("a message to {}", describe(object)));
    }
    class_of(object).expect("messages to nil are not used").code(selector)
}

/// A message to the method that the caller's class has from above.
#[repr(C)]
struct Above {
    receiver: Id,
    class: *const Class,
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_msg_lookup_super(above: *const Above, selector: Selector) -> Code {
    // SAFETY: it is the caller's, and lives through the call.
    let above = unsafe { &*above };
    known(above.class).expect("a class").code(selector)
}

#[unsafe(no_mangle)]
extern "C" fn object_getClass(object: Id) -> *const Class {
    ready();
    class_of(object).map_or(null(), std::ptr::from_ref)
}

fn describe(object: Id) -> String {
    let name = class_of(object).map_or("nobody".to_owned(), Class::name);
    format!("an object of {name} that has ended")
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_retain(object: Id) -> Id {
    if is_counted(object) && count(object).fetch_add(1, Ordering::SeqCst) < 1 {
        broken(Rule::Ownership, format!("retain of {}", describe(object)));
    }
    object
}

/// Marks what has ended: far below what any release can reach.
const ENDED: isize = isize::MIN / 2;

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_release(object: Id) {
    if !is_counted(object) {
        return;
    }
    match count(object).fetch_sub(1, Ordering::SeqCst) {
        1 => {
            send(object, selector(c"dealloc"));
            count(object).store(ENDED, Ordering::SeqCst);
        }
        held if held < 1 => broken(Rule::Ownership, format!("release of {}", describe(object))),
        _ => {}
    }
}

/// `retain`, as a message.
pub extern "C-unwind" fn retain(object: Id, _selector: Selector) -> Id {
    objc_retain(object)
}

/// `release`, as a message.
pub extern "C-unwind" fn release(object: Id, _selector: Selector) {
    objc_release(object);
}

/// What the calling thread owes a release, and where its pools begin.
#[derive(Default)]
struct Pools {
    objects: Vec<Id>,
    open: usize,
}

thread_local!(static POOLS: RefCell<Pools> = RefCell::default());

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_autoreleasePoolPush() -> *mut c_void {
    POOLS.with_borrow_mut(|pools| {
        pools.open += 1;
        pools.objects.len() as *mut c_void
    })
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_autoreleasePoolPop(pool: *mut c_void) {
    let owed = POOLS.with_borrow_mut(|pools| {
        pools.open -= 1;
        pools.objects.split_off(pool as usize)
    });
    owed.into_iter().rev().for_each(|object| objc_release(object));
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_autorelease(object: Id) -> Id {
    let in_pool = POOLS.with_borrow_mut(|pools| {
        pools.objects.push(object);
        pools.open > 0
    });
    if !in_pool && is_counted(object) {
        let name = class_of(object).map_or(String::new(), Class::name);
        broken(Rule::Pool, format!("an object of {name} is autoreleased outside of any pool"));
    }
    object
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_autoreleaseReturnValue(object: Id) -> Id {
    objc_autorelease(object)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn objc_retainAutoreleasedReturnValue(object: Id) -> Id {
    objc_retain(object)
}
