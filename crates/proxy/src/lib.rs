//! The drop-in reverse proxy.
