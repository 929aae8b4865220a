//! Carries out hold and pre-warm decisions on a device, on one dedicated thread.
