//! Experiments as data, run on any backend by one interpreter.
