// Runs the kernels over whole grids, one thread after the other.

#include KERNELS

extern "C" void cpu_nothing(float *sink, uint threads) {
    for (uint id = 0; id < threads; ++id) nothing(sink, id);
}

extern "C" void cpu_fma_chain(float *sink, const uint *chain, uint threads) {
    Chain given = {chain[0], chain[1]};
    for (uint id = 0; id < threads; ++id) fma_chain(sink, given, id);
}

extern "C" void cpu_streaming_read(uint *sink, const uint4 *source, const uint *read, uint threads) {
    Read given = {read[0], read[1]};
    for (uint id = 0; id < threads; ++id) streaming_read(sink, source, given, id, threads);
}

extern "C" void cpu_matrix_product(float4 *product, const float4 *left, const float4 *right, uint quads) {
    Product given = {quads};
    for (uint y = 0; y < quads; ++y)
        for (uint x = 0; x < quads; ++x) matrix_product(product, left, right, given, uint2{x, y});
}
