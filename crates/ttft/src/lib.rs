//! Time to first token, measured at an HTTP client in interleaved conditions.
