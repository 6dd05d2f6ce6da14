/* args - in place of plugins/cuda/args.h, which it has whole: the block of the kernels of test_cuda_sim. */
#ifndef MISUSE_ARGS_H
#define MISUSE_ARGS_H
#include "../../plugins/cuda/args.h"

typedef struct probe_args {
    gpu_ptr to; /* words */
    int32_t at; /* a word of them, or before or beyond them */
    uint32_t value;
} probe_args;
#endif
