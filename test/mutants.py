"""mutants - one mistake each, and the test that must fail where it is planted.

Run by scripts/mutate.  Each entry: name, old text (there exactly once in the file), new text, and
the killer: a meson test, of the group unless the entry has its own.  A rung of the conformance kit
is a killer once it is a meson test.  What changes nothing that can be seen is no mutant: leave it
out.  Those of plugins/cuda are in mutants_cuda.py.
"""

MUTANTS = []


def group(prefix, file, killer, *entries):
    for name, old, new, *own in entries:
        MUTANTS.append({"name": f"{prefix}: {name}", "file": file, "old": old, "new": new,
                        "killer": own[0] if own else killer})


# ---- the reference ----------------------------------------------------------------------------

group(
    "ref", "core/ref.c", "ref",
    ("exp, a coefficient's last bits", "p = p * r + 0x1.55548ep-3f;", "p = p * r + 0x1.55549ep-3f;",
     "honest"),
    ("exp, clamped too late", "x > 88.3f ? 88.3f : x", "x > 89.3f ? 89.3f : x"),
    ("exp, zero too late", "x < -87.33654f ? 0.0f : y", "x < -88.5f ? 0.0f : y"),
    ("exp of a NaN", "return x == x ? y : x;", "return y;"),
    ("dot, sums in another order",
     "((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))",
     "(s[0] + s[1]) + ((s[2] + s[3]) + ((s[4] + s[5]) + (s[6] + s[7])))"),
    ("dot, dropped tail", "for (; i < n; i++) s[i & 7]", "for (; i + 1 < n; i++) s[i & 7]"),
    ("dot, lanes reversed", "s[j] = s[j] + a[i + j] * b[i + j];",
     "s[7 - j] = s[7 - j] + a[i + j] * b[i + j];"),
    ("quantise, scale", "out->d = m / 127.0f;", "out->d = m / 128.0f;"),
    ("quantise, the sum lacks one", "out->sum += out->q[i];", "out->sum += i ? out->q[i] : 0;"),
    ("quantise, smallest block", "!(m > 0x1p-100f)", "!(m > 0x1p-101f)"),
    ("quantise, infinity is a number", ".d = most >= 0x7f800000u ?", ".d = most > 0x7f800000u ?"),
    ("quantise, truncated", "(x[i] * inverse + 12582912.0f) - 12582912.0f",
     "truncf(x[i] * inverse)"),
    ("matmul Q8, dropped block", "b < blocks; b++) {\n        int32_t isum",
     "b + 1 < blocks; b++) {\n        int32_t isum"),
    ("matmul Q8, zeros in another order", "mw[b] * (x[b].d * (float)x[b].sum)",
     "(mw[b] * x[b].d) * (float)x[b].sum"),
    ("matmul Q8, scales in another order", "((float)isum * dw[b]) * x[b].d",
     "(float)isum * (dw[b] * x[b].d)"),
    ("matmul Q8, no zeros", "if (mw) v = v +", "if (0) v = v +"),
    ("matmul, scaled", "= ref_dot(I, weights, x + (size_t)t * I);",
     "= 1.02f * ref_dot(I, weights, x + (size_t)t * I);"),
    ("matmul, skipped row",
     "for (uint32_t t = 0; t < T; t++)\n            y[(size_t)t * O + o] = ref_dot",
     "for (uint32_t t = 0; t < T - (T > 1); t++)\n            y[(size_t)t * O + o] = ref_dot"),
    ("matmul, Q8 for F32 activations", "if (act_q8 && dtype_find(dtype)->block > 1) {",
     "if (dtype_find(dtype)->block > 1) {"),
    ("rmsnorm, eps outside the root", "1.0f / sqrtf(ss / (float)n + eps)",
     "1.0f / (sqrtf(ss / (float)n) + eps)"),
    ("rmsnorm, reversed sum", "ss = ss + x[g + i] * x[g + i];",
     "ss = ss + x[g + n - 1 - i] * x[g + n - 1 - i];"),
    ("rmsnorm, first group only", "for (uint32_t g = 0; g < D; g += n)",
     "for (uint32_t g = 0; g < n; g += n)"),
    ("rmsnorm, product in another order", "(x[g + i] * inverse) * w[i]",
     "x[g + i] * (inverse * w[i])"),
    ("rope, wrong sign", "y[i] = a * c - b * s;", "y[i] = a * c + b * s;"),
    ("rope, tail not passed through", "for (uint32_t i = rot; i < d; i++) y[i] = x[i];",
     "for (uint32_t i = rot + 1; i < d; i++) y[i] = x[i];"),
    ("rope, neighbours in place of halves", "float a = x[i], b = x[half + i], c",
     "float a = x[2 * i], b = x[2 * i + 1], c"),
    ("glu, the other function", "if (act == FAK_SILU) {", "if (act != FAK_SILU) {"),
    ("glu, not multiplied", "y[i] = a * u[i];", "y[i] = a + 0 * u[i];"),
    ("softcap, not scaled back", "y[i] = cap * ref_tanh(x[i] / cap);",
     "y[i] = ref_tanh(x[i] / cap);"),
    ("argmax, last maximum", "if (x[i] > x[best]) best = i;", "if (x[i] >= x[best]) best = i;"),
    ("argmax, a NaN is passed over", "if (x[i] != x[i]) return 0xffffffffu;",
     "if (x[i] != x[i]) continue;"),
)

group(
    "ref", "core/ref.c", "ref_op",
    ("embed, a NaN row not filled", "token >= w->rows && i < w->cols", "token >= w->rows && i < 1"),
    ("embed, token beside", "uint32_t token = word(m->step, m->step->token, r);",
     "uint32_t token = word(m->step, m->step->token, r ? r - 1 : r);"),
    ("take_rows, not those wanted", "word(m->step, m->step->wanted, r)), (size_t)cols * 4);",
     "r), (size_t)cols * 4);"),
    ("add, row 0 of the second", "out[i] = a[i] + row(m, o->in[1], r)[i];",
     "out[i] = a[i] + row(m, o->in[1], 0)[i];"),
    ("row ops, skipped row", "for (uint32_t r = 0; r < n; r++) row_op(m, o, r);",
     "for (uint32_t r = 0; r < n - (n > 1); r++) row_op(m, o, r);"),
    ("positions, stale step", "r = s.row + j, pos = s.first + j;",
     "r = s.row + j, pos = s.first ? s.first + j - 1 : j;"),
    ("spans, the first one only", "i < m->step->span.count; i++) {", "i < 1; i++) {"),
    ("attention, window off by one", "end > h->window ? end - h->window : 0",
     "end > h->window ? end - h->window + 1 : 0", "ref"),
    ("attention, first key not summed", "for (uint32_t t = from; t < end; t++) {",
     "for (uint32_t t = from + (end - from > 1); t < end; t++) {", "ref"),
    ("attention, scores not scaled", "float x = s[j] * h->scale;", "float x = s[j];", "ref"),
    ("attention, kv head of another group", "(size_t)(i / (h->heads / h->kv_heads)) * d",
     "(size_t)(i % h->kv_heads) * d", "ref"),
    ("attention, no softcap", "if (h->softcap > 0) x =", "if (0) x =", "ref"),
    ("attention, maximum of the last keys", "most = x > most ? x : most;", "most = x;", "ref"),
    ("attention, sum not divided", "y[c] = y[c] * inverse;", "y[c] = y[c] * (inverse > 0);", "ref"),
)

group(
    "ref kv", "core/ref.c", "kv_exact",
    ("slots of a layer overlap the next's", "((size_t)layer * kv->slots + slot)",
     "((size_t)layer * (kv->slots - 1) + slot)", "ref"),
    ("k and v swapped on append",
     "dtype_encode_row(kv->dtype, o->kv_heads * o->head_dim, v, kv_row(kv, kv->v, at));",
     "dtype_encode_row(kv->dtype, o->kv_heads * o->head_dim, k, kv_row(kv, kv->v, at));", "ref_op"),
    ("key not turned", "ref_rope(1, o->head_dim, o->rot_dim, key, tab, turned);",
     "ref_rope(1, o->head_dim, 0, key, tab, turned);", "ref_op"),
    ("clone lacks the last row", "(size_t)(len * dtype_row_bytes(kv->dtype, kv->width));",
     "(size_t)((len ? len - 1 : 0) * dtype_row_bytes(kv->dtype, kv->width));"),
    ("clone without raw keys", "if (kv->raw) memcpy(kv->raw + a,", "if (0) memcpy(kv->raw + a,"),
    ("raw keys of the first head only", "if (kv->raw && kv->raw + head != key)",
     "if (kv->raw && !h && kv->raw + head != key)"),
    ("evict loses the last survivor", "count && pos + count < len; pos++",
     "count && pos + count + 1 < len; pos++"),
    ("evict turns to the old position", "kv->raw + from, NULL, tab + (size_t)pos * o->rot_dim",
     "kv->raw + from, NULL, tab + (size_t)(pos + count) * o->rot_dim"),
    ("evict leaves the values", "memcpy(kv_row(kv, kv->v, to), kv_row(kv, kv->v, from),",
     "memcpy(kv_row(kv, kv->v, to), kv_row(kv, kv->v, to),"),
)

# ---- cpu-ref ----------------------------------------------------------------------------------

group(
    "cpu-ref", "plugins/cpu-ref/step.c", "kv",
    ("one position too many", "|| total > p->limits.kv_tokens)",
     "|| total > p->limits.kv_tokens + 1)"),
    ("context not checked", "if (span.rows > p->limits.context - span.first ||",
     "if (span.rows > p->limits.context ||", "cpu_ref"),
    ("a span may begin anywhere", "if (span.first > p->length[span.slot])", "if (0)"),
    ("lengths not kept", "p->length[span.slot] = span.first + span.rows;",
     "p->length[span.slot] = span.rows;"),
    ("ids of the first row only", "p->memory.at[p->argmax], s->rows * 4ul);",
     "p->memory.at[p->argmax], 4ul);", "honest"),
    ("rows from the first on", "p->memory.at[value] + first * *row_bytes;",
     "p->memory.at[value] + 0 * first * *row_bytes;", "cpu_ref"),
    ("an op that was not taken is run", "if (op >= p->ops || !p->taken[op])", "if (op >= p->ops)",
     "cpu_ref"),
    ("clone lacks the last layer", "l < p->kv_layers; l++) ref_kv_clone",
     "l + 1 < p->kv_layers; l++) ref_kv_clone", "kv_exact"),
    ("clone keeps the old length", "p->length[to] = len;", "p->length[to] = p->length[from];",
     "cpu_ref"),
    ("trim does nothing", "if (!s && p->length[slot] > len) p->length[slot] = len;",
     "if (!s && p->length[slot] < len) p->length[slot] = len;"),
    ("evict keeps the old length", "p->length[slot] -= len;", "p->length[slot] -= 0 * len;"),
    ("kv_read of the first row",
     "ref_kv_read(&p->memory.kv, index, slot, first + i, cols, (float *)k",
     "ref_kv_read(&p->memory.kv, index, slot, i, cols, (float *)k", "lockstep"),
)

group(
    "cpu-ref", "plugins/cpu-ref/program.c", "program",
    ("inputs die at once",
     "l->last[o->in[j]] = i;\n            l->touched[o->in[j]] |= p->taken[i];",
     "l->touched[o->in[j]] |= p->taken[i];", "exec"),
    ("KEEP_ALL is not heeded", "if (p->flags & FAK_KEEP_ALL || p->memory.value[v].kind == FAK_OUT)",
     "if (p->memory.value[v].kind == FAK_OUT)"),
    ("kv of a layer is parted",
     "if (p->op[j].layer == p->op[i].layer && uses_kv(&p->op[j])) p->taken[j] = 0;",
     "if (0 && p->op[j].layer == p->op[i].layer && uses_kv(&p->op[j])) p->taken[j] = 0;"),
    ("report lacks the values", "r.kv_bytes = 2 * kv;", "r.kv_bytes = kv;"),
    ("report lacks the arena", "r.scratch_bytes = arena + scratch;", "r.scratch_bytes = scratch;",
     "cpu_ref"),
    ("fused ops without the option", "(info->parts && !d->fused)",
     "(0 && info->parts && !d->fused)", "cpu_ref"),
    ("weights lent for a call are kept", "src->flags & FAK_STABLE && src->borrow ?",
     "src->borrow ?", "cpu_ref"),
    ("shared weights are not counted", "p->weights->refs++;", "p->weights->refs += 0;", "cpu_ref"),
)

# ---- exec -------------------------------------------------------------------------------------

group(
    "exec", "core/exec.c", "exec",
    ("readers of tails are readers of the body",
     "x->readers[x->p->op[i].in[j]] |= (uint8_t)(1u << want);",
     "x->readers[x->p->op[i].in[j]] |= (uint8_t)1u;"),
    ("holes are not handed over",
     "if (!s && side == SIDE_HOST) s = hand_over(x, first, n, step, e);",
     "if (0) s = hand_over(x, first, n, step, e);"),
    ("brought from its own side", "side == SIDE_HOST ? SIDE_DEVICE : SIDE_HOST, value",
     "side == SIDE_HOST ? SIDE_HOST : SIDE_DEVICE, value"),
    ("crossed bytes", "x->crossed_bytes += (uint64_t)rows * v->cols * 4;",
     "x->crossed_bytes += (uint64_t)rows * v->cols;"),
    ("ops are counted by range", "x->ops[side] += n;", "x->ops[side] += 1;"),
    ("ids are counted for the device", "x->by_id[side][p->op[i].id]++;",
     "x->by_id[SIDE_DEVICE][p->op[i].id]++;", "lockstep"),
    ("a refused step keeps the host's room",
     "if (s && x->p->holds_kv[SIDE_HOST]) give_back(x, step);", ""),
    ("both tails are run", "if (t.want != step->want) continue;", ""),
    ("a tail without wanted rows is run", "!s && step->wanted.count && i < p->tails.count; i++",
     "!s && i < p->tails.count; i++"),
    ("one wait is enough", "while (s == FAK_PENDING);", "while (0);"),
    ("tickets are not waited for", "if (s || !ticket) return device_answer(d, s, what, e);",
     "if (s || ticket) return device_answer(d, s, what, e);", "honest"),
    ("a changed float mode is borne", "if (!float_mode_ok())", "if (0)", "wrong"),
    ("wanted rows are all rows",
     "x->p->value[value].rows == FAK_WANTED_ROWS ? step->wanted.count : step->rows",
     "x->p->value[value].rows == FAK_UNUSED ? step->wanted.count : step->rows"),
    ("a range goes on into the other side", "program_side_of(x->p, first + n) == side) n++;",
     "1) n++;"),
    ("ranges are not maximal", "while (!x->watch && first + n < end &&",
     "while (0 && first + n < end &&"),
    ("watched in ranges", "while (!x->watch && first + n < end &&", "while (first + n < end &&",
     "lockstep"),
)

# ---- gate -------------------------------------------------------------------------------------

group(
    "gate", "core/gate.c", "gate",
    ("no number is no difference", "return isfinite(d) ? d : INFINITY;",
     "return isfinite(d) ? d : 0;"),
    ("NaNs of other payload differ", "!memcmp(&a, &b, sizeof a) || (a != a && b != b)",
     "!memcmp(&a, &b, sizeof a)"),
    ("L2 is not looked at", "if (!(f->rel_l2 <= b->op_l2))", "if (0)"),
    ("elements are not looked at", "if (!(f->element <= most))", "if (0)"),
    ("cosine is not looked at", "if (!(f->cosine >= b->cosine))", "if (0)"),
    ("norm is not looked at", "if (!(fabs(f->norm_ratio - 1) <= b->norm_ratio))", "if (0)"),
    ("L2 of logits is not looked at", "if (!(f->rel_l2 <= b->rel_l2))", "if (0)"),
    ("largest difference is not looked at", "if (!(f->max_abs <= b->max_abs))", "if (0)"),
    ("one bit is none", "if (!f->differ) return FAK_OK;", "if (f->differ < 2) return FAK_OK;",
     "golden"),
    ("no class is exact", "b.exact = d->facts.klass == FAK_REFERENCE;", "b.exact = 0;", "golden"),
    ("the last element of all is the worst", "into->row = f->row;", "into->row = 0;", "lockstep"),
    ("ties are not counted", "t->ties++;", "t->ties += 0;"),
    ("any gap is a tie", "(double)gap < 2 * b->max_abs", "(double)gap < 200 * b->max_abs"),
    ("2 % may be ties", "t->ties * 100 > t->positions", "t->ties * 50 > t->positions"),
    ("wrong argmax is borne", "if (t->wrongs)", "if (0)"),
    ("a row of zeros is met by anything", "!isfinite(s->off) || s->want == 0", "!isfinite(s->off)"),
    ("heavy parts of fused ops are light", "found |= info->part[k].id == part;", "found |= 0;"),
    ("matmuls may be left to the host", "if (matmuls || attentions)", "if (0)"),
    ("nothing need be native",
     "if (!gate_count(native, FAK_OP_MATMUL) || !gate_count(native, FAK_OP_ATTENTION))", "if (0)"),
)

# ---- lockstep, bisect, golden bits --------------------------------------------------------------

group(
    "lockstep", "core/lockstep.c", "lockstep",
    ("differences are carried on", "return f.differ && !l->pure ? exec_write",
     "return 0 ? exec_write"),
    ("kv is not compared", "if (appends && seen) s = compare_kv", "if (0) s = compare_kv"),
    ("values are not compared", "!s && part < 2; part++", "!s && part < 1; part++"),
    ("kv is not put right", "return s || !differ || l->pure ? s : write_kv",
     "return s || differ || l->pure ? s : write_kv"),
    ("keys and values are put right crosswise", "write_kv(x, o, span, half[0], half[1], e);",
     "write_kv(x, o, span, half[1], half[0], e);"),
    ("kv has no grain", "kv_dtype == FAK_BF16 ? 0x1p-7 :", "0 ? 0x1p-7 :"),
    ("the device's kv beside its own", "s = read_kv(&l->ref.exec, o, span, half[0], half[1], e);",
     "s = read_kv(x, o, span, half[0], half[1], e);"),
    ("ids are not compared", "if (want[r] == got[r]) continue;", "if (1) continue;"),
    ("ties part", "if (gap * gap < 4 * off * off * squares / V) continue;", ""),
    ("all ids are ties", "if (gap * gap < 4 * off * off * squares / V) continue;", "continue;"),
    ("first output only", "!s && j < OP_OUTPUTS; j++)\n        if (o->out[j] && l->at",
     "!s && j < 1; j++)\n        if (o->out[j] && l->at"),
    ("first row only", "r < rows; r++)\n        gate_add_row(&f, r, cols, want",
     "r < 1; r++)\n        gate_add_row(&f, r, cols, want"),
    ("steps are not counted", "if (!s) l->steps++;", ""),
    ("the bound is of the wrong dtype", "v->rows > 1) dtype = v->dtype;",
     "v->rows > 1) dtype = FAK_F32;", "cli_bisect"),
    ("the next id of any step", "if (t.want != FAK_WANT_ARGMAX || !l->at[t.out]) continue;",
     "if (!l->at[t.out]) continue;"),
    ("kv that was not seen is not told", "l->unseen += appends && !seen;", "l->unseen += 0;"),
)

group(
    "bisect", "core/cmd_bisect.c", "cli_bisect",
    ("a difference is exit 0", "cmd_printed(s ? EXIT_FAILED : EXIT_DONE)",
     "cmd_printed(EXIT_DONE)"),
    ("claims must be proven", "b->backend.unproven = 1;", "b->backend.unproven = 0;"),
    ("all is prefill", "!b->prompt_steps || b->l.part.step < b->prompt_steps", "1"),
    ("no step after the text", "i < b->greedy; i++) {", "i < 0 * b->greedy; i++) {"),
    ("an id of the text is left out", "feed(b, b->in.prompt.id, last, FAK_WANT_LOGITS, e)",
     "feed(b, b->in.prompt.id, last - 1, FAK_WANT_LOGITS, e)"),
)

group(
    "golden", "core/golden.c", "golden",
    ("ranges are not compared", "if (!s && f.differ)", "if (0 && f.differ)"),
    ("greedy ids are not compared",
     "if (!s && memcmp(want->greedy, got->greedy, sizeof want->greedy))",
     "if (0 && memcmp(want->greedy, got->greedy, sizeof want->greedy))"),
    ("one act mode only", "!s && a < 2; a++", "!s && a < 1; a++"),
    ("one dtype only", "!s && i < sizeof dtypes / sizeof *dtypes; i++", "!s && i < 1; i++"),
    ("not op by op", "want ? by_op(g, dev, host, act, e)",
     "want ? 0 * by_op(g, dev, host, act, e)"),
)

# ---- the mocks --------------------------------------------------------------------------------

group(
    "float mode", "core/float_mode.c", "cpu",
    ("is not put back", "fesetenv(&mode->env);", "(void)0;"),
    ("whoever comes next is blamed", "mode->ok && !float_mode_ok()", "!float_mode_ok()"),
)

group(
    "program", "core/program.c", "wrong",
    ("a failed prepare left a program", "= s ? NULL : handle;", "= handle;"),
    ("prepare may change the mode", 'device_after(d, s, &mode, "prepare", e)',
     'device_answer(d, s, "prepare", e)'),
)

group(
    "device", "core/device.c", "wrong",
    ("any call may change the mode", "if (s || !changed) return s;", "return s;"),
)

group(
    "trace", "core/trace.c", "trace",
    ("a NaN is passed over", "return found(p, op, r, c, e);", "return found(p, op, r, c, e) > 0;"),
    ("the reference has F16", "if (o.act == FAK_ACT_F16)", "if (0)"),
    ("why instead of what", ": untraced(e);", ": (untraced(e), rc);"),
    ("Ctrl-C is not heard", "t.stop = s->stop;", "t.stop = NULL;"),
)

group(
    "honest", "test/mock/honest/math.c", "honest",
    ("dot, four lanes", "lane[i % 8] = lane[i % 8] + a[i] * b[i];",
     "lane[i % 4] = lane[i % 4] + a[i] * b[i];"),
    ("dot of Approx, dropped tail", "!exact && i-- > 0;) back +=", "!exact && i-- > 1;) back +="),
    ("f16 is truncated", "size += 0xfffu + (size >> 13 & 1u);", "size += 0;"),
    ("bf16 is truncated", "(b + 0x7fffu + (b >> 16 & 1u)) >> 16", "b >> 16"),
    ("matmul Q8, no zeros", "if (has_zero(w->dtype)) v = v +", "if (0) v = v +"),
    ("rope, wrong sign", "y[i] = x[i] * c - x[i + half] * s;",
     "y[i] = x[i] * c + x[i + half] * s;"),
    ("glu, the other function", "if (act == FAK_SILU)", "if (act != FAK_SILU)"),
    ("norm, exact in another order", "exact ? (x[g + i] * factor) * w[i] :",
     "exact ? x[g + i] * (factor * w[i]) :"),
    ("argmax, last maximum", "best = x[i] > x[best] ? i : best;",
     "best = x[i] >= x[best] ? i : best;", "lockstep"),
)

group(
    "honest", "test/mock/honest/kernels.c", "honest",
    ("attention, first key not seen",
     "for (uint32_t t = h->from; t <= h->pos; t++) {\n        const float *v",
     "for (uint32_t t = h->from + (h->pos > 0); t <= h->pos; t++) {\n        const float *v"),
    ("attention of Approx, sums not scaled", "sum = sum * less + e;", "sum = sum + e;"),
    ("kv, layers share a page", "layer) * PAGE + pos % PAGE) * 2 + v;",
     "layer / 2) * PAGE + pos % PAGE) * 2 + v;"),
    ("kv, swapped", "(v ? j->v : j->k) + (size_t)i * j->cols",
     "(v ? j->k : j->v) + (size_t)i * j->cols", "lockstep"),
    ("evict, values stay", "uint32_t old = pos + j->count;", "uint32_t old = pos;"),
    ("take_rows, not those wanted", "value_row(p, x, step_word(p, p->step->wanted, r))",
     "value_row(p, x, 0 * r)"),
    ("fused, second weight for the third", "matmul(p, o->in[2 + k], rows,",
     "matmul(p, o->in[k > 1 ? 3 : 2 + k], rows,"),
    ("page copied without raw keys", "    if (p->raw)\n        memcpy(raw_row(p, to,",
     "    if (0)\n        memcpy(raw_row(p, to,"),
)

group(
    "honest", "test/mock/honest/kv.c", "honest",
    ("shared pages are written", "if (i < have && p->now.refs[old] == 1) continue;",
     "if (i < have) continue;"),
    ("pages are not given back", "p->now.refs[*page_at(p, slot, i)]--;",
     "p->now.refs[*page_at(p, slot, i)] -= 0;", "honest_room"),
    ("a failure is not undone", "copy_table(p, &p->now, &p->before);\n    p->copies = 0;\n    for",
     "p->copies = 0;\n    for", "honest_room"),
    ("copies are not sent",
     "p->d, &(job){.kind = JOB_COPY, .p = p, .a = p->copy[2 * i], .b = p->copy[2 * i + 1]});",
     "p->d, &(job){.kind = JOB_COPY, .p = p, .a = p->copy[2 * i], .b = p->copy[2 * i]});"),
)

group(
    "honest", "test/mock/honest/queue.c", "honest",
    ("values outlive their step", "if (p->acts) memset(block + p->acts, POISON,",
     "if (0) memset(block + p->acts, POISON,"),
    ("blocked, but not until it is done",
     "while (d->done < ticket) pthread_cond_wait(&d->moved, &d->lock);", "", "honest_faults"),
    ("what follows a failure runs", "return f && j->kind < JOB_COPY;", "return 0;",
     "honest_faults"),
    ("a failure is not told", "return FAK_E_STEP;", "return FAK_OK;", "honest_faults"),
    ("the loss is not told", "if (s) *e = d->lost;", "s = FAK_OK;", "honest_faults"),
)

group(
    "refuser", "test/mock/refuser.c", "exec",
    ("rows are there before wait", "memset(dst, 0xa5, r.bytes);", "memcpy(dst, r.rows, r.bytes);"),
    ("never pending", "refuser_seen.polls++;\n        return FAK_PENDING;",
     "refuser_seen.polls++;"),
    ("fails no step", "return d->fail_step && --d->fail_step == 0;",
     "return d->fail_step && --d->fail_step > 1u << 31;"),
)

group(
    "wrong", "test/mock/wrong.c", "wrong",
    ("wrong-bit has none", "bits ^= 1;", "bits ^= 0;"),
    ("nan-writer writes none", "if (IS(nan_writer)) y[at] = NAN;", "if (0) y[at] = NAN;"),
    ("class-liar is honest", "if (IS(class_liar) && o->id == FAK_OP_GLU)", "if (0)"),
    ("rows-beyond stays within", "if (!s && IS(rows_beyond))", "if (0)"),
    ("silent has a sentence", "return IS(silent) && !strcmp(at, silent_at);",
     "return 0 && strcmp(at, silent_at);"),
    ("late-unsupported can after all", "if (IS(late_unsupported))", "if (0)"),
)

group(
    "planted", "test/mock/planted.c", "lockstep",
    ("scaled by nothing", "return y * 1.02f;", "return y * 1.0f;"),
    ("no tail is dropped", "i < I - 8; i++)", "i < I; i++)"),
    ("the last row is written", "asked.fault == PLANTED_skipped_row && rows > 1", "0 && rows > 1"),
    ("turns the right way", ": -tab[i];", ": tab[i];"),
    ("the right step", "span->first) span->first--;", "span->first) span->first -= 0;"),
    ("the right slot", "span->slot++;", "span->slot += 0;"),
    ("the right layer", "o->layer = o->layer ? o->layer - 1 : 1;", "o->layer += 0;"),
    ("the window is open", "o->window = span->first + span->rows - 1;", "o->window = 0;"),
    ("the right function", "o->act = FAK_GELU_TANH;", "o->act = FAK_SILU;"),
    ("the wrong layer's op", "o->layer == (r->layered ? asked.layer : FAK_NO_INDEX)",
     "o->layer == (r->layered ? asked.layer + (asked.layer < 2) : FAK_NO_INDEX)"),
)
