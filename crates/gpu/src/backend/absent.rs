//! Backends that this build does not have: their names, and why.

use super::{Entry, Found};
use crate::{Backend, Error};

macro_rules! absent {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $about:literal, $why:expr) => {
        $(#[$doc])*
        pub const $name: Entry = Entry {
            prefix: $prefix,
            about: $about,
            hardware: true,
            open: |id| refuse(id, $why),
            watch: |id| match refuse(id, $why) {
                Ok(_) => unreachable!("it refuses"),
                Err(error) => Err(error),
            },
            list: || vec![Found::unusable(concat!($prefix, ":0"), $why)],
        };
    };
}

absent! {
    /// NVIDIA GPUs.
    CUDA, "cuda", "an NVIDIA GPU: cuda:0", "the CUDA backend is not built yet"
}
fn refuse(id: &str, why: &str) -> Result<Box<dyn Backend>, Error> {
    Err(Error::NoDevice { id: id.to_owned(), why: format!("{why}; {}", super::what_exists()) })
}
