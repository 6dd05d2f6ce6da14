/* driver_stream - the part of the emulated driver that is asked and done later: copies, launches, events,
 * graphs. */
#include "fiber.h"
#include "memory.h"
#include "state.h"

#include <stdlib.h>
#include <string.h>

static cu_result add(const command &c)
{
    if (stream_add(&work, &c)) return CU_OK;
    free(c.l);
    if (c.own) free(const_cast<void *>(c.src));
    return CU_OUT_OF_MEMORY;
}

/* ---- the stream ---- */

cu_result cuStreamCreate(cu_stream *s, unsigned flags)
{
    ENTER(0);
    if (flags != CU_NON_BLOCKING) return CU_INVALID_VALUE;
    if (refused()) return CU_OUT_OF_MEMORY;
    *s = reinterpret_cast<cu_stream>(&work);
    return CU_OK;
}

cu_result cuStreamDestroy_v2(cu_stream)
{
    return CU_OK;
}

cu_result cuStreamSynchronize(cu_stream s)
{
    ENTER(0);
    if (!is_made(s)) return CU_INVALID_VALUE;
    return drain();
}

/* From memory that is not pinned the driver takes a copy at once; else it reads when its turn comes. */
cu_result cuMemcpyHtoDAsync_v2(cu_ptr to, const void *from, size_t bytes, cu_stream s)
{
    ENTER(0);
    command c = {};
    if (!is_made(s)) return CU_INVALID_VALUE;
    if (!memory_holds(host(to), bytes, MEMORY_DEVICE)) return CU_INVALID_VALUE;
    c.kind = command::COPY;
    c.dst = host(to);
    c.src = from;
    c.bytes = bytes;
    if (!memory_holds(from, bytes, MEMORY_PINNED)) {
        void *copy = malloc(bytes ? bytes : 1);
        if (!copy) return CU_OUT_OF_MEMORY;
        c.src = memcpy(copy, from, bytes);
        c.own = 1;
    }
    return add(c);
}

cu_result cuMemcpyDtoHAsync_v2(void *to, cu_ptr from, size_t bytes, cu_stream s)
{
    ENTER(0);
    command c = {};
    if (!is_made(s)) return CU_INVALID_VALUE;
    if (!memory_holds(host(from), bytes, MEMORY_DEVICE)) return CU_INVALID_VALUE;
    if (!memory_holds(to, bytes, MEMORY_PINNED)) return CU_INVALID_VALUE; /* it would block */
    c.kind = command::COPY;
    c.dst = to;
    c.src = host(from);
    c.bytes = bytes;
    return add(c);
}

cu_result cuLaunchKernel(cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                         unsigned by, unsigned bz, unsigned shared, cu_stream s, void **args,
                         void **)
{
    ENTER(1);
    command c = {};
    if (!is_made(s)) return CU_INVALID_VALUE;
    uintptr_t i = reinterpret_cast<uintptr_t>(f) - 1;
    if (i >= static_cast<uintptr_t>(kernel_count) || !(resident[i / 64] >> i % 64 & 1) || !gx ||
        !gy || gy > 65535 || !gz || gz > 65535 || bx != THREADS || by != 1 || bz != 1 ||
        shared > 48 << 10 || kernel_table[i].bytes > sizeof c.l->args)
        return CU_INVALID_VALUE;
    c.kind = command::LAUNCH;
    c.l = static_cast<launch *>(calloc(1, sizeof *c.l));
    if (!c.l) return CU_OUT_OF_MEMORY;
    c.l->kernel = static_cast<int>(i);
    c.l->grid[0] = gx, c.l->grid[1] = gy, c.l->grid[2] = gz;
    c.l->threads = bx;
    c.l->dynamic = shared;
    c.l->bytes = kernel_table[i].bytes;
    memcpy(c.l->args, args[0], c.l->bytes);
    return add(c);
}

/* ---- events ---- */

cu_result cuEventCreate(cu_event *e, unsigned)
{
    ENTER(0);
    *e = refused() ? nullptr : static_cast<cu_event>(calloc(1, sizeof **e));
    things += *e != nullptr;
    return *e ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result cuEventDestroy_v2(cu_event e)
{
    lock hold;
    if (references) drain(); /* a record may be on its way */
    things--;
    free(e);
    return CU_OK;
}

cu_result cuEventRecord(cu_event e, cu_stream s)
{
    ENTER(0);
    command c = {};
    if (!is_made(s)) return CU_INVALID_VALUE;
    c.kind = command::EVENT;
    c.event = e;
    e->recorded++;
    return add(c);
}

cu_result cuEventQuery(cu_event e)
{
    ENTER(0);
    if (e->passed < e->recorded) stream_step(&work);
    if (work.sticky) return static_cast<cu_result>(work.sticky);
    return e->passed < e->recorded ? CU_NOT_READY : CU_OK;
}

cu_result cuEventSynchronize(cu_event e)
{
    ENTER(0);
    while (e->passed < e->recorded && stream_step(&work)) {
    }
    return static_cast<cu_result>(work.sticky);
}

/* ---- graphs ---- */

struct CUgraph_st {
    list l;
};
struct CUgraphExec_st {
    list l;
    int uploaded;
};

cu_result cuStreamBeginCapture_v2(cu_stream s, unsigned)
{
    ENTER(0);
    if (!is_made(s)) return CU_INVALID_VALUE;
    captured = {};
    work.capture = &captured;
    return CU_OK;
}

cu_result cuStreamEndCapture(cu_stream, cu_graph *g)
{
    ENTER(1);
    *g = refused() ? nullptr : static_cast<cu_graph>(calloc(1, sizeof **g));
    things += *g != nullptr;
    work.capture = nullptr;
    if (*g)
        (*g)->l = captured;
    else
        list_free(&captured);
    captured = {};
    return *g ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result cuGraphInstantiateWithFlags(cu_graph_exec *x, cu_graph g, unsigned long long)
{
    ENTER(0);
    *x = refused() ? nullptr : static_cast<cu_graph_exec>(calloc(1, sizeof **x));
    if (*x && list_copy(&(*x)->l, &g->l)) {
        things++;
        return CU_OK;
    }
    free(*x);
    *x = nullptr;
    return CU_OUT_OF_MEMORY;
}

cu_result cuGraphUpload(cu_graph_exec x, cu_stream s)
{
    ENTER(0);
    if (!is_made(s)) return CU_INVALID_VALUE;
    if (refused()) return CU_OUT_OF_MEMORY;
    x->uploaded = 1;
    return CU_OK;
}

cu_result cuGraphLaunch(cu_graph_exec x, cu_stream s)
{
    ENTER(0);
    command c = {};
    if (!is_made(s) || !x->uploaded) return CU_INVALID_VALUE;
    c.kind = command::REPLAY;
    c.graph = &x->l;
    return add(c);
}

cu_result cuGraphExecDestroy(cu_graph_exec x)
{
    lock hold;
    if (references) drain();
    list_free(&x->l);
    things--;
    free(x);
    return CU_OK;
}

cu_result cuGraphDestroy(cu_graph g)
{
    lock hold;
    list_free(&g->l);
    things--;
    free(g);
    return CU_OK;
}
