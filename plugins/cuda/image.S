/* image - the kernels as nvcc built them. */
    .section .rodata
    .balign 64
    .globl cuda_image
    .hidden cuda_image
cuda_image:
    .incbin IMAGE
    .balign 8
    .quad 0
    .section .note.GNU-stack, "", @progbits
