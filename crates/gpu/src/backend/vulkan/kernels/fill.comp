#version 450
// Fills a buffer with numbers between 0.5 and 1 that depend on their place: memory which was never
// written may not be there at all, and equal words may be kept in a compressed form.
layout(local_size_x = 256) in;

layout(set = 0, binding = 1) writeonly buffer Data { uint data[]; };

layout(push_constant) uniform Work {
    uint count;   // words
    uint threads; // of all groups together
    uint seed;
} work;

// Two rounds of multiply and shift; `hash` in kernels.rs is the same.
uint hash(uint n) {
    n = (n ^ (n >> 16)) * 0x7feb352du;
    n = (n ^ (n >> 15)) * 0x846ca68bu;
    return n ^ (n >> 16);
}

void main() {
    for (uint i = gl_GlobalInvocationID.x; i < work.count; i += work.threads) {
        data[i] = 0x3f000000u | (hash(i + work.seed) >> 9);
    }
}
