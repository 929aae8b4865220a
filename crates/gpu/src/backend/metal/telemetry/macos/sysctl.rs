//! Texts of sysctl.

use std::ffi::CStr;

/// The text called `name`; `None` if there is none.
pub fn text(name: &CStr) -> Option<String> {
    let mut length = 0;
    // SAFETY: the name ends with a zero; without a buffer only the length is written.
    let found = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            std::ptr::null_mut(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    if found != 0 || length == 0 {
        return None;
    }
    let mut bytes = vec![0u8; length];
    // SAFETY: the buffer has as many bytes as `length` says, and no more are written.
    let found = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            bytes.as_mut_ptr().cast(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    bytes.truncate(length);
    let text = CStr::from_bytes_until_nul(&bytes).ok().filter(|_| found == 0)?;
    Some(text.to_string_lossy().trim().to_owned()).filter(|text| !text.is_empty())
}
