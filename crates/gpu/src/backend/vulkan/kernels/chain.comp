#version 450
// The FMA chain: two dependent fused multiply-adds an iteration, no memory traffic but one result a
// thread at the end.
//
// Each thread follows x = x * x + c, which is chaotic: a chain that was cut short, or run by fewer
// threads, leaves other numbers. The host may split a long chain over several dispatches (some
// drivers end a loop after 65,535 rounds without a word), so x starts from where it was left.
//
// Built with CLOCK, the first thread also writes what the clocks of its core said before and after.
#ifdef CLOCK
#extension GL_ARB_shader_clock : require
#extension GL_EXT_shader_realtime_clock : require
#endif

layout(local_size_x_id = 0) in;

layout(set = 0, binding = 0) buffer Results {
    uint done; // iterations of the first thread, over all dispatches of a buffer
    uint unused[15];
    uint x[65536]; // bits of the last x of each thread
    uint sums[65536];
} results;

#ifdef CLOCK
// Shape: begin and end of each place: cycles low, high, time low, high.
layout(set = 0, binding = 1) writeonly buffer Stamps { uvec4 stamps[]; };
#endif

layout(push_constant) uniform Work {
    uint threads;
    uint rounds; // of 32 iterations
    uint rest;   // iterations after them
    uint first;  // 1 in the first dispatch of a buffer
    float c;     // not known to the compiler, so that nothing is worked out ahead
    uint place;  // where the stamps go
} work;

#define TWICE(step) step step
#define ITERATION x = fma(x, x, work.c); x = fma(x, x, work.c);

void main() {
    uint group = gl_WorkGroupID.x + gl_WorkGroupID.y * gl_NumWorkGroups.x;
    uint id = group * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (id >= work.threads) return;
    bool begins = work.first == 1u;
    float x = begins ? float(id & 255u) / 256.0 - 0.5 : uintBitsToFloat(results.x[id & 65535u]);
    uint done = begins ? 0u : results.done;
#ifdef CLOCK
    uvec4 begin = uvec4(clock2x32ARB(), clockRealtime2x32EXT());
    // Never true: ties the chain to a begin that lies before it.
    if (begin.y == 0xffffffffu) x = 0.0;
#endif
    for (uint i = 0u; i < work.rounds; i++) {
        TWICE(TWICE(TWICE(TWICE(TWICE(ITERATION)))))
        done += 32u;
    }
    for (uint i = 0u; i < work.rest; i++) {
        ITERATION
        done += 1u;
    }
    results.x[id & 65535u] = floatBitsToUint(x);
    if (id == 0u) {
        results.done = done;
#ifdef CLOCK
        // Always true: ties the end to a chain that lies before it.
        if (x < 4.0) {
            stamps[2u * work.place] = begin;
            stamps[2u * work.place + 1u] = uvec4(clock2x32ARB(), clockRealtime2x32EXT());
        }
#endif
    }
}
