#version 450
// A streaming read: each thread sums every `threads`-th of `count` 16-byte words, next to no
// arithmetic. The sums are kept, so that nothing can be left out.
layout(local_size_x = 256) in;

layout(set = 0, binding = 0) buffer Results {
    uint done;
    uint unused[15];
    uint x[65536];
    uint sums[65536]; // of what was read, modulo 2^32, over all dispatches ever
} results;

layout(set = 0, binding = 1) readonly buffer Data { uvec4 data[]; };

layout(push_constant) uniform Work {
    uint first;   // 16-byte word
    uint count;   // 16-byte words
    uint threads; // of all groups together
} work;

uint sum(uint i) {
    uvec4 v = data[work.first + i];
    return v.x + v.y + v.z + v.w;
}

void main() {
    uint id = gl_GlobalInvocationID.x;
    uint step = work.threads;
    uint total = 0u;
    uint i = id;
    // Four reads are under way at once.
    for (; i + 3u * step < work.count; i += 4u * step) {
        total += sum(i) + sum(i + step) + sum(i + 2u * step) + sum(i + 3u * step);
    }
    for (; i < work.count; i += step) {
        total += sum(i);
    }
    atomicAdd(results.sums[id & 65535u], total);
}
