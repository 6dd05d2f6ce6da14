/* check_pair - see check_pair.h. */
#include "check_pair.h"

#include <stdlib.h>

int32_t pair_open(pair *p, check *c, toy *g, const session_options *options, uint32_t dtype,
                  fak_error *e)
{
    session_options o = *options;
    *p = (pair){.c = c, .tally = {.logits = GATE_NONE}};
    o.rows = o.wanted = PAIR_ROWS;
    o.slots = PAIR_SLOTS;
    o.context = PAIR_CONTEXT;
    p->bound = gate_bound_of(&c->dev, o.act, dtype, o.kv_dtype);
    for (int i = 0; i < 2; i++) p->row[i] = malloc(PAIR_ROWS * PAIR_V * sizeof(float));
    if (!p->row[0] || !p->row[1]) return status_memory(e, "logits", PAIR_ROWS * PAIR_V * 4);
    int32_t s = session_open(&p->s[0], &g->m, &c->dev, c->host, &o, NULL, NULL, e);
    if (o.act == FAK_ACT_F16) o.act = FAK_ACT_F32; /* that is judged by the reference's F32 */
    if (!s) s = session_open(&p->s[1], &g->m, c->host, c->host, &o, NULL, NULL, e);
    uint64_t random = check_seed(c, dtype);
    for (uint32_t i = 0; i < PAIR_CONTEXT; i++) p->id[i] = toy_below(&random, PAIR_V);
    return s;
}

void pair_close(pair *p)
{
    for (int i = 0; i < 2; i++) {
        session_close(&p->s[i]);
        free(p->row[i]);
    }
}

static void compare(pair *p, uint32_t rows)
{
    for (uint32_t r = 0; r < rows; r++) {
        size_t at = (size_t)r * PAIR_V;
        gate_add_position(&p->tally, &p->bound, PAIR_V, p->row[1] + at, p->row[0] + at);
        gate_add_position(p->all, &p->bound, PAIR_V, p->row[1] + at, p->row[0] + at);
    }
}

int32_t pair_take(pair *p, uint32_t *slot, fak_error *e)
{
    int32_t s = kv_take(&p->s[0].kv, slot, e);
    return s ? s : kv_take(&p->s[1].kv, slot, e);
}

int32_t pair_feed(pair *p, uint32_t slot, const uint32_t *id, uint32_t n, fak_error *e)
{
    int32_t s = FAK_OK;
    for (int i = 0; !s && i < 2; i++)
        s = session_feed(&p->s[i], slot, id, n, FAK_WANT_LOGITS, 1, p->row[i], e);
    if (!s) compare(p, n);
    return s;
}

void pair_truncate(pair *p, uint32_t slot, uint32_t length)
{
    for (int i = 0; i < 2; i++) kv_truncate(&p->s[i].kv, slot, length);
}

int32_t pair_clone(pair *p, uint32_t from, uint32_t length, uint32_t *slot, fak_error *e)
{
    int32_t s = kv_clone(&p->s[0].kv, from, length, slot, e);
    return s ? s : kv_clone(&p->s[1].kv, from, length, slot, e);
}

int32_t pair_evict(pair *p, uint32_t slot, uint32_t first, uint32_t count, fak_error *e)
{
    int32_t s = kv_evict(&p->s[0].kv, slot, first, count, e);
    return s ? s : kv_evict(&p->s[1].kv, slot, first, count, e);
}

int32_t pair_batch_step(session *s, const fak_span *span, uint32_t spans, const uint32_t *id,
                        uint32_t rows, float *out, fak_error *e)
{
    const fak_report *r = &s->program.report[SIDE_DEVICE];
    uint32_t ones = r->shapes & FAK_ROW_SPANS && spans == rows;
    if (r->shapes && !(r->shapes & FAK_ANY_SPANS) && !ones) {
        for (uint32_t i = 0; i < spans; i++) {
            int32_t rc = session_feed(s, span[i].slot, id + span[i].row, span[i].rows,
                                      FAK_WANT_LOGITS, 1, out + (size_t)span[i].row * PAIR_V, e);
            if (rc) return rc;
        }
        return FAK_OK;
    }
    step_spec spec = {FAK_WANT_LOGITS, 0, rows, rows, spans, id, s->row, span};
    int32_t rc = exec_step(&s->exec, step_write(s->step, &spec), out, e);
    for (uint32_t i = 0; !rc && i < spans; i++) kv_extend(&s->kv, span[i].slot, span[i].rows);
    return rc;
}

int32_t pair_batch(pair *p, const fak_span *span, uint32_t spans, fak_error *e)
{
    uint32_t rows = span[spans - 1].row + span[spans - 1].rows;
    int32_t s = FAK_OK;
    for (int i = 0; !s && i < 2; i++)
        s = pair_batch_step(&p->s[i], span, spans, p->id, rows, p->row[i], e);
    if (!s) compare(p, rows);
    return s;
}
