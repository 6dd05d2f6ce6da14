/* engine - see engine.h. */
#include "engine.h"

#include <math.h>

/* ---- backends ---- */

enum { SETTINGS = 8 };

/* Cuts "a=b c=d" in place. */
static uint32_t cut(char *text, fak_setting *set)
{
    uint32_t n = 0;
    for (char *at = strtok(text, " "); at; at = strtok(NULL, " ")) {
        char *value = strchr(at, '=');
        assert_non_null(value);
        assert_true(n < SETTINGS);
        *value = 0;
        set[n++] = (fak_setting){at, value + 1};
    }
    return n;
}

void backend_open(backend_pair *b, const char *name, const char *options)
{
    char text[512] = "";
    fak_setting set[SETTINGS];
    fak_error e = {0};
    int file = strchr(name, '/') != NULL, mock = !file && strcmp(name, "cpu-ref");
    *b = (backend_pair){0};
    snprintf(b->mock.name, sizeof b->mock.name, "%s", file ? "" : name);
    b->mock.entry = strcmp(name, "honest") ? fak_backend_entry_v1_refuser
                                           : fak_backend_entry_v1_honest;
    snprintf(text, sizeof text, "%s", options ? options : "");
    uint32_t sets = cut(text, set);
    if (plugins_open(&b->all, &(plugin_search){file ? name : NULL, NULL, 0}, &(plugin_host){0}, &e))
        fail_msg("%s", e.message);
    plugin *ref = plugins_linked_in(&b->all, "cpu-ref");
    assert_non_null(ref);
    plugin *asked = file ? &b->all.at[0] : mock ? &b->mock : ref;
    if (plugin_load(&b->all, ref, &e) || plugin_load(&b->all, asked, &e) ||
        device_open(&b->dev, asked, 0, set, sets, &e) || device_open(&b->host, ref, 0, NULL, 0, &e))
        fail_msg("%s %s: %s", name, options ? options : "", e.message);
}

void backend_close(backend_pair *b)
{
    device_close(&b->dev);
    device_close(&b->host);
    plugins_close(&b->all);
}

/* ---- engines ---- */

fak_limits engine_limits(uint32_t act, uint32_t kv_dtype)
{
    return (fak_limits){
        .struct_size = sizeof(fak_limits),
        .numerics = act,
        .rows = ENGINE_ROWS,
        .wanted = ENGINE_ROWS,
        .spans = ENGINE_SLOTS,
        .slots = ENGINE_SLOTS,
        .context = ENGINE_CONTEXT,
        .kv_tokens = ENGINE_SLOTS * ENGINE_CONTEXT,
        .kv_dtype = kv_dtype,
        .step_bytes = step_bytes(ENGINE_ROWS, ENGINE_ROWS, ENGINE_SLOTS),
        .steps = 1,
    };
}

void engine_begin(engine *g, const char *file, const char *backend, const char *options)
{
    *g = (engine){0};
    backend_open(&g->backend, backend, options);
    tiny_open(&g->tiny, file);
    g->V = g->tiny.model.vocab;
    assert_in_range(g->V, 100, ENGINE_VOCAB);
    g->block = malloc(step_bytes(ENGINE_ROWS, ENGINE_ROWS, ENGINE_SLOTS));
    assert_non_null(g->block);
}

int32_t engine_try(engine *g, const fak_limits *limits, uint32_t flags, fak_error *e)
{
    int32_t s = program_prepare(&g->program, &g->backend.dev, &g->backend.host, &g->tiny.model,
                                limits, flags, e);
    if (!s) s = program_load(&g->program, NULL, NULL, e);
    if (!s) s = exec_open(&g->exec, &g->program, e);
    return s ? s : kv_open(&g->kv, &g->program, e);
}

void engine_end(engine *g)
{
    kv_close(&g->kv);
    exec_close(&g->exec);
    program_close(&g->program);
}

void engine_close(engine *g)
{
    engine_end(g);
    tiny_close(&g->tiny);
    backend_close(&g->backend);
    free(g->block);
    *g = (engine){0};
}

void engine_open(engine *g, const char *file, const char *backend, const char *options,
                 const fak_limits *limits, uint32_t flags)
{
    fak_error e = {0};
    engine_begin(g, file, backend, options);
    if (engine_try(g, limits, flags, &e))
        fail_msg("%s on %s %s: %s", file, backend, options ? options : "", e.message);
}

/* ---- steps ---- */

#define FOUR(n) (n), (n) + 1, (n) + 2, (n) + 3
const uint32_t engine_rows[ENGINE_ROWS] = {FOUR(0),  FOUR(4),  FOUR(8),  FOUR(12),
                                           FOUR(16), FOUR(20), FOUR(24), FOUR(28),
                                           FOUR(32), FOUR(36), FOUR(40), FOUR(44)};

int32_t engine_step(engine *g, const step_spec *spec, void *out, fak_error *e)
{
    *e = (fak_error){0};
    return exec_step(&g->exec, step_write(g->block, spec), out, e);
}

step_spec engine_spec(const fak_span *span, const uint32_t *token, uint32_t want)
{
    return (step_spec){.want = want,
                       .rows = span->rows,
                       .wanted = span->rows,
                       .spans = 1,
                       .token = token,
                       .wanted_row = engine_rows,
                       .span = span};
}

void engine_feed(engine *g, uint32_t slot, uint32_t first, const uint32_t *token, uint32_t rows,
                 uint32_t want, void *out)
{
    fak_error e;
    fak_span span = {slot, 0, rows, first};
    step_spec spec = engine_spec(&span, token, want);
    if (engine_step(g, &spec, out, &e))
        fail_msg("%u ids at %u of slot %u: %s", (unsigned)rows, (unsigned)first, (unsigned)slot,
                 e.message);
}

void engine_tokens(const engine *g, uint64_t seed, uint32_t *token, uint32_t n)
{
    seed = seed * 2862933555777941757u + 3037000493u;
    for (uint32_t i = 0; i < n; i++) token[i] = random_below(&seed, g->V);
}

void assert_rows(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (isnan(a[i]) || isnan(b[i])) fail_msg("a NaN at %zu", i);
        if (memcmp(&a[i], &b[i], sizeof *a))
            fail_msg("bits differ at %zu of %zu: %a and %a", i, count, (double)a[i], (double)b[i]);
    }
}
