/* fuzz_gguf - any bytes are a container or refused with one printable sentence; so are the model, the
 * tokenizer and the plan that may be in it.  Everything that can be reached is read. */
#include "../../core/plan_check.h"
#include "../../core/tokenizer.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static volatile uint64_t sink; /* keeps reads alive */

static void check(int holds)
{
    if (!holds) abort();
}

/* A refusal is of the file, says why, and steers no terminal. */
static void check_sentence(int32_t s, const fak_error *e)
{
    check(s == STATUS_BAD_FILE || s == STATUS_REFUSED || s == FAK_E_MEMORY);
    check(s == e->code && !strncmp(e->message, "f.gguf", 6) == (s == STATUS_BAD_FILE));
    for (const char *c = e->message; *c; c++) check((unsigned char)*c >= ' ' && *c != 0x7f);
}

static void read_values(const gguf *g)
{
    for (uint32_t i = 0; i < gguf_value_count(g); i++) {
        const gguf_value *v = gguf_value_at(g, i);
        uint32_t type = v->type == GGUF_ARRAY ? v->element : v->type;
        const uint8_t *at = v->data;
        for (uint64_t k = 0; k < v->count; k++) {
            if (type == GGUF_STRING) {
                gguf_string s = gguf_next_string(v, &at);
                for (uint64_t j = 0; j < s.bytes; j++) sink += (uint8_t)s.data[j];
            } else {
                sink += (uint64_t)gguf_integer(v, k) + (gguf_number(v, k) > 0);
            }
        }
        check(type < GGUF_TYPES && gguf_type_name(type)[0] != '?');
    }
}

static void read_tensors(const gguf *g)
{
    for (uint32_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        for (uint64_t k = 0; k < t->name.bytes; k++) sink += (uint8_t)t->name.data[k];
        for (uint64_t k = 0; k < t->bytes; k++) sink += t->data[k];
        sink += t->data[0] + t->dim[t->dims ? t->dims - 1 : 0];
    }
}

/* Row 0 and the last of each weight, in the forms that all have. */
static void read_weights(const model *m, const plan *p)
{
    weights_source s = {.table = &m->weights, .index = p->weight, .values = p->block->values.count};
    fak_source api;
    fak_error e = {0};
    check(weights_source_open(&s, &api, &e) == FAK_OK);
    for (uint32_t v = 0; v < s.values; v++) {
        if (s.index[v] == FAK_NO_INDEX) continue;
        const weight *w = &m->weights.at[s.index[v]];
        for (uint32_t form = FAK_NATIVE; form <= FAK_AS_F32; form++) {
            uint64_t bytes = dtype_form_bytes(w->dtype, form, w->cols);
            uint8_t *row = malloc((size_t)bytes);
            check(row && bytes);
            for (uint32_t r = 0; r<w->rows; r += w->rows> 1 ? w->rows - 1 : 1) {
                int32_t rc = api.read(api.self, v, form, r, 1, row, bytes, &e);
                check(rc == FAK_OK || rc == STATUS_BAD_FILE); /* a scale that is no number */
                for (uint64_t k = 0; rc == FAK_OK && k < bytes; k++) sink += row[k];
            }
            free(row);
        }
        const uint8_t *lent = api.borrow(api.self, v);
        uint64_t bytes = w->rows * dtype_row_bytes(w->dtype, w->cols);
        for (uint64_t k = 0; lent && k < bytes; k++) sink += lent[k];
    }
    weights_source_close(&s);
}

static void try_model(const gguf *g, uint32_t dtype)
{
    model m;
    plan p = {0};
    fak_error e = {0};
    int32_t s = model_open(&m, g, dtype, 0, &e);
    if (s) {
        check_sentence(s, &e);
        check(!m.index && !m.weights.at);
        return;
    }
    check(plan_build(&p, &m, &e) == FAK_OK);
    check(plan_check(p.block, p.block->bytes, &e) == FAK_OK);
    read_weights(&m, &p);
    plan_free(&p);
    model_close(&m);
}

static void try_tokenizer(const gguf *g)
{
    static const char text[] = "Hello the <|im_end|>\xff\xc3\xa9 12\n";
    tokenizer *t = NULL;
    token_ids ids = {0};
    fak_error e = {0};
    int32_t s = tokenizer_open(&t, g, &e);
    if (s) {
        check_sentence(s, &e);
        check(!t);
        return;
    }
    check(tokenizer_encode(t, text, sizeof text - 1, &ids, &e) == FAK_OK);
    for (size_t i = 0; i < ids.count; i++) {
        size_t bytes;
        check(ids.id[i] < tokenizer_size(t) && tokenizer_token(t, ids.id[i], &bytes));
    }
    token_ids_free(&ids);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    gguf *g = NULL;
    fak_error e = {0};
    int32_t s = gguf_open_memory(&g, data, bytes, "f.gguf", &e);
    if (s) {
        check_sentence(s, &e);
        check(!g);
        return 0;
    }
    read_values(g);
    read_tensors(g);
    try_model(g, 0);
    try_model(g, FAK_F16);
    try_tokenizer(g);
    gguf_close(g);
    return 0;
}
