//! What macOS tells of the GPU beside Metal: p-state residencies, energy, clocks, the firmware
//! controller's own parameters, the machine.
//!
//! Two halves. The decoders (`channel`, `states`, `meter`, `table`, `tree`, `machine`) are pure:
//! bytes and lists in, values out; they compile and are tested everywhere. The reader that gets
//! those bytes from IOReport and the IORegistry exists on macOS alone. **It has never run on a
//! Mac.** It is own code over IOReport's private functions, because the one library there is takes
//! its own pauses of at least 100 ms and gives a mean clock, while a ramp of 20 ms needs each
//! state's time between any two moments.
//!
//! Contract: residencies sum to the time since opening within [`meter::slack`], or are `None`;
//! everything that a source can't tell is `None`, with a reason in [`Telemetry::facts`].

pub mod channel;
pub mod machine;
pub mod meter;
pub mod states;
pub mod table;
pub mod tree;

pub use meter::Reading;
