//! The few classes that are no protocols: `NSObject`, `NSString`, `NSError`, `MTLCompileOptions`.

use crate::classes::{Class, Code, Selector, register};
use crate::objects::{Id, end, itself, make, make_and_init, release, retain};
use std::ffi::{c_char, c_int};
use std::ptr::{null, null_mut};

static ROOT_META: Class = Class::fixed(null(), null(), c"NSObject", 0);
static STRING_META: Class = Class::fixed(null(), &raw const ROOT_META, c"NSString", 0);
static ERROR_META: Class = Class::fixed(null(), &raw const ROOT_META, c"NSError", 0);
static OPTIONS_META: Class = Class::fixed(null(), &raw const ROOT_META, c"MTLCompileOptions", 0);

/// The root of all classes.
#[unsafe(export_name = "_OBJC_CLASS_NSObject")]
pub static ROOT: Class = Class::fixed(&raw const ROOT_META, null(), c"NSObject", 16);

#[unsafe(export_name = "_OBJC_CLASS_NSString")]
static STRING: Class =
    Class::fixed(&raw const STRING_META, &raw const ROOT, c"NSString", size_of::<Text>());

#[unsafe(export_name = "_OBJC_CLASS_NSError")]
static ERROR: Class = Class::fixed(&raw const ERROR_META, &raw const ROOT, c"NSError", 16);

#[unsafe(export_name = "_OBJC_CLASS_MTLCompileOptions")]
static OPTIONS: Class =
    Class::fixed(&raw const OPTIONS_META, &raw const ROOT, c"MTLCompileOptions", 16);

/// An `NSString`.
#[repr(C)]
struct Text {
    isa: *const Class,
    length: usize,
    /// With a zero at its end.
    bytes: *mut u8,
}

/// Gives the classes their methods.
pub fn fill_in() {
    for class in [&ROOT, &STRING, &ERROR, &OPTIONS] {
        register(class);
    }
    ROOT_META.add(c"alloc", c"@@:", make as Code);
    ROOT_META.add(c"new", c"@@:", make_and_init as Code);
    ROOT_META.add(c"class", c"#@:", itself as Code);
    ROOT.add(c"init", c"@@:", itself as Code);
    ROOT.add(c"retain", c"@@:", retain as Code);
    ROOT.add(c"release", c"v@:", release as Code);
    ROOT.add(c"dealloc", c"v@:", end as Code);
    STRING.add(c"initWithBytes:length:encoding:", c"@@:r^vQi", string_init as Code);
    STRING.add(c"UTF8String", c"r*@:", string_utf8 as Code);
    STRING.add(c"lengthOfBytesUsingEncoding:", c"Q@:i", string_length as Code);
    STRING.add(c"dealloc", c"v@:", string_end as Code);
    OPTIONS.add(c"setFastMathEnabled:", c"v@:C", options_set as Code);
}

fn string(object: Id) -> &'static mut Text {
    // SAFETY: these methods are sent to strings, whose objects are so laid out; one thread makes a
    // string or ends it, and others only read.
    unsafe { &mut *object.cast::<Text>() }
}

extern "C-unwind" fn string_init(
    object: Id,
    _selector: Selector,
    bytes: *const u8,
    length: usize,
    encoding: c_int,
) -> Id {
    assert_eq!(encoding, 4, "UTF-8 alone is known");
    // SAFETY: the caller says so many bytes; a null comes with none of them.
    let from = if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(bytes, length) } };
    let copy: Box<[u8]> = from.iter().copied().chain([0]).collect();
    let text = string(object);
    (text.length, text.bytes) = (length, Box::into_raw(copy).cast());
    object
}

extern "C-unwind" fn string_utf8(object: Id, _selector: Selector) -> *const c_char {
    string(object).bytes.cast()
}

extern "C-unwind" fn string_length(object: Id, _selector: Selector, _encoding: c_int) -> usize {
    string(object).length
}

extern "C-unwind" fn string_end(object: Id, selector: Selector) {
    let text = string(object);
    let bytes = std::mem::replace(&mut text.bytes, null_mut());
    if !bytes.is_null() {
        let whole = std::ptr::slice_from_raw_parts_mut(bytes, text.length + 1);
        // SAFETY: `string_init` made it so.
        drop(unsafe { Box::from_raw(whole) });
    }
    end(object, selector);
}

extern "C-unwind" fn options_set(_object: Id, _selector: Selector, _on: u8) {}
