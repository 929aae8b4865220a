//! A runtime's loop with the in-flight helper: `cargo run -p everwarm-embed --example 01-in-flight`.
//!
//! The same requests of 300 layers, twice on a device that has been idle: once by a loop that waits
//! for each layer before it encodes the next, once by the helper. A layer takes 0.15 ms to encode
//! and 0.58 ms to run at the top clock. Another device: a word behind it.

use everwarm_embed::inflight::{Chunk, InFlight, Limits, Turn, turn};
use everwarm_embed::units::{Instant, Span};
use everwarm_embed::{DeviceQueue, Kernel, gap_budget, gpu};
use gpu::Backend;

const ENCODE: Span = Span::us(150);
const LAYER: Span = Span::us(580);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let id = std::env::args().nth(1).unwrap_or_else(|| "sim:m2".to_owned());
    println!("{id}: three requests of 300 layers, each encoded in {ENCODE}, run in {LAYER}");
    let budget = gap_budget(&id).unwrap_or(Span::us(500));
    let synchronous = Limits { in_flight_max: 1, ..Limits::for_gap(budget) };
    run(&id, "one at a time", synchronous)?;
    run(&id, "in flight", Limits::for_gap(budget))
}

/// Runs the requests under `limits` and prints what came of it.
fn run(id: &str, name: &str, limits: Limits) -> Result<(), Box<dyn std::error::Error>> {
    let device = gpu::open(id)?;
    let layer = device.device().fma(LAYER, Kernel::FMA_THREADS);
    let encode = move |device: &mut dyn Backend, _: &Chunk| {
        let encoded = device.now() + ENCODE;
        device.sleep_until(encoded); // a real runtime encodes here
        layer
    };
    let mut queue = DeviceQueue::new(device, encode)?;
    let idle = queue.backend().now() + Span::ms(500);
    queue.backend().sleep_until(idle);
    let mut ahead = InFlight::new(limits);
    for _ in 0..3 {
        ahead.submit(300)?;
    }
    let (begun, mut ended, mut gaps) = (queue.backend().now(), Vec::<Instant>::new(), Vec::new());
    loop {
        match turn(&mut ahead, &mut queue)? {
            Turn::Landed(landed) => {
                gaps.extend(landed.gap);
                ended.extend(landed.chunk.last.then(|| queue.backend().now()));
            }
            Turn::Idle => break,
            Turn::Committed(_) | Turn::Woken => {}
        }
    }
    gaps.sort_unstable();
    let took: Vec<String> = ended.iter().map(|at| at.since(begun).to_string()).collect();
    let pstate = queue.last().and_then(|c| c.pstate).map_or("-".to_owned(), |p| p.to_string());
    println!("{name}: ended after {}; at last {pstate}", took.join(", "));
    println!("  queue gap {} (median); {:?}", gaps[gaps.len() / 2], ahead.plan());
    println!("  {:?}", ahead.verdict());
    Ok(())
}
