//! One file a command.

pub mod demo;
pub mod devices;
pub mod hold;
pub mod lab;
pub mod proxy;
pub mod sim_server;
pub mod ttft;
pub mod watch;
