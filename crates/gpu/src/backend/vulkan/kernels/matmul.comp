#version 450
// A dense single-precision product c = a b of n by n matrices, rows one after the other: a group of
// 256 threads makes a tile of 64 by 64, each thread 4 by 4 of it, 16 columns of a at a time.
layout(local_size_x = 16, local_size_y = 16) in;

layout(set = 0, binding = 1) readonly buffer A { float a[]; };
layout(set = 0, binding = 2) readonly buffer B { float b[]; };
layout(set = 0, binding = 3) writeonly buffer C { float c[]; };

layout(push_constant) uniform Work { uint n; } work;

shared float left[16][65]; // [column of a][row]; one more, so that a column lies in several banks
shared float right[16][64]; // [row of b][column]

// 1,024 values of each operand, four a thread; beyond the matrix there are zeros.
void load(uint row, uint column, uint k) {
    uint thread = gl_LocalInvocationIndex;
    for (uint part = 0u; part < 4u; part++) {
        uint at = thread + 256u * part;
        uint i = row + at / 16u, j = k + at % 16u;
        left[at % 16u][at / 16u] = i < work.n && j < work.n ? a[i * work.n + j] : 0.0;
        uint r = k + at / 64u, s = column + at % 64u;
        right[at / 64u][at % 64u] = r < work.n && s < work.n ? b[r * work.n + s] : 0.0;
    }
}

void main() {
    uint row = gl_WorkGroupID.y * 64u, column = gl_WorkGroupID.x * 64u;
    uint y = gl_LocalInvocationID.y, x = gl_LocalInvocationID.x;
    vec4 sums[4] = vec4[4](vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0));
    for (uint k = 0u; k < work.n; k += 16u) {
        load(row, column, k);
        barrier();
        for (uint j = 0u; j < 16u; j++) {
            vec4 v = vec4(right[j][x], right[j][x + 16u], right[j][x + 32u], right[j][x + 48u]);
            for (uint i = 0u; i < 4u; i++) {
                sums[i] = fma(vec4(left[j][y + 16u * i]), v, sums[i]);
            }
        }
        barrier();
    }
    for (uint i = 0u; i < 4u; i++) {
        for (uint j = 0u; j < 4u; j++) {
            uint r = row + y + 16u * i, s = column + x + 16u * j;
            if (r < work.n && s < work.n) c[r * work.n + s] = sums[i][j];
        }
    }
}
