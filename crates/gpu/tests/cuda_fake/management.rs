//! The management library: one handle a device, numbers that can be told apart.

use super::{fault, host_ns, text, write, write_text};
use std::ffi::{c_char, c_int, c_uint, c_void};

const NOT_FOUND: c_int = 6;
const NOT_SUPPORTED: c_int = 3;

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> c_int {
    0
}
#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> c_int {
    0
}
#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) -> c_int {
    write_text(to, room as usize, "555.42.06")
}
/// Handles are 1 and 2; as on a machine where an ordinal is no index, device 1 has a UUID that the
/// library does not know (a slice of a GPU).
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, to: *mut *mut c_void) -> c_int {
    match text(uuid).as_str() {
        "GPU-00000000-0000-0000-0000-000000000000" => write(to, 1 as *mut c_void),
        _ => NOT_FOUND,
    }
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    bus_id: *const c_char,
    to: *mut *mut c_void,
) -> c_int {
    match text(bus_id).as_str() {
        "0000:01:00.0" => write(to, 2 as *mut c_void),
        _ => NOT_FOUND,
    }
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetClockInfo(_: *mut c_void, which: c_uint, to: *mut c_uint) -> c_int {
    write(to, if which == 1 { 1_980 } else { 3_201 })
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMaxClockInfo(_: *mut c_void, _which: c_uint, to: *mut c_uint) -> c_int {
    write(to, 1_980)
}
/// 100 W on the first device, 200 W on the second.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPowerUsage(device: *mut c_void, to: *mut c_uint) -> c_int {
    write(to, 100_000 * device as usize as c_uint)
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTotalEnergyConsumption(device: *mut c_void, to: *mut u64) -> c_int {
    write(to, 5_000_000 + host_ns() / 10_000 * device as usize as u64)
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetPerformanceState(_: *mut c_void, to: *mut c_uint) -> c_int {
    write(to, 2)
}
/// A mask of reasons; no device tells its temperature.
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(_: *mut c_void, to: *mut u64) -> c_int {
    write(to, fault(7) as u64)
}
#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTemperature(_: *mut c_void, _: c_uint, _: *mut c_uint) -> c_int {
    NOT_SUPPORTED
}
