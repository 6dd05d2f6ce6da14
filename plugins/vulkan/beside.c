/* beside - what is done beside a step: pages are copied, survivors of an eviction move. */
#include "job.h"

static void make_copy(maker *m, const kv_layer *l)
{
    uint32_t raw = l->raw ? PAGE * l->cols : 0;
    uint32_t words = PAGE * l->cols * vk_element_bytes(m->p->limits.kv_dtype) / 4;
    job *j = job_add(m, SHADER_PAGES, 1);
    j->side = 1;
    job_bind_kv(m, j, Y, l);
    job_bind_step(m, j);
    j->c.count = words;
    j->c.group = raw;
    uint32_t index = job_grid(m, (grid){job_up(raw > words ? raw : words, THREADS), PER_COPY, 1});
    for (int i = 0; i < SHAPES; i++) j->grid[i] = index;
}

/* Raw keys and values are gathered as rows, then appended where they go. */
static void make_evict(maker *m, const kv_layer *l)
{
    uint32_t v = m->p->side_rows * l->cols;
    bind rows = {&m->p->store, m->p->survivors};
    job *j = job_add(m, SHADER_GATHER, job_up(l->cols, THREADS));
    j->side = 1;
    job_bind_kv(m, j, W, l);
    j->bind[Y] = rows;
    job_bind_step(m, j);
    j->c.y1 = v;
    j = job_add(m, SHADER_APPEND, job_up(l->cols / 2, THREADS));
    j->side = 1;
    job_bind_row(m, j, l->table);
    job_bind_kv(m, j, Y, l);
    j->bind[X] = rows;
    job_bind_step(m, j);
    j->c.source = v;
}

void job_make_side(maker *m)
{
    fak_program *p = m->p;
    m->wanted = 0;
    p->copy_job = p->job_count;
    for (int evict = 0; evict < 2; evict++) {
        if (evict) p->evict_job = p->job_count;
        for (uint32_t i = 0; i < p->layers && (!evict || p->side_rows); i++) {
            const kv_layer *l = &p->layer[i];
            fak_op o = {.kv_heads = l->kv_heads, .head_dim = l->head_dim, .rot_dim = l->rot_dim};
            m->o = &o;
            if (evict)
                make_evict(m, l);
            else
                make_copy(m, l);
        }
    }
}
