//! Faults that the fake Metal must find: small mutations of the Metal backend's source.

/// A mutation.
pub struct Fault {
    /// What `EVERWARM_FAULT` calls it.
    pub name: &'static str,
    /// In which file of the backend.
    pub file: &'static str,
    /// What stands there, once.
    pub from: &'static str,
    /// What is put there.
    pub to: &'static str,
    /// What the test must say.
    pub found_as: &'static str,
}

macro_rules! faults {
    ($($name:literal in $file:literal: $from:literal => $to:literal, $found:literal;)*) => {
        /// All of them.
        pub const ALL: &[Fault] =
            &[$(Fault { name: $name, file: $file, from: $from, to: $to, found_as: $found },)*];
    };
}

faults! {
    "encoder-not-ended" in "device.rs":
        "encoder.endEncoding();" =>
        "if !crate::fault(\"encoder-not-ended\") { encoder.endEncoding(); }",
        "Metal: EndEncoding";
    "encoder-used-after-its-end" in "device.rs":
        "encoded?;" =>
        "encoded?; if crate::fault(\"encoder-used-after-its-end\") { encoder.endEncoding(); }",
        "Metal: EncoderHasEnded";
    "committed-twice" in "device.rs":
        "buffer.commit();" =>
        "buffer.commit(); if crate::fault(\"committed-twice\") { buffer.commit(); }",
        "Metal: CommitOnce";
    "never-committed" in "device.rs":
        "buffer.commit();" =>
        "if !crate::fault(\"never-committed\") { buffer.commit(); }",
        "did not end within";
    "handler-after-the-commit" in "device.rs":
        "buffer.commit();" =>
        "buffer.commit(); if crate::fault(\"handler-after-the-commit\") {
            // SAFETY: as before.
            unsafe { buffer.addCompletedHandler(flight::Block::as_ptr(&lane.block)) };
        }",
        "Metal: HandlerBeforeCommit";
    "waits-for-what-is-not-committed" in "device.rs":
        "let committed = Monotonic::now();" =>
        "if crate::fault(\"waits-for-what-is-not-committed\") { buffer.waitUntilCompleted(); }
        let committed = Monotonic::now();",
        "Metal: WaitAfterCommit";
    "stamps-read-too-early" in "device.rs":
        "let committed = Monotonic::now();" =>
        "if crate::fault(\"stamps-read-too-early\") { buffer.GPUStartTime(); }
        let committed = Monotonic::now();",
        "Metal: StampsAtTheEnd";
    "own-limit-forgotten" in "device.rs":
        "if self.lanes[index].in_flight() == IN_FLIGHT_MAX {" =>
        "if self.lanes[index].in_flight() == IN_FLIGHT_MAX
            && !crate::fault(\"own-limit-forgotten\") {",
        "Metal: QueueIsFull";
    "released-in-flight" in "device.rs":
        "lane.queue.commandBuffer()" =>
        "(match crate::fault(\"released-in-flight\") {
            true => lane.queue.commandBufferWithUnretainedReferences(),
            false => lane.queue.commandBuffer(),
        })",
        "Metal: AliveInFlight";
    "released-too-often" in "device.rs":
        "lane.took_off(ticket, committed, buffer);" =>
        "if crate::fault(\"released-too-often\") {
            // SAFETY: none, and the fake is made for it.
            unsafe { objc2::ffi::objc_release(Retained::as_ptr(&lane.outputs.sink) as *mut _) };
        }
        lane.took_off(ticket, committed, buffer);",
        "Metal: Ownership";
    "no-autorelease-pool" in "device.rs":
        "autoreleasepool(|_| {
            let outputs" =>
        "crate::pool(crate::fault(\"no-autorelease-pool\"), || {
            let outputs",
        "Metal: Pool";
    "queue-leaked" in "device.rs":
        "let queue = queue.ok_or_else(full)?;" =>
        "let queue = queue.ok_or_else(full)?;
            if crate::fault(\"queue-leaked\") { std::mem::forget(queue.clone()); }",
        "objects and blocks, after and before";
    "block-leaked" in "flight.rs":
        "let landing = flight.landing.expect(\"it has ended\");" =>
        "let landing = flight.landing.expect(\"it has ended\");
        if crate::fault(\"block-leaked\") { std::mem::forget(self.block.clone().copy()); }",
        "objects and blocks, after and before";
    "order-left-to-chance" in "device.rs":
        "let none = |what: &str|" =>
        "if crate::fault(\"order-left-to-chance\") {
            lane.outputs.sink = memory::sink(&self.gpu)?;
        }
        let none = |what: &str|",
        "overlap";
    "landings-mixed-up" in "flight.rs":
        "== landing.address" =>
        "== if crate::fault(\"landings-mixed-up\") {
            Retained::as_ptr(&flight.buffer).cast::<()>() as usize
        } else {
            landing.address
        }",
        "overlap";
    "failure-forgotten" in "device.rs":
        "self.lost = Some(why.clone());" =>
        "if !crate::fault(\"failure-forgotten\") { self.lost = Some(why.clone()); }",
        "a lost device stays lost";
    "status-not-looked-at" in "flight.rs":
        "buffer.status() != MTLCommandBufferStatus::Completed" =>
        "buffer.status() != MTLCommandBufferStatus::Completed
            && !crate::fault(\"status-not-looked-at\")",
        "a failure is told";
    "pipeline-not-set" in "encode.rs":
        "encoder.setComputePipelineState(&self.fma_chain);" =>
        "if !crate::fault(\"pipeline-not-set\") {
            encoder.setComputePipelineState(&self.fma_chain);
        }",
        "Metal: PipelineFirst";
    "wrong-index" in "encode.rs":
        "give(encoder, 1, &[iterations, kept]);" =>
        "give(encoder, 1 + usize::from(crate::fault(\"wrong-index\")), &[iterations, kept]);",
        "Metal: Arguments";
    "argument-not-bound" in "encode.rs":
        "bind(encoder, 1, source);" =>
        "if !crate::fault(\"argument-not-bound\") { bind(encoder, 1, source); }",
        "Metal: Arguments";
    "structure-too-short" in "encode.rs":
        "give(encoder, 2, &[now as u32, mask]);" =>
        "if crate::fault(\"structure-too-short\") { give(encoder, 2, &[now as u32]) }
            else { give(encoder, 2, &[now as u32, mask]) }",
        "Metal: Arguments";
    "bytes-over-4-kib" in "encode.rs":
        "// SAFETY: Metal copies that many bytes, which are the array's own." =>
        "if crate::fault(\"bytes-over-4-kib\") {
            let large = [0u32; 2048];
            unsafe { encoder.setBytes_length_atIndex(NonNull::from(&large).cast(), 8192, index) };
            return;
        }",
        "Metal: SmallBytes";
    "threadgroup-too-large" in "encode.rs":
        "let width = GROUP.min(pipeline.maxTotalThreadsPerThreadgroup()).min(threads);" =>
        "let width = if crate::fault(\"threadgroup-too-large\") { threads }
            else { GROUP.min(pipeline.maxTotalThreadsPerThreadgroup()).min(threads) };",
        "Metal: Threadgroup";
    "memory-too-short" in "memory.rs":
        "SINK_THREADS * size_of::<u32>()" =>
        "SINK_THREADS * size_of::<u32>() / if crate::fault(\"memory-too-short\") { 2 } else { 1 }",
        "Metal: Bounds";
    "length-not-checked" in "memory.rs":
        "if bytes > most {" =>
        "if bytes > most && !crate::fault(\"length-not-checked\") {",
        "Metal: BufferLength";
}
