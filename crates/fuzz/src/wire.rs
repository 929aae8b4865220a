//! Lines on the socket of a shared simulated GPU, from either side.

use everwarm_gpu::wire::{self, Reply, Request};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Debug;

/// What is read and written is read again as it was; what is refused is quoted.
pub fn check(data: &[u8]) {
    both_ways::<Request>(data);
    both_ways::<Reply>(data);
}

fn both_ways<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    match wire::parse::<T>(data) {
        Ok(message) => {
            let line = wire::line(&message);
            assert_eq!(line.iter().position(|b| *b == b'\n'), Some(line.len() - 1));
            assert_eq!(wire::parse::<T>(&line).as_ref(), Ok(&message));
        }
        Err(why) => assert!(why.contains(wire::PROTOCOL), "{why}"),
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        r#"{"hello":{"protocol":"everwarm-sim","version":1,"client":"hold"}}"#,
        r#"{"open-queue":{"queue":0}}"#,
        r#"{"commit":{"queue":1,"ticket":7,"at_ns":9,"kernel":{"Matmul":{"n":2048}}}}"#,
        r#"{"commit":{"queue":1,"ticket":7,"at_ns":9,"kernel":{"Modelled":{"flops":1.25e11,"bytes":0.1,"resident":1e9}}}}"#,
        r#"{"counters":{"number":3}}"#,
        r#"{"hello":{"protocol":"everwarm-sim","version":1,"epoch_ns":5,"device":{"name":"M2","pstates_hz":[4.44e8,1.398e9],"in_flight_max":64,"fma_iterations_per_ms":1.5,"fma_iterations_per_ms_group":2.5}}}"#,
        r#"{"completed":{"ticket":1,"queue":0,"committed_ns":1,"gpu_start_ns":2,"gpu_end_ns":3,"observed_ns":4,"pstate":1,"late_ns":0}}"#,
        r#"{"counters":{"number":1,"counters":{"at_ns":1,"residency_ns":[1,2],"gpu_energy_j":0.5,"cpu_energy_j":0.25,"pstate":0,"clock_hz":null,"busy":0.5}}}"#,
        r#"{"refused":{"message":"no"}}"#,
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
