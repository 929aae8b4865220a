//! Properties of the IORegistry's entries, by an entry's name or class.

use crate::backend::metal::telemetry::tree::Properties;
use objc2_core_foundation::{
    CFAllocator, CFData, CFDictionary, CFMutableDictionary, CFNumber, CFRetained, CFString, CFType,
};
use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

/// `mach_port_t`, and what IOKit makes of it.
type Port = u32;
/// `kIOMainPortDefault`, which is `MACH_PORT_NULL`.
const MAIN_PORT: Port = 0;

#[link(name = "IOKit", kind = "framework")]
// SAFETY: names and types as in IOKit's headers; each says who owns what.
unsafe extern "C" {
    /// The dictionary is the caller's.
    fn IOServiceNameMatching(name: *const c_char) -> Option<NonNull<CFMutableDictionary>>;
    /// The dictionary is the caller's.
    fn IOServiceMatching(class: *const c_char) -> Option<NonNull<CFMutableDictionary>>;
    /// Takes the caller's reference on `matching`, whatever it returns.
    fn IOServiceGetMatchingServices(
        main_port: Port,
        matching: NonNull<CFMutableDictionary>,
        existing: *mut Port,
    ) -> i32;
    /// The object is the caller's; 0 at the end.
    fn IOIteratorNext(iterator: Port) -> Port;
    fn IOObjectRelease(object: Port) -> i32;
    /// On success the dictionary is the caller's.
    fn IORegistryEntryCreateCFProperties(
        entry: Port,
        properties: *mut Option<NonNull<CFMutableDictionary>>,
        allocator: Option<&CFAllocator>,
        options: u32,
    ) -> i32;
}

/// A reference on an object of IOKit, given back at its end.
struct Object(Port);

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the reference is ours and given back this once.
        unsafe { IOObjectRelease(self.0) };
    }
}

/// The properties of an entry. The keys of such dictionaries are texts, their values any objects.
type Dictionary = CFDictionary<CFString, CFType>;

/// Byte properties of the first entry called `name` with one that begins with `with`.
///
/// # Errors
/// Says which entry is missing.
pub fn node(name: &CStr, with: &str) -> Result<Properties, String> {
    // SAFETY: the name ends with a zero.
    let matching = unsafe { IOServiceNameMatching(name.as_ptr()) };
    let found = entries(matching)
        .iter()
        .map(bytes_of)
        .find(|found| found.keys().any(|key| key.starts_with(with)));
    found.ok_or_else(|| {
        let name = name.to_string_lossy();
        format!("the IORegistry has no entry `{name}` with properties `{with}…`")
    })
}

/// A number among the properties of the first object of a class that has it.
pub fn number(class: &CStr, property: &str) -> Option<i64> {
    // SAFETY: the name ends with a zero.
    let matching = unsafe { IOServiceMatching(class.as_ptr()) };
    let key = CFString::from_str(property);
    entries(matching)
        .iter()
        .find_map(|properties| properties.get(&key)?.downcast::<CFNumber>().ok()?.as_i64())
}

/// The properties of all entries that match; takes the reference on `matching`.
fn entries(matching: Option<NonNull<CFMutableDictionary>>) -> Vec<CFRetained<Dictionary>> {
    let Some(matching) = matching else { return Vec::new() };
    let mut iterator = 0;
    // SAFETY: the reference on `matching` is ours, and given away here.
    let found = unsafe { IOServiceGetMatchingServices(MAIN_PORT, matching, &raw mut iterator) };
    if found != 0 || iterator == 0 {
        return Vec::new();
    }
    let iterator = Object(iterator);
    // SAFETY: the iterator is alive; each object that it gives is ours.
    let next = || Some(Object(unsafe { IOIteratorNext(iterator.0) }));
    std::iter::from_fn(next)
        .take_while(|entry| entry.0 != 0)
        .filter_map(|e| properties(&e))
        .collect()
}

fn properties(entry: &Object) -> Option<CFRetained<Dictionary>> {
    let mut properties = None;
    // SAFETY: the entry is alive, and one pointer is written to.
    let made = unsafe { IORegistryEntryCreateCFProperties(entry.0, &raw mut properties, None, 0) };
    let properties: NonNull<CFMutableDictionary> = properties.filter(|_| made == 0)?;
    // SAFETY: it was created for us, is a dictionary with texts as keys, and nobody changes it.
    Some(unsafe { CFRetained::from_raw(properties.cast::<Dictionary>()) })
}

fn bytes_of(properties: &CFRetained<Dictionary>) -> Properties {
    let (keys, values) = properties.to_vecs();
    let bytes = keys.into_iter().zip(values).filter_map(|(key, value)| {
        Some((key.to_string(), value.downcast::<CFData>().ok()?.to_vec()))
    });
    bytes.collect()
}
