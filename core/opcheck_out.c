/* opcheck_out - see opcheck_out.h. */
#include "opcheck_out.h"

#include "evidence.h"
#include "json_out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- rows ---- */

/* Sentences of backends may be any bytes. */
static json_t *any(const char *s)
{
    return json_out_text(s, strlen(s));
}

static json_t *figures(const gate_figures *f)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I}", "cosine", evidence_number(f->cosine),
                     "norm_ratio", evidence_number(f->norm_ratio), "rel_l2",
                     evidence_number(f->rel_l2), "max_abs", evidence_number(f->max_abs), "values",
                     (json_int_t)f->values, "differ", (json_int_t)f->differ);
}

json_t *opcheck_row(const check_row *row)
{
    char rung[4];
    snprintf(rung, sizeof rung, "R%d", (int)row->rung % 10);
    json_t *out = json_pack("{s:s, s:o, s:o, s:s, s:o, s:I}", "rung", rung, "check", any(row->what),
                            "detail", any(row->detail), "verdict", check_verdict_name[row->verdict],
                            "reason", any(row->reason), "cases", (json_int_t)row->cases);
    if (row->measured) evidence_set(out, "figures", figures(&row->figures));
    if (row->value > 0) {
        evidence_set(out, "value", json_real(row->value));
        evidence_set(out, "unit", json_string(row->unit));
    }
    return out;
}

json_t *opcheck_broken(const char *stage, const char *why)
{
    check_row row = {.verdict = CHECK_FAIL};
    const char *comma = strchr(stage, ',');
    if (stage[0] == 'R' && stage[1] >= '0' && stage[1] < '0' + CHECK_RUNGS)
        row.rung = (enum check_rung)(stage[1] - '0');
    if (strlen(stage) > 3)
        snprintf(row.what, sizeof row.what, "%.*s",
                 comma ? (int)(comma - stage - 3) : (int)strlen(stage) - 3, stage + 3);
    if (comma) snprintf(row.detail, sizeof row.detail, "%s", comma + 2);
    snprintf(row.reason, sizeof row.reason, "%s", why);
    return opcheck_row(&row);
}

static const char *text(const json_t *object, const char *key)
{
    const char *s = json_string_value(json_object_get(object, key));
    return s ? s : "";
}

/* The entry of the list that names the manner, after its "=". */
static const char *excepted(const json_t *row, const arg_list *except)
{
    const char *what = text(row, "detail");
    if (strcmp(text(row, "check"), "manners") || strcmp(text(row, "verdict"), "FAIL")) return NULL;
    for (uint32_t i = 0; i < except->count; i++) {
        size_t n = strcspn(except->at[i], "=");
        if (n == strlen(what) && !strncmp(except->at[i], what, n) && except->at[i][n])
            return except->at[i] + n + 1;
    }
    return NULL;
}

static void add_exception(opcheck_result *r, json_t *row, const char *whose)
{
    char why[400];
    snprintf(why, sizeof why, "excepted, %s: %s", whose, text(row, "reason"));
    evidence_set(row, "verdict", json_string("ABSTAIN"));
    evidence_set(row, "reason", any(why));
    if (!r->excepted) r->excepted = json_array();
    json_array_append_new(
        r->excepted, json_pack("{s:s, s:o}", "manner", text(row, "detail"), "why", any(whose)));
}

void opcheck_take_row(opcheck_result *r, json_t *row, const arg_list *except)
{
    const char *whose = excepted(row, except), *rung = text(row, "rung");
    if (!row) return;
    if (whose) add_exception(r, row, whose);
    if (!r->checks) r->checks = json_array();
    for (int v = 0; v < CHECK_VERDICTS; v++)
        if (!strcmp(text(row, "verdict"), check_verdict_name[v]) && rung[0] == 'R' &&
            rung[1] >= '0' && rung[1] < '0' + CHECK_RUNGS)
            r->count[rung[1] - '0'][v]++;
    json_array_append_new(r->checks, row);
}

void opcheck_take_head(opcheck_result *r, json_t *head)
{
    json_decref(r->head);
    r->head = head;
}

/* ---- evidence ---- */

static enum check_verdict verdict_of(const uint32_t count[CHECK_VERDICTS])
{
    return count[CHECK_FAIL] ? CHECK_FAIL : count[CHECK_PASS] ? CHECK_PASS : CHECK_ABSTAIN;
}

static json_t *rungs(const opcheck_result *r)
{
    json_t *out = json_array();
    for (int i = 0; i < CHECK_RUNGS; i++) {
        const uint32_t *n = r->count[i];
        char name[4];
        if (!n[CHECK_PASS] && !n[CHECK_FAIL] && !n[CHECK_ABSTAIN]) continue;
        snprintf(name, sizeof name, "R%d", i % 10);
        json_array_append_new(out, json_pack("{s:s, s:s, s:s, s:i, s:i, s:i}", "rung", name,
                                             "about", check_rung_about[i], "verdict",
                                             check_verdict_name[verdict_of(n)], "pass",
                                             (int)n[CHECK_PASS], "fail", (int)n[CHECK_FAIL],
                                             "abstain", (int)n[CHECK_ABSTAIN]));
    }
    return out;
}

void opcheck_finish(opcheck_result *r, const opcheck_facts *f)
{
    for (int i = 0; i < CHECK_RUNGS; i++) r->failed += r->count[i][CHECK_FAIL];
    json_t *all = r->head ? json_copy(r->head)
                          : json_pack("{s:s, s:i}", "evidence", "opcheck", "schema", 1);
    evidence_set(all, "command", evidence_command(f->argc, f->argv));
    for (uint32_t i = 0; i < f->rungs->count; i++) {
        if (!i) evidence_set(all, "only", json_array());
        json_array_append_new(json_object_get(all, "only"), json_integer(f->rungs->at[i]));
    }
    evidence_set(all, "seed", json_integer(f->seed));
    evidence_set(all, "seconds", json_real((double)(int64_t)(f->seconds * 10) / 10));
    evidence_set(all, "model", f->model_path ? evidence_model(f->model_path) : json_null());
    evidence_set(all, "excepted", r->excepted ? json_incref(r->excepted) : json_array());
    evidence_set(all, "verdict", json_string(r->failed ? "FAIL" : "PASS"));
    evidence_set(all, "rungs", rungs(r));
    evidence_set(all, "checks", r->checks ? json_incref(r->checks) : json_array());
    r->evidence = all;
}

void opcheck_free(opcheck_result *r)
{
    json_decref(r->head);
    json_decref(r->checks);
    json_decref(r->excepted);
    json_decref(r->evidence);
    *r = (opcheck_result){0};
}

/* ---- for people ---- */

static void print_figures(const json_t *row, FILE *out)
{
    const json_t *f = json_object_get(row, "figures");
    double value = json_real_value(json_object_get(row, "value"));
    json_int_t differ = json_integer_value(json_object_get(f, "differ"));
    if (value > 0) fprintf(out, "  %.1f %s", value, text(row, "unit"));
    if (f && !differ) fprintf(out, "  all bits equal");
    if (f && differ)
        fprintf(out, "  relative L2 %.2g, difference %.2g, cosine %.7g, norm ratio %.7g",
                json_number_value(json_object_get(f, "rel_l2")),
                json_number_value(json_object_get(f, "max_abs")),
                json_number_value(json_object_get(f, "cosine")),
                json_number_value(json_object_get(f, "norm_ratio")));
}

static void print_row(const json_t *row, FILE *out)
{
    const char *detail = text(row, "detail"), *reason = text(row, "reason");
    fprintf(out, "   %-7s  %s%s%s", text(row, "verdict"), text(row, "check"), *detail ? ", " : "",
            detail);
    if (strcmp(text(row, "verdict"), "FAIL")) print_figures(row, out); /* a reason has its own */
    fprintf(out, "%s%s\n", *reason ? ": " : "", reason);
}

/* What several checks say alike is said once. */
static int is_repeated(const json_t *row, const json_t *before)
{
    return before && !strcmp(text(row, "check"), text(before, "check")) &&
           !strcmp(text(row, "verdict"), text(before, "verdict")) &&
           !strcmp(text(row, "verdict"), "ABSTAIN") &&
           !strcmp(text(row, "reason"), text(before, "reason"));
}

static void print_rung(const opcheck_result *r, int rung, int all, FILE *out)
{
    const uint32_t *n = r->count[rung];
    const json_t *row, *before = NULL;
    size_t i;
    if (!n[CHECK_PASS] && !n[CHECK_FAIL] && !n[CHECK_ABSTAIN]) return;
    fprintf(out, "R%d %-20s %-7s  %" PRIu32 " passed, %" PRIu32 " failed, %" PRIu32 " abstained\n",
            rung, check_rung_about[rung], check_verdict_name[verdict_of(n)], n[CHECK_PASS],
            n[CHECK_FAIL], n[CHECK_ABSTAIN]);
    json_array_foreach(r->checks, i, row)
    {
        if (text(row, "rung")[1] != '0' + rung) continue;
        int passed = !strcmp(text(row, "verdict"), "PASS");
        if (all || (rung == R5 && passed)) print_row(row, out);
        if (!all && !passed && !is_repeated(row, before)) print_row(row, out);
        before = row;
    }
}

/* Later rungs rest on earlier ones: of many failures the first is where to begin. */
static void print_first(const opcheck_result *r, FILE *out)
{
    const json_t *row;
    size_t i;
    json_array_foreach(r->checks, i, row)
    {
        if (strcmp(text(row, "verdict"), "FAIL")) continue;
        fprintf(out, "begin with the first: %s %s%s%s\n", text(row, "rung"), text(row, "check"),
                *text(row, "detail") ? ", " : "", text(row, "detail"));
        return;
    }
}

void opcheck_print(const opcheck_result *r, int all, FILE *out)
{
    const json_t *of = json_object_get(r->evidence, "plugin"),
                 *on = json_object_get(r->evidence, "device");
    uint32_t passed = 0, abstained = 0;
    if (on)
        fprintf(out, "%s %s, %s; class %s, %s \"%s\"\n", text(of, "name"), text(of, "version"),
                text(of, "vendor"), text(on, "class"), text(on, "kind"), text(on, "name"));
    else if (of) /* it was not opened */
        fprintf(out, "%s\n", *text(of, "file") ? text(of, "file") : text(of, "name"));
    for (int i = 0; i < CHECK_RUNGS; i++) {
        print_rung(r, i, all, out);
        passed += r->count[i][CHECK_PASS];
        abstained += r->count[i][CHECK_ABSTAIN];
    }
    if (r->failed > 1) print_first(r, out);
    fprintf(out,
            "%s%s: %" PRIu32 " checks failed, %" PRIu32 " passed, %" PRIu32
            " abstained; %.1f s, seed %" JSON_INTEGER_FORMAT "\n",
            r->failed ? "FAIL" : "PASS",
            json_object_get(r->evidence, "only") ? " in the rungs that were asked for" : "",
            r->failed, passed, abstained, json_real_value(json_object_get(r->evidence, "seconds")),
            json_integer_value(json_object_get(r->evidence, "seed")));
}
