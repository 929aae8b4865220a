//! everwarm for authors of inference runtimes: what a runtime can do itself against a cold GPU.
//!
//! [`inflight`] keeps command buffers ahead, so that the queue never looks empty to the firmware.
//! It is a state machine of its own crate and needs nothing from here; this crate adds what knows
//! devices: [`DeviceQueue`] drives it over any backend of `everwarm-gpu`, a simulated one included,
//! and [`gap_budget`] tells what a chip allows. `examples/` has a runtime's loop with both.
//!
//! No async runtime, no thread of its own, no global state.

#![forbid(unsafe_code)]

mod device;

pub use device::{DeviceQueue, gap_budget};
pub use everwarm_gpu as gpu;
pub use everwarm_inflight as inflight;
pub use everwarm_units as units;
pub use everwarm_workload::Kernel;
