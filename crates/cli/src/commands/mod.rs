//! One file a command.

pub mod demo;
pub mod devices;
pub mod doctor;
pub mod hold;
pub mod lab;
pub mod proxy;
pub mod sim_server;
pub mod ttft;
pub mod watch;

/// The device that was asked for, or the default one; says which if it was not.
fn device(asked: Option<String>) -> String {
    asked.unwrap_or_else(|| {
        let device = everwarm_gpu::default_device();
        eprintln!("no --device: using {device}");
        device
    })
}
