/* bench_out - see bench_out.h. */
#include "bench_out.h"

#include "capacity.h"

#include <inttypes.h>
#include <string.h>

static const char itself[] =
    "the device is the linked-in reference: it would be compared with itself";

static const char unasked[] = "not run: --no-gate";

/* The verdict of a gate that compared nothing is none. */
static const char *verdict_of(const bench_gate *g)
{
    return g->failed ? "FAIL" : g->skipped ? "ABSTAIN" : "PASS";
}

static uint64_t sum_of(const uint64_t by_id[EXEC_IDS])
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < EXEC_IDS; i++) n += by_id[i];
    return n;
}

/* ---- for people ---- */

static void print_gate(const bench_gate *g, FILE *out)
{
    const gate_figures *f = &g->tally.logits;
    fprintf(out, "gate: %s", g->skipped ? unasked : verdict_of(g));
    if (g->skipped) {
        fputc('\n', out);
        return;
    }
    if (!g->compared) {
        fprintf(out, "; %s\n", itself);
        return;
    }
    fprintf(out, "; %" PRIu64 " positions against the reference (%s), %" PRIu64 " ties\n",
            g->tally.positions, g->bound.exact ? "class reference: bit for bit" : g->bound.mode,
            g->tally.ties);
    fprintf(out, "  %-22s %12s %12s\n", "", "worst", "allowed");
    if (g->bound.exact) {
        fprintf(out, "  %-22s %12" PRIu64 " %12d\n", "values that differ", f->differ, 0);
        return;
    }
    fprintf(out, "  %-22s %12.9f %12g\n", "cosine", f->cosine, g->bound.cosine);
    fprintf(out, "  %-22s %12.9f %6s%g\n", "norm ratio", f->norm_ratio, "1 +- ",
            g->bound.norm_ratio);
    fprintf(out, "  %-22s %12.3g %12g\n", "relative L2", f->rel_l2, g->bound.rel_l2);
    fprintf(out, "  %-22s %12.3g %12g\n", "largest difference", f->max_abs, g->bound.max_abs);
    for (uint64_t i = 0; i < g->tally.ties && i < GATE_TIES; i++)
        fprintf(out,
                "  tie at position %" PRIu64 ": id %" PRIu32 ", the reference has %" PRIu32
                ", higher by %g\n",
                g->tally.tie[i].position, g->tally.tie[i].got, g->tally.tie[i].want,
                (double)g->tally.tie[i].gap);
}

/* "prefill 64 tokens", "decode 128 after 1024", "batch 8 x 32 tokens", "first token, loaded" */
static void name_row(const bench_row *r, char *text, size_t bytes)
{
    if (r->batch)
        snprintf(text, bytes, "%s %" PRIu32 " x %" PRIu32 " tokens", r->phase, r->batch, r->tokens);
    else if (!strcmp(r->phase, "decode"))
        snprintf(text, bytes, "decode %" PRIu32 " after %" PRIu32, r->tokens, r->depth);
    else if (r->tokens && !r->what)
        snprintf(text, bytes, "%s %" PRIu32 " tokens", r->phase, r->tokens);
    else if (r->what)
        snprintf(text, bytes, "%s, %s", strcmp(r->phase, "ttft") ? r->phase : "first token",
                 r->what);
    else
        snprintf(text, bytes, "%s", r->phase);
}

static void print_row(const bench_row *r, FILE *out)
{
    char name[48], size[16];
    name_row(r, name, sizeof name);
    if (!strcmp(r->unit, "bytes")) {
        fprintf(out, "%-24s %12s\n", name, capacity_text((uint64_t)r->m.median, size));
        return;
    }
    int digits = strcmp(r->unit, "s") ? 1 : 4;
    double spread = r->m.median > 0 ? (r->m.high - r->m.low) / r->m.median * 100 : 0;
    fprintf(out, "%-24s %12.*f %12.*f %12.*f %7.1f %%  %s\n", name, digits, r->m.median, digits,
            r->m.low, digits, r->m.high, spread, r->unit);
}

static void print_ops(const bench_result *r, FILE *out)
{
    fprintf(out, "ops a token:");
    for (uint32_t side = 0; side < SIDES; side++)
        fprintf(out, "%s %" PRIu64 " %s (%" PRIu64 " matmul, %" PRIu64 " attention)",
                side ? "," : "", sum_of(r->per_token[side]), side ? "host" : "native",
                gate_count(r->per_token[side], FAK_OP_MATMUL),
                gate_count(r->per_token[side], FAK_OP_ATTENTION));
    fputc('\n', out);
}

void bench_out_table(const bench_result *r, FILE *out)
{
    print_gate(&r->gate, out);
    fprintf(out, "\n%-24s %12s %12s %12s %9s\n", "", "median", "low", "high", "spread");
    for (uint32_t i = 0; i < r->rows; i++) print_row(&r->row[i], out);
    print_ops(r, out);
}

/* ---- evidence ---- */

static json_t *count(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *figures_of(const bench_gate *g)
{
    const gate_figures *f = &g->tally.logits;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "cosine", evidence_number(f->cosine),
                     "norm_ratio", evidence_number(f->norm_ratio), "rel_l2",
                     evidence_number(f->rel_l2), "max_abs", evidence_number(f->max_abs), "values",
                     count(f->values), "differ", count(f->differ));
}

static json_t *bounds_of(const gate_bound *b)
{
    if (b->exact) return json_pack("{s:b}", "exact", 1);
    return json_pack("{s:b, s:s, s:f, s:f, s:f, s:f}", "exact", 0, "mode", b->mode, "cosine",
                     b->cosine, "norm_ratio", b->norm_ratio, "rel_l2", b->rel_l2, "max_abs",
                     b->max_abs);
}

static json_t *ties_of(const gate_tally *t)
{
    json_t *ties = json_array();
    for (uint64_t i = 0; i < t->ties && i < GATE_TIES; i++)
        json_array_append_new(
            ties, json_pack("{s:I, s:I, s:I, s:f}", "position", (json_int_t)t->tie[i].position,
                            "want", (json_int_t)t->tie[i].want, "got", (json_int_t)t->tie[i].got,
                            "gap", (double)t->tie[i].gap));
    return ties;
}

static json_t *gate_of(const bench_gate *g)
{
    json_t *gate = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "verdict", verdict_of(g),
                             "positions", count(g->tally.positions), "ties", ties_of(&g->tally),
                             "native", evidence_ops(g->by_id[SIDE_DEVICE]), "host",
                             evidence_ops(g->by_id[SIDE_HOST]), "matmul_host",
                             count(gate_count(g->by_id[SIDE_HOST], FAK_OP_MATMUL)));
    evidence_set(gate, "attention_host", count(gate_count(g->by_id[SIDE_HOST], FAK_OP_ATTENTION)));
    evidence_set(gate, "reason",
                 json_string(g->failed     ? g->why.message
                             : g->skipped  ? unasked
                             : g->compared ? ""
                                           : itself));
    evidence_set(gate, "figures", g->tally.positions ? figures_of(g) : json_null());
    evidence_set(gate, "bounds", g->tally.positions ? bounds_of(&g->bound) : json_null());
    return gate;
}

static json_t *row_of(const bench_row *r)
{
    json_t *row = json_pack("{s:s, s:s, s:f, s:f, s:f}", "phase", r->phase, "unit", r->unit,
                            "median", r->m.median, "min", r->m.low, "max", r->m.high);
    if (r->what) evidence_set(row, "what", json_string(r->what));
    if (r->tokens) evidence_set(row, "tokens", count(r->tokens));
    if (r->batch) evidence_set(row, "batch", count(r->batch));
    if (r->batch || !strcmp(r->phase, "decode")) evidence_set(row, "depth", count(r->depth));
    return row;
}

void bench_out_json(const bench_result *r, json_t *evidence)
{
    json_t *results = json_array();
    for (uint32_t i = 0; i < r->rows; i++) json_array_append_new(results, row_of(&r->row[i]));
    evidence_set(evidence, "gate", gate_of(&r->gate));
    evidence_set(evidence, "results", results);
    evidence_set(evidence, "ops_per_token",
                 json_pack("{s:o, s:o}", "native", evidence_ops(r->per_token[SIDE_DEVICE]), "host",
                           evidence_ops(r->per_token[SIDE_HOST])));
    evidence_set(evidence, "verdict", json_string(verdict_of(&r->gate)));
    evidence_set(evidence, "seconds", json_real(r->seconds));
}
