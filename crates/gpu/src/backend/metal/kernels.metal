// The compute kernels of the Metal backend, compiled on the machine that runs them.
//
// Contract with encode.rs: the order of arguments, the layout of the structures (32-bit unsigned
// integers only) and the size of `sink`. cargo xtask runs this text on the CPU against a reference.

#include <metal_stdlib>
using namespace metal;

// Threads of which each may leave a result; a power of two.
constant uint SINK = 65536u;

struct Chain {
    uint iterations;
    uint kept; // threads that write their result, SINK at most
};

struct Read {
    uint words; // of 16 bytes, 2^31 at most
    uint mask;  // words of the source less one: it is read over and over
};

struct Product {
    uint quads; // rows and columns of the matrices, in fours
};

// The least that a command buffer can hold and still be stamped.
kernel void nothing(device float *sink [[buffer(0)]], uint id [[thread_position_in_grid]]) {
    sink[id] = 0.0f;
}

// Two multiply-adds an iteration, each of which needs the one before. x * x - 1.8 wanders about
// between -1.8 and 1.44 for ever, so that the last condition never holds, which no compiler knows.
kernel void fma_chain(device float *sink [[buffer(0)]],
                      constant Chain &chain [[buffer(1)]],
                      uint id [[thread_position_in_grid]]) {
    float x = float(id & 1023u) * 0.0009765625f - 0.5f;
    for (uint i = 0u; i < chain.iterations; ++i) {
        x = fma(x, x, -1.8f);
        x = fma(x, x, -1.8f);
    }
    if (id < chain.kept || x > 2.0f) {
        sink[id & (SINK - 1u)] = x;
    }
}

// All threads read side by side. The exclusive or of what they leave is that of what was read.
kernel void streaming_read(device uint *sink [[buffer(0)]],
                           device const uint4 *source [[buffer(1)]],
                           constant Read &read [[buffer(2)]],
                           uint id [[thread_position_in_grid]],
                           uint threads [[threads_per_grid]]) {
    uint4 sum = uint4(0u);
    for (uint i = id; i < read.words; i += threads) {
        sum ^= source[i & read.mask];
    }
    sink[id & (SINK - 1u)] = sum.x ^ sum.y ^ sum.z ^ sum.w;
}

// Each thread makes a tile of four by four; a threadgroup's tiles lie side by side, so that what
// they read is in its core's cache.
kernel void matrix_product(device float4 *product [[buffer(0)]],
                           device const float4 *left [[buffer(1)]],
                           device const float4 *right [[buffer(2)]],
                           constant Product &size [[buffer(3)]],
                           uint2 at [[thread_position_in_grid]]) {
    float4 tile[4] = {float4(0.0f), float4(0.0f), float4(0.0f), float4(0.0f)};
    uint row = 4u * at.y;
    for (uint k = 0u; k < size.quads; ++k) {
        float4 r0 = right[(4u * k + 0u) * size.quads + at.x];
        float4 r1 = right[(4u * k + 1u) * size.quads + at.x];
        float4 r2 = right[(4u * k + 2u) * size.quads + at.x];
        float4 r3 = right[(4u * k + 3u) * size.quads + at.x];
        for (uint i = 0u; i < 4u; ++i) {
            float4 l = left[(row + i) * size.quads + k];
            tile[i] = fma(float4(l.x), r0, tile[i]);
            tile[i] = fma(float4(l.y), r1, tile[i]);
            tile[i] = fma(float4(l.z), r2, tile[i]);
            tile[i] = fma(float4(l.w), r3, tile[i]);
        }
    }
    for (uint i = 0u; i < 4u; ++i) {
        product[(row + i) * size.quads + at.x] = tile[i];
    }
}
