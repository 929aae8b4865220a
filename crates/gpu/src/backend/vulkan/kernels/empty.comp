#version 450
// Nothing, in one thread: what a dispatch costs by itself.
layout(local_size_x = 1) in;

void main() {}
