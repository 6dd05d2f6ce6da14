/* allocates - a library that takes memory in each way there is; what test_watch watches. */
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
EXPORT void *allocates_take(int kind);
EXPORT int allocates_answer(int x);

void *allocates_take(int kind)
{
    void *p = NULL, *volatile none = NULL; /* or a compiler makes malloc of realloc */
    switch (kind) {
    case 0:
        return malloc(100);
    case 1:
        return calloc(10, 10);
    case 2:
        return realloc(none, 100);
    case 3:
        return aligned_alloc(64, 128);
    default:
        return posix_memalign(&p, 64, 100) ? NULL : p;
    }
}

int allocates_answer(int x)
{
    return x + 1;
}
