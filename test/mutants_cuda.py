"""mutants_cuda - those of plugins/cuda (mutants.py says what an entry is).  Their killers run the kernels
in emulation."""
import pathlib
import re

from mutants import group

# ---- kernels: every barrier, every mask of a shuffle -------------------------------------------

KERNELS = "plugins/cuda/kernels"
RACE = re.compile(r"__syncthreads\(\);|__shfl_\w+\((FULL),")
NARROW = ("0x7fffffffu", "0xfffffffeu", "0x0000ffffu")


def races_in(text):
    """(name, old, new) of each barrier and each mask, and where they are."""
    found, places, counts = [], set(), {}
    for hit in RACE.finditer(text):
        what = "mask" if hit[1] else "barrier"
        counts[what] = number = counts.get(what, 0) + 1
        start = text.rindex("\n", 0, hit.start())
        while text.count(text[start:hit.end()]) > 1:  # the lines before make it the only one
            start = text.rindex("\n", 0, start)
        old = text[start:hit.end()]
        for new in NARROW if hit[1] else (";",):
            changed = old[:hit.start() - start] + (hit[0].replace("FULL", new) if hit[1] else new)
            found.append((f"{what} {number}" + (f" {new}" if hit[1] else ""), old, changed))
        places.add(hit.start())
    return found, places


for path in sorted((pathlib.Path(__file__).resolve().parent.parent / KERNELS).iterdir()):
    group("cuda", f"{KERNELS}/{path.name}", "cuda_races",
          *((f"{path.name}, {name}", old, new) for name, old, new in races_in(path.read_text())[0]))

# ---- the host side ------------------------------------------------------------------------------

group(
    "cuda", "plugins/cuda/host/gpu.c", "cuda_host",
    ("kernels are not resident", "if (!s) s = CALL(g, e, cuFuncLoad, g->kernel[i]);", ""),
    ("a context stays pushed", "cu.cuCtxPopCurrent_v2(&mine);\n    return gpu_answer", "return gpu_answer"),
    ("the first cause is forgotten", "if (!g->lost.code) g->lost = *why;", "g->lost = (fak_error){0};"),
    ("what is free is not told", "if (r == CU_OUT_OF_MEMORY) tell_room(g, &why);", "", "cuda_calls"),
    ("no memory loses the card", "r == CU_OUT_OF_MEMORY ? FAK_E_MEMORY : FAK_E_LOST", "FAK_E_LOST",
     "cuda_calls"),
    ("memory is taken on the null stream", "(size_t)bytes, g->pool, g->stream)",
     "(size_t)bytes, g->pool, NULL)"),
)
group(
    "cuda", "plugins/cuda/host/gpu_stream.c", "cuda_host",
    ("graphs are not uploaded", "if (!s) s = CALL(g, e, cuGraphUpload, x->exec, g->stream);", ""),
    ("uploads are not in order", "cuMemcpyHtoDAsync_v2, to, pinned, (size_t)bytes, g->stream)",
     "cuMemcpyHtoDAsync_v2, to, pinned, (size_t)bytes, NULL)"),
    ("reads are not in order", "cuMemcpyDtoHAsync_v2, pinned, from, (size_t)bytes, g->stream)",
     "cuMemcpyDtoHAsync_v2, pinned, from, (size_t)bytes, NULL)"),
    ("nobody sleeps until it is done", "return cu.cuEventSynchronize(v);", "return CU_OK;", "cuda_steps"),
    ("looked at once", "while ((r = cu.cuEventQuery(v)) == CU_NOT_READY)",
     "if ((r = cu.cuEventQuery(v)) == CU_NOT_READY)", "cuda_calls"),
    ("a graph is kept", "if (graph) GIVE_BACK(g, cuGraphDestroy, graph);", ""),
    ("a submit is not counted", "g->stats.dispatches += kernels;", "g->stats.dispatches += 1;",
     "cuda_calls"),
)
group("cuda", "plugins/cuda/host/memory.c", "cuda_host",
      ("pinned memory is kept", "gpu_unpin(g, p->down);", ""),
      ("events are kept", "gpu_event_free(g, p->event[i]);", ""))
group("cuda", "plugins/cuda/host/load.c", "cuda_host",
      ("a piece is overwritten on its way", "return s ? s : gpu_sync(l->p->d->g, e);", "return s;"))
group(
    "cuda", "plugins/cuda/host/rows.c", "cuda_steps",
    ("a slot is written on its way up", "if (s == FAK_PENDING) s = gpu_event_wait(p->d->g, r->event[i], e);",
     "if (s == FAK_PENDING) s = FAK_OK;"),
    ("a full ring is not waited for", "full ? cuda_wait(p, p->tickets, FAK_FOREVER, e) :", "0 ? FAK_OK :"),
    ("nothing is told apart in the ring", "p->down + p->staged, from", "p->down, from", "cuda_calls"),
    ("a ring of tickets has no end", "int full = busy || p->staged", "int full = p->staged", "cuda_calls"),
)
group("cuda", "plugins/cuda/host/step.c", "cuda_host",
      ("the smallest bucket for all rows", "p->bucket[scope][b] < rows) b++;", "0) b++;"))
group("cuda", "plugins/cuda/host/emit.c", "cuda_steps",
      ("parts are not merged", "if (!s && a.splits > 1)", "if (!s && 0)"),
      ("the best part is not looked for", "return s || a.parts == 1 ? s :", "return 1 ? s :"))
group("cuda", "plugins/cuda/host/pages.c", "cuda_steps",
      ("shared pages are written", "if (i < have && kv->now.refs[old] == 1) continue;",
       "if (i < have) continue;"))

# ---- what the emulation sees --------------------------------------------------------------------

group(
    "cuda sim", "plugins/cuda/sim/fiber.cpp", "cuda_sim",
    ("static memory is poisoned once", "first ? static_cast<uint32_t>(SHARED_BYTES) : shared_static",
     "first ? static_cast<uint32_t>(SHARED_BYTES) : 0"),
    ("dynamic memory is poisoned once", "memset(shared + SHARED_BYTES - dynamic, 0xff",
     "if (first) memset(shared + SHARED_BYTES - dynamic, 0xff"),
    ("nothing is behind static memory", "(room && shared[shared_static + i] != 0xff)", "0"),
    ("nothing is behind dynamic memory", "shared[SHARED_BYTES + i] != 0xff ||", ""),
    ("any amount of static memory", "if (bytes > SHARED_BYTES - running->dynamic) fiber_die",
     "if (0) fiber_die"),
    ("a thread may be outside of its mask", "if (!(f.mask >> f.lane & 1)) fiber_die", "if (0) fiber_die"),
    ("a lane may leave", "other >= n || fibers[other].state == DONE", "other >= n"),
    ("masks may differ", "&& fibers[other].mask == f.mask", ""),
    ("a barrier may be left", "if (waiting && waiting == left && left < n)", "if (0)"),
    ("fibers go on in order", "seed && i > 0; i--", "0 && i > 0; i--"),
    ("blocks go on in order", "order & 1 ? blocks - 1 - i : i", "i"),
)
group("cuda sim", "plugins/cuda/sim/sim.h", "cuda_sim",
      ("a lane outside of a mask is read", "mask >> (from & 31) & 1 ?", "1 ?"))
group(
    "cuda sim", "plugins/cuda/sim/memory.cpp", "cuda_sim",
    ("nothing is before an allocation", "if (n->at[-b] != POISON)", "if (0)"),
    ("nothing is behind an allocation", "if (n->at[n->bytes + static_cast<size_t>(b)] != POISON)",
     "if (0)"),
    ("fresh memory is zero", "memset(n.map, POISON, mapped);",
     "memset(n.map, POISON, mapped);\n    memset(n.at, 0, bytes);"),
    ("copies may leave an allocation", " && bytes <= pieces[i - 1].bytes - from;", ";"),
    ("the card has no end", "(kind == MEMORY_DEVICE && bytes > total - used)", "0", "cuda_driver"),
)
group(
    "cuda sim", "plugins/cuda/sim/driver.cpp", "cuda_driver",
    ("memory may stay", "if (memory_count())", "if (0)"),
    ("events may stay", "if (things) die_of", "if (0) die_of"),
    ("contexts may stay pushed", "if (depth) die_of", "if (0) die_of"),
    ("no call finds no memory", "return ++takes == fail_memory;", "return 0;"),
    ("kernels stay resident", "memset(resident, 0, sizeof resident);", ""),
)
group(
    "cuda sim", "plugins/cuda/sim/state.h", "cuda_driver",
    ("no context is needed", "if (!depth || !references) return", "if (!references) return"),
    ("errors pass", "if (work.sticky) return static_cast<cu_result>(work.sticky);", ""),
    ("anything may be recorded", "if (work.capture && !(recorded)) return CU_INVALIDATED", ""),
    ("any stream will do", "return s == reinterpret_cast<cu_stream>(&work);", "return s || 1;"),
)
group(
    "cuda sim", "plugins/cuda/sim/driver_stream.cpp", "cuda_driver",
    ("what is asked is done at once", "if (stream_add(&work, &c)) return CU_OK;",
     "if (stream_add(&work, &c)) return work.capture ? CU_OK : drain();"),
    ("no copy is taken at once", "if (!memory_holds(from, bytes, MEMORY_PINNED)) {", "if (0) {"),
    ("copies down go anywhere", "if (!memory_holds(to, bytes, MEMORY_PINNED)) return CU_INVALID_VALUE;", ""),
    ("a kernel need not be resident", "!(resident[i / 64] >> i % 64 & 1) ||", ""),
    ("a graph need not be uploaded", "if (!is_made(s) || !x->uploaded)", "if (!is_made(s))"),
    ("a query does all", "if (e->passed < e->recorded) stream_step(&work);", "drain();"),
    ("a wait does all", "while (e->passed < e->recorded && stream_step(&work)) {", "while (stream_step(&work)) {"),
)
group(
    "cuda sim", "plugins/cuda/sim/stream.cpp", "cuda_driver",
    ("no kernel fails", "if (++s->launches == s->fail_launch) {", "if (0) {"),
    ("a lost card goes on", "    if (s->sticky) return;\n", ""),
)
