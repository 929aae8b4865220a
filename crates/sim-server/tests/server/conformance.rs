//! The conformance suite of all backends, on a simulated GPU behind a socket, by the wall clock.

#[path = "../../../gpu/tests/suite/mod.rs"]
#[macro_use]
mod suite;

use everwarm_gpu::Backend;
use everwarm_sim_server::{Config, spawn};
use everwarm_workload::Runtime;

fn over_a_socket(check: impl Fn(&mut dyn Backend)) {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new("sim:m2", Runtime::built_in("mlx").unwrap());
    config.socket = Some(folder.path().join("gpu"));
    let server = spawn(config).unwrap();
    let mut backend = everwarm_gpu::open(&server.device()).unwrap();
    check(backend.as_mut());
    drop(backend);
    assert_eq!(everwarm_gpu::open(&server.device()).unwrap().device().id, server.device());
}

suite!(over_a_socket);
