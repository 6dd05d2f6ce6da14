/* fuse - see fuse.h. */
#include "fuse.h"

#include "plan_check.h"

#include <stdlib.h>
#include <string.h>

fuse_mask fuse_offered(const fak_op_entry *op, uint32_t ops, uint32_t stride)
{
    fuse_mask mask = 0;
    for (uint32_t i = 0; i < ops; i++) {
        fak_op_entry entry;
        fak_get(&entry, sizeof entry, op, stride, i);
        for (uint32_t r = 0; ops_row(r); r++)
            if (ops_row(r)->parts && ops_row(r)->id == entry.id && entry.revision >= 1)
                mask |= 1u << r;
    }
    return mask;
}

typedef struct fuser {
    const fak_plan *p;
    uint32_t *uses;    /* [values] inputs that name it */
    uint32_t *segment; /* [ops] 0 the body, 1.. the tails: nothing is fused across */
    uint32_t *length;  /* [ops] ops that the fused op beginning here replaces; 1 = none */
    uint8_t *claimed;  /* [ops] part of a fused op */
    fak_op *fused;     /* [ops] where length > 1 */
} fuser;

/* Is operand `id` what the pattern's code asks for?  Binds inputs that are met first; what the parts
 * write themselves is no input. */
static int unify(fak_op *f, const uint32_t *written, uint8_t code, uint32_t id)
{
    if (code >= OP_TEMP) return written[code - OP_TEMP] == id;
    for (uint32_t k = 0; k < OP_PARTS; k++)
        if (written[k] && written[k] == id) return 0;
    if (!f->in[code]) f->in[code] = id;
    return f->in[code] == id;
}

/* Copies the parameters that a part reads; two parts must agree on what they share. */
static int merge_params(fak_op *f, uint32_t *set, const op_info *core, const fak_op *o)
{
    for (uint32_t j = 0; j < OP_PARAMS; j++) {
        char *to = (char *)f + op_params[j].offset;
        const char *from = (const char *)o + op_params[j].offset;
        if (!(core->params >> j & 1)) continue;
        if (*set >> j & 1 && memcmp(to, from, 4)) return 0;
        memcpy(to, from, 4);
        *set |= 1u << j;
    }
    return 1;
}

/* Does the part match op o?  Then f and written take it in. */
static int match_part(const op_part *part, const fak_op *o, fak_op *f, uint32_t *params,
                      uint32_t *written, uint32_t k)
{
    const op_info *core = ops_find(part->id);
    fak_op tried = *f;
    if (o->id != part->id) return 0;
    for (uint32_t j = 0; j < core->inputs; j++)
        if (!unify(&tried, written, part->in[j], o->in[j])) return 0;
    if (!merge_params(&tried, params, core, o)) return 0;
    *f = tried;
    written[k] = o->out[0];
    if (part->out != OP_ABSENT) f->out[part->out] = o->out[0];
    return 1;
}

/* What only the parts see must be used by them alone. */
static int hidden(const fuser *u, const op_info *info, const fak_op *f, uint32_t at, uint32_t count,
                  const uint32_t *written)
{
    for (uint32_t k = 0; k < info->parts; k++) {
        uint32_t id = written[k], inside = 0;
        if (!id || info->part[k].out != OP_ABSENT) continue;
        for (uint32_t i = at; i < at + count; i++) {
            fak_op o = plan_op(u->p, i);
            for (uint32_t j = 0; j < OP_INPUTS; j++) inside += o.in[j] == id;
        }
        if (inside != u->uses[id] || plan_value(u->p, id).kind != FAK_ACT) return 0;
    }
    return f->out[0] != 0 || !info->outputs;
}

/* Matches row `info` at op `at`: the number of ops replaced, or 0. */
static uint32_t match(const fuser *u, const op_info *info, uint32_t at, fak_op *f)
{
    uint32_t next = at, params = 0, written[OP_PARTS] = {0};
    *f = (fak_op){.id = info->id, .revision = 1, .layer = plan_op(u->p, at).layer};
    for (uint32_t k = 0; k < info->parts; k++) {
        const op_part *part = &info->part[k];
        int there = next < u->p->ops.count && !u->claimed[next] &&
                    u->segment[next] == u->segment[at];
        fak_op o = there ? plan_op(u->p, next) : (fak_op){0};
        if (there && o.layer == f->layer && match_part(part, &o, f, &params, written, k)) {
            next++;
            continue;
        }
        int optional = 0;
        for (uint32_t j = 0; j < 4; j++)
            optional |= part->in[j] < OP_TEMP && part->in[j] >= info->required;
        if (!optional) return 0;
    }
    return hidden(u, info, f, at, next - at, written) ? next - at : 0;
}

static void match_all(fuser *u, const op_info *info, fuse_mask bit, const plan *from,
                      const fuse_mask *refused)
{
    for (uint32_t i = 0; i < u->p->ops.count; i++) {
        fak_op f;
        if (u->claimed[i] || refused[from->origin[i]] & bit) continue;
        uint32_t n = match(u, info, i, &f);
        if (n < 2) continue;
        u->length[i] = n;
        u->fused[i] = f;
        memset(u->claimed + i, 1, n);
        i += n - 1;
    }
}

/* ---- rewriting ---- */

static int fuser_init(fuser *u, const fak_plan *p)
{
    size_t ops = (size_t)p->ops.count + 1;
    *u = (fuser){.p = p,
                 .uses = calloc((size_t)p->values.count + 1, 4),
                 .segment = calloc(ops, 4),
                 .length = calloc(ops, 4),
                 .claimed = calloc(ops, 1),
                 .fused = calloc(ops, sizeof(fak_op))};
    if (!u->uses || !u->segment || !u->length || !u->claimed || !u->fused) return -1;
    for (uint32_t i = 0; i < p->ops.count; i++) {
        fak_op o = plan_op(p, i);
        for (uint32_t j = 0; j < OP_INPUTS; j++) u->uses[o.in[j]]++;
        u->length[i] = 1;
    }
    for (uint32_t t = 0; t < p->tails.count; t++) {
        fak_tail tail = plan_tail(p, t);
        for (uint32_t i = 0; i < tail.ops; i++) u->segment[tail.first + i] = t + 1;
    }
    return 0;
}

static void fuser_free(fuser *u)
{
    free(u->uses);
    free(u->segment);
    free(u->length);
    free(u->claimed);
    free(u->fused);
}

/* Writes the new list; map[i] = new index of old op i (or of the fused op it went into). */
static void rewrite(const fuser *u, const plan *from, plan_draft *d, uint32_t *map)
{
    const fak_plan *p = u->p;
    for (uint32_t i = 0; i < p->values.count; i++) {
        fak_value v = plan_value(p, i);
        plan_add_value(d, &v, from->weight[i]);
    }
    for (uint32_t i = 0; !d->failed && i < p->ops.count;) {
        uint32_t n = u->length[i];
        fak_op o = plan_op(p, i);
        for (uint32_t j = 0; n > 1 && j < n; j++) { /* what is handed on inside has no value */
            fak_op part = plan_op(p, i + j);
            int kept = 0;
            for (uint32_t k = 0; k < OP_OUTPUTS; k++) kept |= u->fused[i].out[k] == part.out[0];
            if (part.out[0] && !kept) d->value[part.out[0]] = (fak_value){.kind = FAK_UNUSED};
        }
        uint32_t at = plan_add_op(d, n > 1 ? &u->fused[i] : &o, from->origin[i]);
        for (uint32_t j = 0; j < n; j++) map[i++] = at;
    }
    map[p->ops.count] = d->ops;
}

static void move_ranges(const fak_plan *p, plan_draft *d, const uint32_t *map)
{
    d->body_ops = map[p->body_ops];
    d->layers = p->layers;
    for (d->tails = 0; d->tails < p->tails.count; d->tails++) {
        fak_tail t = plan_tail(p, d->tails);
        uint32_t end = map[t.first + t.ops];
        t.first = map[t.first];
        t.ops = end - t.first;
        d->tail[d->tails] = t;
    }
    for (d->repeats = 0; d->repeats < p->repeats.count; d->repeats++) {
        fak_repeat r = plan_repeat(p, d->repeats);
        uint32_t end = map[r.first + r.ops];
        r.first = map[r.first];
        r.ops = end - r.first;
        d->repeat[d->repeats] = r;
    }
}

int32_t fuse_plan(plan *to, const plan *from, fuse_mask offered, const fuse_mask *refused,
                  fak_error *e)
{
    const fak_plan *p = from->block;
    fuser u;
    plan_draft d = {0};
    uint32_t *map = calloc((size_t)p->ops.count + 1, sizeof *map);
    int32_t s = map && !fuser_init(&u, p) ? FAK_OK : status_memory(e, "fusing the plan", p->bytes);
    *to = (plan){0};
    if (!map) return s;
    for (uint32_t r = 0; !s && ops_row(r); r++)
        if (offered >> r & 1) match_all(&u, ops_row(r), 1u << r, from, refused);
    if (!s) {
        rewrite(&u, from, &d, map);
        move_ranges(p, &d, map);
        s = plan_pack(to, &d, e);
    }
    for (uint32_t i = 0; !s && d.ops < p->ops.count && i < d.repeats; i++) {
        fak_error unlike;
        if (plan_check_repeat(to->block, &d.repeat[i],
                              &unlike)) { /* fused differently: no repeat */
            plan_free(to);
            d.repeats = 0;
            s = plan_pack(to, &d, e);
        }
    }
    plan_draft_free(&d);
    fuser_free(&u);
    free(map);
    return s;
}
