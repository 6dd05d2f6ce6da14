/* engine - a tiny model made ready on a backend, for tests that run steps.  What fails here fails
 * the test; engine_try and engine_step answer instead. */
#ifndef ENGINE_H
#define ENGINE_H
#include "support.h"

#include "../core/exec.h"
#include "../core/kv.h"
#include "mock/refuser.h"

extern fak_entry_fn fak_backend_entry_v1_honest;

enum { ENGINE_CONTEXT = 40, ENGINE_SLOTS = 4, ENGINE_ROWS = 48, ENGINE_VOCAB = 400 };

typedef struct backend_pair { /* a backend by name, and the linked-in cpu-ref beside it */
    plugins all;
    plugin mock;
    device dev, host;
} backend_pair;

/* name: "cpu-ref", "refuser", "honest", or the path of a file.  options: "fused=1 refuse=rope+glu", or NULL. */
void backend_open(backend_pair *b, const char *name, const char *options);
void backend_close(backend_pair *b);

typedef struct engine { /* zero-initialise */
    tiny tiny;
    backend_pair backend;
    program program;
    exec exec;
    kv kv;
    void *block;        /* of the largest step */
    uint32_t V;
} engine;

/* ENGINE_ROWS rows, all of which may be wanted; a span for each of ENGINE_SLOTS slots. */
fak_limits engine_limits(uint32_t act, uint32_t kv_dtype);
/* Opens the file and the backend. */
void engine_begin(engine *g, const char *file, const char *backend, const char *options);
/* Prepares, loads and opens what runs; again after engine_end. */
int32_t engine_try(engine *g, const fak_limits *limits, uint32_t flags, fak_error *e);
void engine_end(engine *g); /* undoes engine_try, at whatever point it failed */
void engine_close(engine *g);
/* begin and try. */
void engine_open(engine *g, const char *file, const char *backend, const char *options,
                 const fak_limits *limits, uint32_t flags);

/* A step; the core's lengths (g->kv) are not told. */
int32_t engine_step(engine *g, const step_spec *spec, void *out, fak_error *e);
/* A step of one span with an answer for each row. */
step_spec engine_spec(const fak_span *span, const uint32_t *token, uint32_t want);
/* Ids at positions [first, first + rows) of a slot, an answer for each: [rows, V] or [rows]. */
void engine_feed(engine *g, uint32_t slot, uint32_t first, const uint32_t *token, uint32_t rows,
                 uint32_t want, void *out);
/* n ids that the model has, the same for the same seed. */
void engine_tokens(const engine *g, uint64_t seed, uint32_t *token, uint32_t n);

extern const uint32_t engine_rows[ENGINE_ROWS]; /* 0, 1, 2 ... */

/* a and b hold the same bits, and not those that memory held before: none is NaN. */
void assert_rows(const float *a, const float *b, size_t count);
#endif
