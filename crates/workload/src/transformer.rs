//! Prefill and decode of a transformer as a host program.
//!
//! A prompt is one or more passes over all blocks, a new token one pass; a pass is a run of equal
//! command buffers a block and one for the output matrix. The host encodes each, keeps at most so
//! many in flight, waits for the last and hands out the token.

use crate::Kernel;
use crate::host::{Op, Program, Seen};
use crate::runtime::{Phase, Runtime};
use everwarm_units::{Instant, Span};
use std::collections::VecDeque;

/// One pass over the model, as it is submitted.
pub(crate) struct Pass {
    block: Kernel,
    blocks: u32,
    head: Option<Kernel>,
    in_flight: usize,
    prepare: Span,
    encode: Span,
    turnaround: Span,
    finish: Span,
}

impl Pass {
    /// The passes of a prompt; the last one gives the first token.
    pub(crate) fn prefill(runtime: &Runtime, tokens: u32) -> Vec<Pass> {
        let chunk = runtime.prefill.chunk;
        let mut passes = Vec::new();
        let mut done = 0;
        while done < tokens.max(1) {
            let rows = chunk.min(tokens.max(1) - done);
            done += rows;
            passes.push(Pass::new(runtime, &runtime.prefill, rows, done - rows, done >= tokens));
        }
        passes
    }

    /// The pass of one new token after `context` others.
    pub(crate) fn decode(runtime: &Runtime, context: u32) -> Pass {
        Pass::new(runtime, &runtime.decode, 1, context, true)
    }

    fn new(runtime: &Runtime, phase: &Phase, rows: u32, context: u32, last: bool) -> Pass {
        let padded = rows.div_ceil(phase.tile) * phase.tile;
        let model = &runtime.model;
        let resident = if runtime.keeps_memory_wired { 0.0 } else { model.bytes_per_token() };
        // The output matrix always works on a single row.
        let head = Kernel::Modelled {
            flops: 0.0,
            bytes: model.head().weights * runtime.decode.weight_traffic,
            resident,
        };
        let cost = model.layer(rows, padded, context);
        // A single row is a matrix-vector product: its arithmetic hides behind its traffic.
        let flops = if padded == 1 { 0.0 } else { cost.flops / phase.efficiency };
        let bytes = cost.weights * phase.weight_traffic + cost.cache;
        let least = f64::from(phase.buffers_per_layer);
        let parts = (flops / (phase.buffer_gflop * 1e9)).ceil().max(least);
        Pass {
            block: Kernel::Modelled { flops: flops / parts, bytes: bytes / parts, resident },
            blocks: model.layers * parts as u32,
            head: last.then_some(head),
            in_flight: phase.in_flight as usize,
            prepare: phase.prepare,
            encode: phase.encode,
            turnaround: phase.turnaround,
            finish: if last { phase.finish } else { Span::ZERO },
        }
    }

    /// The host's operations, in order.
    fn ops(&self) -> impl Iterator<Item = Op> + '_ {
        let buffers = std::iter::repeat_n(self.block, self.blocks as usize).chain(self.head);
        let submit = buffers.flat_map(|kernel| {
            // The host encodes while earlier buffers run, then waits for a free place.
            let wait = Op::Wait(self.in_flight - 1);
            [Op::Pass(self.encode), wait, Op::Pass(self.turnaround), Op::Commit(kernel)]
        });
        let token = self.head.map(|_| [Op::Pass(self.finish), Op::Mark(Transformer::TOKEN)]);
        [Op::Pass(self.prepare)]
            .into_iter()
            .chain(submit)
            .chain([Op::Wait(0)])
            .chain(token.into_iter().flatten())
    }
}

/// A run of passes.
pub struct Transformer {
    passes: VecDeque<Pass>,
    ops: VecDeque<Op>,
}

impl Transformer {
    /// The mark after each token.
    pub const TOKEN: &'static str = "token";

    pub(crate) fn new(passes: Vec<Pass>) -> Self {
        Transformer { passes: passes.into(), ops: VecDeque::new() }
    }
}

impl Program for Transformer {
    fn next(&mut self, _now: Instant, _seen: Option<&Seen>) -> Op {
        if self.ops.is_empty()
            && let Some(pass) = self.passes.pop_front()
        {
            self.ops.extend(pass.ops());
        }
        self.ops.pop_front().unwrap_or(Op::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernels and tokens of a program, ignoring time.
    fn run(mut program: Box<dyn Program>) -> (Vec<Kernel>, usize) {
        let (mut kernels, mut tokens) = (Vec::new(), 0);
        loop {
            match program.next(Instant::ZERO, None) {
                Op::Commit(kernel) => kernels.push(kernel),
                Op::Mark(_) => tokens += 1,
                Op::End => return (kernels, tokens),
                Op::Pass(_) | Op::PassUntil(_) | Op::Wait(_) => {}
            }
        }
    }

    fn totals(kernels: &[Kernel]) -> (f64, f64) {
        kernels.iter().fold((0.0, 0.0), |(f, b), k| match k {
            Kernel::Modelled { flops, bytes, .. } => (f + flops, b + bytes),
            other => panic!("{other:?} in a transformer"),
        })
    }

    #[test]
    fn a_prompt_costs_its_operations() {
        let runtime = Runtime::built_in("llamacpp").unwrap();
        let (kernels, tokens) = run(runtime.prefill(128));
        assert_eq!((kernels.len(), tokens), (28 + 1, 1));
        let (flops, _) = totals(&kernels);
        // 2 operations a weight and token, the attention's share is below 1 % at this length.
        let expected = 2.0 * 2.818e9 * 128.0 / runtime.prefill.efficiency;
        assert!((flops / expected - 1.0).abs() < 0.01, "{flops} against {expected}");
    }

    #[test]
    fn a_limit_on_buffers_cuts_the_same_work_finer() {
        let whole = Runtime::built_in("llamacpp").unwrap();
        let mut cut = whole.clone();
        cut.prefill.buffer_gflop = 4.0;
        let (coarse, fine) = (run(whole.prefill(128)).0, run(cut.prefill(128)).0);
        let largest = fine.iter().map(|k| totals(&[*k]).0).fold(0.0, f64::max);
        assert!(largest <= 4.0e9 && fine.len() > coarse.len());
        assert!((totals(&fine).0 / totals(&coarse).0 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn long_prompts_are_cut_into_chunks_of_the_same_total() {
        let runtime = Runtime::built_in("llamacpp").unwrap();
        let mut whole = runtime.clone();
        whole.prefill.chunk = 4096;
        let cut = totals(&run(runtime.prefill(2048)).0);
        let uncut = totals(&run(whole.prefill(2048)).0);
        assert!((cut.0 / uncut.0 - 1.0).abs() < 1e-9, "arithmetic does not depend on the cut");
        assert!(cut.1 > 3.0 * uncut.1, "each chunk reads the weights again");
    }

    #[test]
    fn an_answer_is_its_prompt_and_its_tokens() {
        let runtime = Runtime::built_in("mlx").unwrap();
        let (kernels, tokens) = run(runtime.respond(16, 5));
        assert_eq!((kernels.len(), tokens), (29 + 4 * 29, 5));
        let (flops, bytes) = totals(&run(runtime.decode(16, 1)).0);
        assert_eq!(flops, 0.0, "a decode step is bound by its traffic");
        assert!(bytes > runtime.model.bytes_per_token());
    }
}
