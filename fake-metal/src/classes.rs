//! Classes, selectors and the look-up of methods: what objc2 asks of a runtime.
//!
//! A class has a name, a parent, methods, and the size of an object; its own class (its metaclass)
//! has the methods of the class itself. Nothing is ever removed. Protocols are not known: objc2 then
//! leaves out its check that all required methods are there.

use crate::foundation;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, Once};

/// An address of code; what it takes is in the method's encoding.
pub type Code = *const c_void;

/// A selector: the address of its one text.
pub type Selector = *const c_char;

/// A class or a metaclass.
#[repr(C)]
pub struct Class {
    /// Its metaclass; null for a metaclass.
    isa: *const Class,
    parent: *const Class,
    name: *const c_char,
    /// Bytes of an object.
    size: AtomicUsize,
    methods: Mutex<BTreeMap<usize, &'static Method>>,
    variables: Mutex<Vec<&'static Variable>>,
}

// SAFETY: the pointers are to what is never freed and never changes; the rest is locked.
unsafe impl Sync for Class {}

/// A method.
pub struct Method {
    selector: Selector,
    types: CString,
    code: Code,
}

// SAFETY: the pointers are to constant texts and to code.
unsafe impl Sync for Method {}

/// A variable of each object of a class.
pub struct Variable {
    name: CString,
    types: CString,
    offset: isize,
}

impl Class {
    /// A class that stands in this program. The metaclass of `NSObject` has no parent here: no
    /// class is sent a message of an object's.
    pub const fn fixed(
        isa: *const Class,
        parent: *const Class,
        name: &'static CStr,
        size: usize,
    ) -> Class {
        Class {
            isa,
            parent,
            name: name.as_ptr(),
            size: AtomicUsize::new(size),
            methods: Mutex::new(BTreeMap::new()),
            variables: Mutex::new(Vec::new()),
        }
    }

    /// Its name.
    pub fn name(&self) -> String {
        text(self.name).to_string_lossy().into_owned()
    }

    /// Bytes of an object.
    pub fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// True for the class of a class.
    pub fn is_meta(&self) -> bool {
        self.isa.is_null()
    }

    /// Gives it a method.
    pub fn add(&self, name: &CStr, types: &CStr, code: Code) {
        let selector = selector(name);
        let method = Box::leak(Box::new(Method { selector, types: types.to_owned(), code }));
        self.methods.lock().unwrap().insert(selector as usize, method);
    }

    fn find(&self, selector: Selector) -> Option<&'static Method> {
        let mut next = Some(self);
        while let Some(class) = next {
            if let Some(method) = class.methods.lock().unwrap().get(&(selector as usize)) {
                return Some(method);
            }
            next = known(class.parent);
        }
        None
    }

    /// The code that a message to one of its objects runs.
    ///
    /// # Panics
    /// If there is none, with the message's name.
    pub fn code(&self, selector: Selector) -> Code {
        let found = self.find(selector).map(|method| method.code);
        found.unwrap_or_else(|| {
            let sign = if self.is_meta() { '+' } else { '-' };
            let message = text(selector).to_string_lossy();
            panic!("{sign}[{} {message}]: unrecognized selector", self.name())
        })
    }
}

/// The class at an address, none at null.
pub(crate) fn known(class: *const Class) -> Option<&'static Class> {
    // SAFETY: objc2 has its classes from here, where none is ever freed.
    unsafe { class.as_ref() }
}

/// The text at an address.
pub(crate) fn text<'a>(at: *const c_char) -> &'a CStr {
    // SAFETY: the runtime's callers pass texts that end with a zero.
    unsafe { CStr::from_ptr(at) }
}

static CLASSES: Mutex<BTreeMap<CString, usize>> = Mutex::new(BTreeMap::new());
static SELECTORS: Mutex<BTreeMap<CString, usize>> = Mutex::new(BTreeMap::new());

/// The selector of that name.
pub fn selector(name: &CStr) -> Selector {
    let mut all = SELECTORS.lock().unwrap();
    if let Some(selector) = all.get(name) {
        return *selector as Selector;
    }
    let selector = name.to_owned().into_raw() as usize;
    all.insert(name.to_owned(), selector);
    selector as Selector
}

/// Puts a class on the list.
pub fn register(class: &'static Class) {
    CLASSES.lock().unwrap().insert(text(class.name).to_owned(), std::ptr::from_ref(class) as usize);
}

/// Fills in the classes that stand in this program, once.
pub fn ready() {
    static READY: Once = Once::new();
    READY.call_once(foundation::fill_in);
}

#[unsafe(no_mangle)]
extern "C" fn sel_registerName(name: *const c_char) -> Selector {
    selector(text(name))
}

#[unsafe(no_mangle)]
extern "C" fn sel_getName(selector: Selector) -> *const c_char {
    selector
}

#[unsafe(no_mangle)]
extern "C" fn sel_isEqual(one: Selector, other: Selector) -> bool {
    one == other
}

#[unsafe(no_mangle)]
extern "C" fn objc_getClass(name: *const c_char) -> *const Class {
    ready();
    CLASSES.lock().unwrap().get(text(name)).map_or(null(), |class| *class as *const Class)
}

#[unsafe(no_mangle)]
extern "C" fn class_getName(class: *const Class) -> *const c_char {
    known(class).map_or(c"nil".as_ptr(), |class| class.name)
}

#[unsafe(no_mangle)]
extern "C" fn class_isMetaClass(class: *const Class) -> bool {
    known(class).is_some_and(Class::is_meta)
}

#[unsafe(no_mangle)]
extern "C" fn class_getSuperclass(class: *const Class) -> *const Class {
    known(class).map_or(null(), |class| class.parent)
}

#[unsafe(no_mangle)]
extern "C" fn class_getInstanceSize(class: *const Class) -> usize {
    known(class).map_or(0, Class::size)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn class_getInstanceMethod(
    class: *const Class,
    selector: Selector,
) -> *const Method {
    ready();
    let found = known(class).and_then(|class| class.find(selector));
    found.map_or(null(), std::ptr::from_ref)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn class_getClassMethod(
    class: *const Class,
    selector: Selector,
) -> *const Method {
    class_getInstanceMethod(known(class).map_or(null(), |class| class.isa), selector)
}

#[unsafe(no_mangle)]
extern "C-unwind" fn class_respondsToSelector(class: *const Class, selector: Selector) -> bool {
    !class_getInstanceMethod(class, selector).is_null()
}

/// The method at an address.
fn method(at: *const Method) -> &'static Method {
    // SAFETY: objc2 has its methods from here, where none is ever freed.
    unsafe { &*at }
}

#[unsafe(no_mangle)]
extern "C" fn method_getTypeEncoding(at: *const Method) -> *const c_char {
    method(at).types.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn method_getName(at: *const Method) -> Selector {
    method(at).selector
}

#[unsafe(no_mangle)]
extern "C" fn method_getImplementation(at: *const Method) -> Code {
    method(at).code
}

#[unsafe(no_mangle)]
extern "C" fn objc_allocateClassPair(
    parent: *const Class,
    name: *const c_char,
    _extra: usize,
) -> *mut Class {
    ready();
    if !objc_getClass(name).is_null() {
        return null_mut();
    }
    let name: &'static CStr = Box::leak(text(name).to_owned().into_boxed_c_str());
    let above = known(parent).expect("a class has a parent");
    let meta = Box::leak(Box::new(Class::fixed(null(), above.isa, name, 0)));
    Box::into_raw(Box::new(Class::fixed(meta, parent, name, above.size())))
}

#[unsafe(no_mangle)]
extern "C" fn objc_registerClassPair(class: *mut Class) {
    register(known(class).expect("it has just been made"));
}

#[unsafe(no_mangle)]
extern "C" fn objc_disposeClassPair(_class: *mut Class) {}

#[unsafe(no_mangle)]
extern "C" fn class_addMethod(
    class: *mut Class,
    selector: Selector,
    code: Code,
    types: *const c_char,
) -> bool {
    known(class).expect("a class").add(text(selector), text(types), code);
    true
}

#[unsafe(no_mangle)]
extern "C" fn class_addIvar(
    class: *mut Class,
    name: *const c_char,
    size: usize,
    alignment_log2: u8,
    types: *const c_char,
) -> bool {
    let class = known(class).expect("a class");
    let offset = class.size().next_multiple_of(1 << alignment_log2);
    class.size.store((offset + size).next_multiple_of(16), Ordering::Relaxed);
    let (name, types) = (text(name).to_owned(), text(types).to_owned());
    let variable = Variable { name, types, offset: offset as isize };
    class.variables.lock().unwrap().push(Box::leak(Box::new(variable)));
    true
}

#[unsafe(no_mangle)]
extern "C" fn class_getInstanceVariable(
    class: *const Class,
    name: *const c_char,
) -> *const Variable {
    let mut next = known(class);
    while let Some(class) = next {
        let variables = class.variables.lock().unwrap();
        if let Some(found) = variables.iter().find(|v| v.name.as_c_str() == text(name)) {
            return *found;
        }
        next = known(class.parent);
    }
    null()
}

/// The variable at an address.
fn variable(at: *const Variable) -> &'static Variable {
    // SAFETY: objc2 has its variables from here, where none is ever freed.
    unsafe { &*at }
}

#[unsafe(no_mangle)]
extern "C" fn ivar_getOffset(at: *const Variable) -> isize {
    variable(at).offset
}

#[unsafe(no_mangle)]
extern "C" fn ivar_getName(at: *const Variable) -> *const c_char {
    variable(at).name.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ivar_getTypeEncoding(at: *const Variable) -> *const c_char {
    variable(at).types.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn objc_getProtocol(_name: *const c_char) -> *const c_void {
    null()
}

#[unsafe(no_mangle)]
extern "C" fn class_addProtocol(_class: *mut Class, _protocol: *const c_void) -> bool {
    true
}

#[unsafe(no_mangle)]
extern "C" fn class_conformsToProtocol(_class: *const Class, _protocol: *const c_void) -> bool {
    true
}

#[unsafe(no_mangle)]
extern "C" fn protocol_getName(_protocol: *const c_void) -> *const c_char {
    c"?".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn protocol_copyMethodDescriptionList(
    _protocol: *const c_void,
    _required: bool,
    _instance: bool,
    count: *mut c_uint,
) -> *mut c_void {
    if !count.is_null() {
        // SAFETY: it is the caller's place for a number.
        unsafe { count.write(0) };
    }
    null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn objc_sync_enter(_object: *mut c_void) -> c_int {
    0
}
