/* support - what several tests share: tiny models, plans made by hand, random numbers. */
#ifndef SUPPORT_H
#define SUPPORT_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../core/plan.h"

/* ---- tiny models: files of scripts/make-model in the folder TEST_MODELS ---- */

enum { TINY_MODELS = 9 };
extern const char *const tiny_names[TINY_MODELS]; /* "tiny-f32.gguf", ...; the last is untied */

typedef struct tiny { /* zero-initialise */
    gguf *file;
    model model;
    plan plan;
} tiny;

/* What fails here fails the test. */
void tiny_open(tiny *t, const char *file_name);
void tiny_close(tiny *t);
/* The file's bytes, malloc'd. */
uint8_t *tiny_bytes(const char *file_name, size_t *bytes);

/* ---- plans made by hand ---- */

uint32_t draft_value(plan_draft *d, uint32_t kind, uint32_t rows, uint32_t cols); /* F32; its id */
/* Appends the op with as many outputs as it has, all of the right shape; the id of the first. */
uint32_t draft_op(plan_draft *d, uint32_t layer, fak_op o);
#define DRAFT(d, layer, ...) draft_op(d, layer, (fak_op){__VA_ARGS__})
void draft_begin(plan_draft *d); /* value 0 */
/* Ends a tail of `ops` ops whose output is out, which becomes a FAK_OUT. */
void draft_tail(plan_draft *d, uint32_t want, uint32_t first, uint32_t out);
void draft_pack(plan *p, plan_draft *d); /* frees the draft */

/* A plan that plan_check takes with every op, and with every parameter and field that may be. */
void full_plan(plan *p);

/* ---- random numbers ---- */

uint64_t random_begin(void); /* prints FAK_TEST_SEED=..., which may be set to repeat a run */
uint32_t random_next(uint64_t *state);
uint32_t random_below(uint64_t *state, uint32_t n);

/* ---- sentences ---- */

#define assert_message(e, part)                                                                    \
    do {                                                                                           \
        if (!strstr((e)->message, part)) fail_msg("\"%s\" lacks \"%s\"", (e)->message, part);      \
    } while (0)
#endif
