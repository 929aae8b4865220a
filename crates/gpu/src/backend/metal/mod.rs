//! Apple GPUs through Metal. So far: what macOS tells of them beside Metal ([`telemetry`]).

pub mod telemetry;
