/* check - see check.h. */
#include "check.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const check_verdict_name[CHECK_VERDICTS] = {"PASS", "FAIL", "ABSTAIN"};
const char *const check_rung_about[CHECK_RUNGS] = {
    "load and manners",    "every op",    "what it claims", "a tiny model", "errors",
    "the real model (-m)", "speed of ops"};
const char *const check_manner[] = {"environment variables",
                                    "locale",
                                    "working directory",
                                    "signal handlers",
                                    "file mode mask",
                                    "child processes",
                                    "threads",
                                    "open files",
                                    "floating-point mode",
                                    "thread exit",
                                    "exit handlers",
                                    "standard output",
                                    "standard error",
                                    NULL};

void check_begin(check *c, enum check_rung rung, const char *what, const char *detail, ...)
{
    va_list arguments;
    char stage[160];
    c->row = (check_row){.rung = rung, .figures = GATE_NONE};
    snprintf(c->row.what, sizeof c->row.what, "%s", what);
    va_start(arguments, detail);
    vsnprintf(c->row.detail, sizeof c->row.detail, detail, arguments);
    va_end(arguments);
    snprintf(stage, sizeof stage, "R%d %s%s%s", (int)rung, what, c->row.detail[0] ? ", " : "",
             c->row.detail);
    if (c->on_stage) c->on_stage(c->self, stage);
}

void check_goes_on(const check *c, const char *part)
{
    char stage[240];
    snprintf(stage, sizeof stage, "R%d %s, %s%s%s", (int)c->row.rung, c->row.what, c->row.detail,
             c->row.detail[0] ? ", " : "", part);
    if (c->on_stage) c->on_stage(c->self, stage);
}

void check_end(check *c, enum check_verdict verdict, const char *sentence)
{
    c->row.verdict = verdict;
    snprintf(c->row.reason, sizeof c->row.reason, "%s", sentence ? sentence : "");
    c->count[c->row.rung][verdict]++;
    c->on_row(c->self, &c->row);
}

void check_answer(check *c, int32_t s, const fak_error *e)
{
    check_end(c, s ? CHECK_FAIL : CHECK_PASS, s ? e->message : NULL);
}

void check_add(check *c, const gate_figures *f)
{
    c->row.cases++;
    if (!f) return;
    c->row.measured |= f->values > 0;
    gate_merge(&c->row.figures, f);
}

uint64_t check_seed(const check *c, uint64_t of)
{
    uint64_t z = c->seed + of * 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) | 1;
}

uint32_t check_next_act(const check *c, uint32_t after)
{
    for (uint32_t act = after ? after << 1 : FAK_ACT_F32; act <= FAK_ACT_F16; act <<= 1)
        if (c->dev.facts.numerics & act) return act;
    return 0;
}

const char *check_act_name(uint32_t act)
{
    return act & FAK_ACT_Q8    ? "Q8 activations"
           : act & FAK_ACT_F16 ? "F16 activations"
                               : "F32 activations";
}

int32_t check_open(check *c, const char *name, const char *value, fak_error *e)
{
    fak_setting set[33];
    uint32_t sets = c->sets < 32 ? c->sets : 32;
    for (uint32_t i = 0; i < sets; i++) set[i] = c->set[i];
    if (name) set[sets++] = (fak_setting){name, value};
    device_close(&c->dev);
    return device_open(&c->dev, c->plugin, c->index, set, sets, e);
}

int check_has_option(const check *c, const char *name)
{
    for (uint32_t i = 0; i < c->plugin->api.options; i++) {
        fak_option o;
        fak_get(&o, sizeof o, c->plugin->api.option, c->plugin->api.option_stride, i);
        if (o.name && !strcmp(o.name, name)) return 1;
    }
    return 0;
}
