/* beside - what is done beside a step: survivors of an eviction move. */
#include "job.h"

/* Raw keys and values are gathered as rows, then appended where they go, piece by piece. */
static void make_evict(maker *m, const kv_layer *l)
{
    uint32_t v = m->p->side_rows * l->cols;
    bind rows = {&m->p->store, m->p->survivors};
    for (uint32_t i = 0; i < l->pieces; i++) {
        job *j = job_add(m, SHADER_GATHER, job_up(l->cols, THREADS));
        j->side = 1;
        job_bind_kv(m, j, W, l, i);
        j->bind[Y] = rows;
        job_bind_step(m, j);
        j->c.y1 = v;
    }
    for (uint32_t i = 0; i < l->pieces; i++) {
        job *j = job_add(m, SHADER_APPEND, job_up(l->cols / 2, THREADS));
        j->side = 1;
        job_bind_row(m, j, l->table);
        job_bind_kv(m, j, Y, l, i);
        j->bind[X] = rows;
        job_bind_step(m, j);
        j->c.source = v;
    }
}

void job_make_side(maker *m)
{
    fak_program *p = m->p;
    m->wanted = 0;
    p->evict_job = p->job_count;
    for (uint32_t i = 0; i < p->layers && p->side_rows; i++) {
        const kv_layer *l = &p->layer[i];
        fak_op o = {.kv_heads = l->kv_heads, .head_dim = l->head_dim, .rot_dim = l->rot_dim};
        m->o = &o;
        make_evict(m, l);
    }
}
