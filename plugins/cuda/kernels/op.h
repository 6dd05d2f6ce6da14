/* op - the numbers of ops that kernels look at; the host asserts that they are the ABI's. */
#ifndef OP_H
#define OP_H
enum { OP_ADD_BIAS = 4, OP_GLU = 8, OP_ADD = 9, OP_SCALE = 10, OP_SOFTCAP = 11 };
#endif
