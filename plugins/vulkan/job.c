/* job - see job.h. */
#include "job.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS_MOST = 32768 };

uint32_t job_grid(maker *m, grid g)
{
    fak_program *p = m->p;
    for (uint32_t i = 0; i < p->grid_count; i++)
        if (!memcmp(&p->grids[i], &g, sizeof g)) return i;
    if (p->grid_count == GRIDS) {
        m->failed = FAK_E_UNSUPPORTED;
        return 0;
    }
    p->grids[p->grid_count] = g;
    return p->grid_count++;
}

/* A job with the parameters of its op, a workgroup of y for each row. */
job *job_add(maker *m, enum shader s, uint32_t x)
{
    static job spare;
    fak_program *p = m->p;
    const fak_op *o = m->o;
    if (p->job_count == p->job_room) {
        uint32_t room = p->job_room ? 2 * p->job_room : 256;
        job *wider = realloc(p->jobs, room * sizeof *wider);
        if (!wider) {
            m->failed = FAK_E_MEMORY;
            return &spare;
        }
        p->jobs = wider;
        p->job_room = room;
    }
    job *j = &p->jobs[p->job_count++];
    *j = (job){.shapes = ALL_SHAPES,
               .c = {.which = m->wanted,
                     .heads = o->heads,
                     .kv_heads = o->kv_heads,
                     .head_dim = o->head_dim,
                     .rot_dim = o->rot_dim,
                     .window = o->window,
                     .act = o->act,
                     .eps = o->eps,
                     .scale = o->scale,
                     .softcap = o->softcap}};
    uint32_t grid_index = job_grid(m, (grid){x, m->wanted ? PER_WANTED : PER_ROW, 1});
    for (int i = 0; i < SHAPES; i++) {
        j->kernel[i].shader = s;
        j->grid[i] = grid_index;
    }
    return j;
}

void job_spec(job *j, uint32_t id, uint32_t n)
{
    for (int i = 0; i < SHAPES; i++) j->kernel[i].spec[id] = n;
}

/* The kernel of a product by the step's shape, with the rows and outputs of a workgroup.  More in a kernel
 * by row no longer unroll.  Cooperative matrices would be one more TILE, named here where a device has
 * them: the glslc of today (Debian 12) knows them not. */
typedef struct tile {
    enum shader shader;
    uint32_t rows, outputs;
} tile;
/* clang-format off */
static const tile tiles[2][2][SHAPES] = { /* [by row][activations in Q8] */
    {{{SHADER_MATMUL, 1, 1}, {SHADER_MATMUL, 4, 1}, {SHADER_MATMUL_TILE, 32, 64}},
     {{SHADER_MATMUL_Q8, 1, 1}, {SHADER_MATMUL_Q8, 4, 1}, {SHADER_MATMUL_Q8_ROW, 4, 256}}},
    {{{SHADER_MATMUL_ROW, 1, 64}, {SHADER_MATMUL_ROW, 4, 64}, {SHADER_MATMUL_ROW, 4, 64}},
     {{SHADER_MATMUL_Q8_ROW, 1, 64}, {SHADER_MATMUL_Q8_ROW, 4, 64}, {SHADER_MATMUL_Q8_ROW, 4, 64}}},
};
/* clang-format on */

void job_tile(maker *m, job *j, uint32_t count, int q8)
{
    const tile *t = tiles[m->p->d->opt.rows != 0][q8];
    for (int i = 0; i < SHAPES; i++) {
        uint32_t x = job_up(count, t[i].outputs), per = m->wanted ? PER_WANTED : PER_ROW;
        kernel *k = &j->kernel[i];
        k->shader = t[i].shader;
        k->spec[1] = t[i].rows;
        if (t[i].shader == SHADER_MATMUL_Q8_ROW) k->spec[5] = t[i].outputs / 4;
        j->grid[i] = job_grid(m, (grid){x < GROUPS_MOST ? x : GROUPS_MOST, per, t[i].rows});
    }
}

void job_bind(const maker *m, job *j, int at, uint32_t id)
{
    j->bind[at] = (bind){&m->p->store, m->p->at[id]};
}

void job_bind_step(const maker *m, job *j)
{
    j->bind[Z] = (bind){&m->p->store, j->side ? m->p->side : m->p->step};
}

void job_bind_span(const maker *m, job *j, int at, const uint32_t *id, uint32_t n)
{
    j->bind[at] = (bind){&m->p->store, vk_span(m->p, id, n)};
}

/* Words from where a binding begins. */
uint32_t job_word(const maker *m, const job *j, int at, uint32_t id)
{
    return (uint32_t)((m->p->at[id].at - j->bind[at].place.at) / 4);
}

void job_bind_segment(const maker *m, job *j, uint32_t id, const segment *g, const tensor *t)
{
    j->bind[W] = (bind){vk_weight_store(m->p->weights, id), g->at};
    j->c.a_row = t->a_row;
    j->c.b_row = t->b_row;
    j->c.b_at = g->rows * t->a_row;
}

/* A weight that lies in one piece: a norm, a bias, a table. */
void job_bind_row(const maker *m, job *j, uint32_t id)
{
    uint32_t first;
    const tensor *t = vk_weight(m->p->weights, id, &first);
    job_bind_segment(m, j, id, &t->segment[0], t);
}

void job_bind_norm(const maker *m, job *j, uint32_t id)
{
    uint32_t first;
    const tensor *t = vk_weight(m->p->weights, id, &first);
    j->bind[Z] = (bind){vk_weight_store(m->p->weights, id), t->segment[0].at};
}

void job_bind_kv(const maker *m, job *j, int at, const kv_layer *l, uint32_t piece)
{
    uint32_t first = piece * l->piece_pages, rest = m->p->pages.count - first;
    j->bind[at] = (bind){&m->p->store, l->piece[piece]};
    j->c.first = first;
    j->c.count = rest < l->piece_pages ? rest : l->piece_pages;
    j->c.values = j->c.count * l->page_words;
    j->c.raw = l->keeps_raw ? 2 * j->c.values : 0;
    job_spec(j, 0, m->p->limits.kv_dtype);
    job_spec(j, 3, l->pieces > 1);
}
