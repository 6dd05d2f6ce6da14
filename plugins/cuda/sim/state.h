/* state - what the files of the emulated driver share: one context, whose streams are all one. */
#ifndef STATE_H
#define STATE_H
#include "host/driver.h"
#include "stream.h"

#include <pthread.h>

extern "C" {
#define DECLARE(name, parameters) __attribute__((visibility("default"))) cu_result name parameters;
DRIVER_CALLS(DECLARE)
#undef DECLARE
}

extern pthread_mutex_t big; /* of all that is here */
extern stream work;
extern list captured;
extern unsigned long long resident[4]; /* kernels that are */
extern unsigned references;            /* to the context */
extern __thread int depth;             /* contexts on this thread's stack */
extern int things;                     /* events and graphs that live */

bool refused(void); /* of a call that takes memory: it is the one that finds none */

/* The null stream is not ordered with a stream of one's own, and nothing here uses it. */
static inline bool is_made(cu_stream s)
{
    return s == reinterpret_cast<cu_stream>(&work);
}

struct lock {
    lock()
    {
        pthread_mutex_lock(&big);
    }
    ~lock()
    {
        pthread_mutex_unlock(&big);
    }
};

/* In a context that is not lost; nothing of it may be asked while capturing, unless it is recorded. */
#define ENTER(recorded)                                                                            \
    lock hold_;                                                                                    \
    if (!depth || !references) return CU_INVALID_CONTEXT;                                          \
    if (work.sticky) return static_cast<cu_result>(work.sticky);                                   \
    if (work.capture && !(recorded)) return CU_INVALIDATED

cu_result drain(void); /* executes all that was asked */

static inline void *host(cu_ptr p)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(p));
}
#endif
